"""Source text in the making: what the writers of readers and writers (`protocol.reader`, `protocol.writer`) share.

Owns lines, indentation, the global names the text will see, and pending runs of fixed-width values. Must not know
what is done with a run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import NamedTuple

from protocol.schema import ZERO_UUID, Field, Struct

# Lists of numbers up to this size (replicas, partitions) are packed by layouts made beforehand, twice as fast.
SHORT_LIST = 16


class Plan(NamedTuple):
    """The fields of a struct as one version sees them; the tagged ones by rising tag."""

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
    """How source text says a declared default. An empty list comes out fresh wherever the text runs."""
    return "ZERO_UUID" if default == ZERO_UUID else repr(default)


class Source:
    """Lines of one function. Neighbouring fixed-width values wait in `run` until something else is written.

    `place` is what the lines that are added next deal with, and `places` that of each line, by which an error in line n
    is traced back to a field.
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
        """The lines added inside are the body of `head`."""
        self.add(head)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def layout(self, verb: str, letters: str) -> str:
        """The global name of `pack` or `unpack_from` (the verb) for a run of `struct` letters."""
        name = f"{verb}_{letters.replace('?', 'bool')}"
        self.names[name] = getattr(Layout(f">{letters}"), verb)
        return name

    def layouts(self, verb: str, letter: str) -> str:
        """The global name of a table of `pack` or `unpack_from` for lists of numbers, by length up to `SHORT_LIST`."""
        name = f"{verb}_many_{letter.replace('?', 'bool')}"
        self.names[name] = tuple(getattr(Layout(f">{size}{letter}"), verb) for size in range(SHORT_LIST + 1))
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
