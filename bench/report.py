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
from bench.names import KAFKA, MILENA, TITLES

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
    cells = [_headings(rows), *_cells(rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def markdown_table(rows: Sequence[Row]) -> str:
    headings = _headings(rows)
    lines = [headings, ("---",) * len(headings), *_cells(rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_json(rows: Sequence[Row], facts: Mapping[str, object], path: Path) -> None:
    path.write_text(json.dumps({**facts, "results": as_json(rows)}, indent=1) + "\n")


def _rich_table(rows: Sequence[Row]) -> Table:
    table = Table(title=f"Milena beside {TITLES[_reference(rows)]}")
    for heading in _headings(rows):
        table.add_column(heading, justify="right" if heading in (*TITLES.values(), "ratio") else "left")
    for row, cells in zip(rows, _cells(rows), strict=True):
        table.add_row(
            *cells, style=STYLES[row.is_met] if row.is_met is False else None, end_section=_is_last(row, rows)
        )
    return table


def _is_last(row: Row, rows: Sequence[Row]) -> bool:
    return [other for other in rows if other.case == row.case][-1] is row


def _headings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the headings; beside further peers the last names the best of all peers."""
    peers = _further_peers(rows)
    best = ("best peer",) if peers else ()
    titles = (TITLES[MILENA], TITLES[_reference(rows)], "ratio", *map(TITLES.get, peers), *best)
    return ("case", "measure", *titles, "target", "")


def _cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    peers = _further_peers(rows)
    return [
        (
            _title(row) if _is_first(row, rows) else "",
            f"{row.measure.name}, {row.measure.unit}",
            _values(row, MILENA),
            _values(row, _reference(rows)),
            _ratio(row, MILENA),
            *(f"{_values(row, name)} {_ratio(row, name)}".rstrip() for name in peers),
            *((_best_peer(row),) if peers else ()),
            row.measure.target_text(),
            VERDICTS[row.is_met],
        )
        for row in rows
    ]


def _further_peers(rows: Sequence[Row]) -> list[str]:
    """Return the servers that ran beside Milena and the one to which ratios refer."""
    shown = (MILENA, _reference(rows))
    return [name for name in TITLES if name not in shown and any(name in row.values for row in rows)]


def _reference(rows: Sequence[Row]) -> str:
    """Return the server to which ratios refer, or would refer if it had run."""
    return next((row.reference for row in rows if row.reference is not None), KAFKA)


def _best_peer(row: Row) -> str:
    if row.best_peer is None:
        return "-"
    return f"{TITLES[row.best_peer]} {_ratio(row, row.best_peer)}".rstrip()


def _ratio(row: Row, server: str) -> str:
    """Return the ratio of a server to the one to which ratios refer, if there is one."""
    ratio = row.ratio_of(server)
    return "" if ratio is None else f"{ratio:.2f} x"


def _is_first(row: Row, rows: Sequence[Row]) -> bool:
    return next(other for other in rows if other.case == row.case) is row


def _title(row: Row) -> str:
    return row.title + (" *" if row.client_share >= CLIENT_IS_LIMIT else "")


def _values(row: Row, server: str) -> str:
    """Return the median, and in brackets the range over the rounds."""
    values, decimals = row.values.get(server, ()), row.measure.decimals
    if not values:
        return "-"
    text = f"{median(values):,.{decimals}f}"
    if len(values) > 1:
        text += f" [{min(values):,.{decimals}f}-{max(values):,.{decimals}f}]"
    return text
