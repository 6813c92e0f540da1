"""The results as a table (for a person at a terminal, in a pipe, or in Markdown), as JSON and as a picture.

Owns the layout of results. Must not know the origin of values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.measures import Row, as_json

HEADINGS = ("case", "measure", "Milena", "Kafka", "ratio", "target", "")
VERDICTS: Mapping[bool | None, str] = {True: "met", False: "MISSED", None: ""}
STYLES: Mapping[bool | None, str] = {True: "green", False: "bold red", None: "dim"}
CLIENT_IS_LIMIT = 0.9
FOOTNOTE = "* The client computed nearly all of the time: the faster server may be faster than this."


def show(rows: Sequence[Row], console: Console) -> None:
    if console.is_terminal:
        console.print(_rich_table(rows))
    else:
        console.out(plain_table(rows), highlight=False)
    if any(row.client_share >= CLIENT_IS_LIMIT for row in rows):
        console.print(FOOTNOTE, highlight=False, soft_wrap=True)


def plain_table(rows: Sequence[Row]) -> str:
    cells = [HEADINGS, *_cells(rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def markdown_table(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, ("---",) * len(HEADINGS), *_cells(rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_json(rows: Sequence[Row], facts: Mapping[str, object], path: Path) -> None:
    path.write_text(json.dumps({**facts, "results": as_json(rows)}, indent=1) + "\n")


def _rich_table(rows: Sequence[Row]) -> Table:
    table = Table(title="Milena and Apache Kafka")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in ("Milena", "Kafka", "ratio") else "left")
    for row, cells in zip(rows, _cells(rows), strict=True):
        table.add_row(
            *cells, style=STYLES[row.is_met] if row.is_met is False else None, end_section=_is_last(row, rows)
        )
    return table


def _is_last(row: Row, rows: Sequence[Row]) -> bool:
    return [other for other in rows if other.case == row.case][-1] is row


def _cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [
        (
            _title(row) if _is_first(row, rows) else "",
            f"{row.measure.name}, {row.measure.unit}",
            _values(row.milena, row.measure.decimals),
            _values(row.kafka, row.measure.decimals),
            "" if row.ratio is None else f"{row.ratio:.2f} x",
            row.measure.target_text(),
            VERDICTS[row.is_met],
        )
        for row in rows
    ]


def _is_first(row: Row, rows: Sequence[Row]) -> bool:
    return next(other for other in rows if other.case == row.case) is row


def _title(row: Row) -> str:
    return row.title + (" *" if row.client_share >= CLIENT_IS_LIMIT else "")


def _values(values: Sequence[float], decimals: int) -> str:
    """Return the median, and in brackets the range over the rounds."""
    if not values:
        return "-"
    text = f"{median(values):,.{decimals}f}"
    if len(values) > 1:
        text += f" [{min(values):,.{decimals}f}-{max(values):,.{decimals}f}]"
    return text
