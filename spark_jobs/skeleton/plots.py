"""Draws the pictures of jobs: reads the last values of the output topic, and writes the PNG. It needs no Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import dates as date_axis
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.pictures import Bands, Draw, Picture, Series, Values
from spark_jobs.skeleton.stored import stored_messages

_INK = "#2b2f36"
_GRID = "#eceef1"
_COLOURS = (
    "#c2410c",
    "#1d4ed8",
    "#15803d",
    "#7e22ce",
    "#0891b2",
    "#db2777",
    "#475569",
    "#ca8a04",
    "#78350f",
    "#4d7c0f",
)
_BARS_MAX = 25


def plot(client: Mapping[str, str], topic: str, draw: Draw, image: Path) -> None:
    """Draw the last values of a topic. Raises JobError if there are none, or the topic cannot be read."""
    values = last_values(client, topic)
    if not values:
        raise JobError(f"--plot: {topic} has no records with a key")
    save(draw(values), image)


def last_values(client: Mapping[str, str], topic: str) -> Values:
    """Return the last value of each key as text; tombstones remove theirs."""
    found: dict[str, str] = {}
    for message in stored_messages(client, topic):
        if message.key() is not None and message.value() is None:
            found.pop(message.key().decode(), None)
        elif message.key() is not None:
            found[message.key().decode()] = message.value().decode()
    return found


def save(picture: Picture, image: Path) -> None:
    """Write a picture as a PNG."""
    figure = Figure(figsize=(10, 5.2), dpi=120, layout="constrained", facecolor="white")
    axes = figure.subplots()
    if picture.bars is not None:
        _draw_bars(axes, picture.bars, is_ranked=picture.is_ranked)
        axes.set_xlabel(picture.unit, color=_INK)
    if picture.lines is not None:
        _draw_lines(axes, picture.lines)
        axes.set_ylabel(picture.unit, color=_INK)
    if picture.bands is not None:
        _draw_bands(axes, picture.bands)
        axes.set_ylabel(picture.unit, color=_INK)
    axes.set_title(picture.title, loc="left", color=_INK, fontsize=12, fontweight="bold", pad=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=_INK, length=0)
    axes.set_axisbelow(True)
    image.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(image)


def _draw_bars(axes: Axes, bars: Mapping[str, float], *, is_ranked: bool) -> None:
    shown = sorted(bars.items(), key=lambda bar: (-bar[1], bar[0])) if is_ranked else list(bars.items())
    shown = shown[:_BARS_MAX]
    drawn = axes.barh([name for name, _ in shown], [value for _, value in shown], color=_COLOURS[0], height=0.72)
    axes.bar_label(drawn, [f"{value:,.4g}" for _, value in shown], padding=4, color=_INK, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.08, y=0.01)
    axes.grid(axis="x", color=_GRID)


def _draw_lines(axes: Axes, lines: Series) -> None:
    for name, colour in _coloured(lines):
        points = sorted(lines[name])
        marker = "o" if len(points) < 3 else ""
        times, values = date_axis.date2num([time for time, _ in points]), [value for _, value in points]
        axes.plot(times, values, color=colour, label=name, linewidth=1.4, marker=marker)
    _finish_time_axis(axes)


def _draw_bands(axes: Axes, bands: Bands) -> None:
    for name, colour in _coloured(bands):
        points = sorted(bands[name])
        times = date_axis.date2num([time for time, _, _ in points])
        low, high = [low for _, low, _ in points], [high for _, _, high in points]
        axes.fill_between(times, low, high, color=colour, alpha=0.25, linewidth=0, label=name)
        for edge in (low, high):
            axes.plot(times, edge, color=colour, linewidth=1.2)
    _finish_time_axis(axes)


def _coloured(series: Mapping[str, Sequence[object]]) -> list[tuple[str, str]]:
    """Return the names of the longest series, each with its colour."""
    longest = sorted(series, key=lambda name: (-len(series[name]), name))[: len(_COLOURS)]
    return list(zip(sorted(longest), _COLOURS, strict=False))


def _finish_time_axis(axes: Axes) -> None:
    locator = date_axis.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(date_axis.ConciseDateFormatter(locator))
    axes.grid(axis="y", color=_GRID)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
