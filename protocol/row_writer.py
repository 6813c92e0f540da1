"""Writing responses that hold nothing but numbers by name, as those of Produce and OffsetCommit when all is well.

Owns the layout of such a response in one version, which follows from its declaration. Must not know what the numbers
mean, or how any other response is written (`protocol.writer`).

Such a message has one list of structs, each with a name and a list of structs of its own: topics and their partitions.
The inner ones, the elements, begin with numbers. Every other field has its default.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from struct import Struct as Layout
from typing import Any

from protocol.codec import encode, encode_element
from protocol.schema import REQUIRED, Field, Struct, message_info
from protocol.source import plan
from protocol.writer import SHORT_LENGTHS, long_string_length, uvarint

_COUNT = Layout(">i")
_STRING_LENGTH = Layout(">h")

Group = tuple[str, Sequence[bytes]]
"""A name, and its elements."""


class RowWriter:
    """The writer of one version of one response."""

    __slots__ = ("_is_flexible", "_number_count", "_pack", "_prefix", "_suffix", "_tail")

    def __init__(self, cls: type[Any], version: int) -> None:
        """TypeError when `cls` is no message of this kind; ValueError when it has no such version."""
        groups = _only_list(cls, version)
        assert groups.struct is not None
        elements = _only_list(groups.struct, version)
        assert elements.struct is not None
        letters = _leading_letters(elements.struct, version)
        whole = encode_element(cls, _with_defaults(elements.struct), version)
        numbers = Layout(">" + letters)
        self._is_flexible = message_info(cls).is_flexible_in(version)
        self._tail = whole[numbers.size :]
        self._pack = Layout(f">{letters}{len(self._tail)}s").pack
        self._number_count = len(letters)
        empty = b"".join(encode(cls(**{groups.name: []}), version))
        count_size = 1 if self._is_flexible else _COUNT.size
        prefix_size = Layout(">" + _leading_letters(cls, version)).size
        self._prefix, self._suffix = empty[:prefix_size], empty[prefix_size + count_size :]

    def write_element(self, *numbers: int) -> bytes:
        """The bytes of an element. `numbers` are all that the newest version has, in the order of declaration."""
        return self._pack(*numbers[: self._number_count], self._tail)

    def write(self, groups: Sequence[Group]) -> bytes:
        """The bytes of the message, without a header."""
        parts = [self._prefix, self._count(len(groups))]
        for name, elements in groups:
            parts += (self._string(name), self._count(len(elements)), *elements)
            if self._is_flexible:
                parts.append(b"\0")
        parts.append(self._suffix)
        return b"".join(parts)

    def _count(self, count: int) -> bytes:
        if not self._is_flexible:
            return _COUNT.pack(count)
        return SHORT_LENGTHS[count + 1] if count < 127 else uvarint(count + 1)

    def _string(self, text: str) -> bytes:
        encoded = text.encode()
        size = len(encoded)
        if not self._is_flexible:
            return _STRING_LENGTH.pack(size) + encoded
        return (SHORT_LENGTHS[size + 1] if size < 127 else long_string_length(size + 1)) + encoded


@cache
def row_writer(cls: type[Any], version: int) -> RowWriter:
    """The one writer of `cls` in `version`: see `RowWriter`."""
    return RowWriter(cls, version)


def grouped(rows: Iterable[tuple[str, bytes]]) -> list[Group]:
    """Elements with the names that they belong to; those that follow one another under one name are a group."""
    groups: list[tuple[str, list[bytes]]] = []
    last = None
    for name, element in rows:
        if name != last:
            groups.append((name, []))
            last = name
        groups[-1][1].append(element)
    return groups  # type: ignore[return-value]


def _only_list(cls: type[Struct], version: int) -> Field:
    lists = [field for field in plan(cls, version).untagged if field.is_array and field.struct is not None]
    if len(lists) != 1:
        raise TypeError(f"{cls.__name__} v{version} has {len(lists)} lists of structs, expected one")
    return lists[0]


def _leading_letters(cls: type[Struct], version: int) -> str:
    """The `struct` letters of the numbers with which a struct begins."""
    letters = ""
    for field in plan(cls, version).untagged:
        if field.is_array or field.wire is None or not field.wire.letter:
            break
        letters += field.wire.letter
    return letters


def _with_defaults(cls: type[Struct]) -> Struct:
    return cls(**{field.name: 0 for field in cls.__fields__ if field.default is REQUIRED})
