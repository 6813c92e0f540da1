"""Tables of Kafka's newer tools: each column as wide as its widest cell, with a tab after each.

Pure; the caller prints the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def padded_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table, its headings first."""
    lines = [headings, *([str(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        yield "".join(f"{text:<{width}}\t" for text, width in zip(line, widths, strict=True))
