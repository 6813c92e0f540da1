"""The results as a picture: how many times better Milena is than Kafka, one bar per measure with a target.

Owns the drawing. Must not know the origin of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bench.measures import Better, Row
from bench.names import KAFKA

BETTER_COLOUR, WORSE_COLOUR, TARGET_COLOUR = "#2a7f62", "#b5483a", "#222222"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write a PNG, unless no measure has values of both servers."""
    beside_kafka = [row for row in rows if row.reference == KAFKA]
    drawn = [
        (row, row.advantage) for row in beside_kafka if row.measure.target is not None and row.advantage is not None
    ]
    if not drawn:
        return
    figure = Figure(figsize=(9, 1.4 + 0.34 * len(drawn)), layout="constrained")
    axes = figure.subplots()
    places = range(len(drawn))
    advantages = [advantage for _, advantage in drawn]
    # Bars start at 1 on a logarithmic scale: twice as good and half as good have the same length.
    axes.barh(
        places,
        [advantage - 1 for advantage in advantages],
        left=1,
        color=[BETTER_COLOUR if advantage >= 1 else WORSE_COLOUR for advantage in advantages],
    )
    for place, (row, advantage) in enumerate(drawn):
        axes.text(
            advantage,
            place,
            f" {advantage:.1f} x " if advantage < 10 else f" {advantage:.0f} x ",
            va="center",
            ha="left" if advantage >= 1 else "right",
            fontsize=8,
        )
        if (target := _target_as_advantage(row)) is not None:
            axes.plot([target, target], [place - 0.42, place + 0.42], color=TARGET_COLOUR, linewidth=2)
    axes.set_yticks(places, [f"{row.title}: {row.measure.name}, {row.measure.unit}" for row, _ in drawn], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} x"))
    axes.set_xlim(min(0.5, *advantages) * 0.7, max(2, *advantages) * 1.6)
    axes.axvline(1, color="#888888", linewidth=1)
    axes.set_title("Milena against Apache Kafka 3.9.1 (right of 1 x: Milena is better; black: target)", fontsize=10)
    figure.savefig(path, dpi=120)


def _target_as_advantage(row: Row) -> float | None:
    target = row.measure.target
    if target is None or not target.is_multiple:
        return None
    return target.limit if row.measure.better is Better.HIGHER else 1 / target.limit
