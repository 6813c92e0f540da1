"""Build source text: the part that the generators of readers and writers share.

Owns lines, indentation, the global names of the text, and pending runs of fixed-width values. Must not know how a run
is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import NamedTuple

from protocol.schema import ZERO_UUID, Field, Struct

# Lists of up to this many numbers (replicas, partitions) use precompiled layouts, which are twice as fast.
SHORT_LIST = 16


class Plan(NamedTuple):
    """The fields of a struct in one version; the tagged ones by rising tag."""

    untagged: list[Field]
    tagged: list[Field]
    absent: list[Field]


def plan(cls: type[Struct], version: int) -> Plan:
    present = [field for field in cls.__fields__ if field.is_in(version)]
    return Plan(
        untagged=[field for field in present if field.tag is None],
        tagged=sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0),
        absent=[field for field in cls.__fields__ if not field.is_in(version)],
    )


def literal(default: object) -> str:
    """Return the source text of a declared default. An empty list is a new list each time the text runs."""
    return "ZERO_UUID" if default == ZERO_UUID else repr(default)


class Source:
    """The lines of one function. Adjacent fixed-width values are collected in `run` until another line is written.

    `place` is the field that the next lines are about, and `places` holds that of each line, so that an error in line n
    is attributed to a field.
    """

    def __init__(self, names: dict[str, object]) -> None:
        self.names = names
        self.run: list[tuple[str, str]] = []
        self.place = ""
        self.places: list[str] = [""]
        self._lines: list[str] = []
        self._indent = ""

    def add(self, *lines: str) -> None:
        self._lines += [self._indent + line for line in lines]
        self.places += [self.place] * len(lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add `head`, and indent the lines added inside as its body."""
        self.add(head)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def layout(self, verb: str, letters: str) -> str:
        """Return the global name of `pack` or `unpack_from` (the verb) for a run of `struct` letters."""
        name = f"{verb}_{letters.replace('?', 'bool')}"
        self.names[name] = getattr(Layout(f">{letters}"), verb)
        return name

    def layouts(self, verb: str, letter: str) -> str:
        """Return the global name of a table of `pack` or `unpack_from` for up to `SHORT_LIST` numbers, by length."""
        name = f"{verb}_many_{letter.replace('?', 'bool')}"
        self.names[name] = tuple(getattr(Layout(f">{size}{letter}"), verb) for size in range(SHORT_LIST + 1))
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
