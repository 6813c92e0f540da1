"""Wrong values for every field of a message, one field at a time.

Owns which values are tried for which type. Must not know what a field means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from protocol.records.batch import HEADER_SIZE, read_header
from protocol.records.builder import assemble
from protocol.schema import REQUIRED, ZERO_UUID, Field, Struct
from tests.fuzz.valid_requests import batch, build

MANY = "many"

_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


class Mutant(NamedTuple):
    """A valid request with one field changed. `path` is like `topics.partitions.index`, `name` says what it holds."""

    path: str
    name: str
    request: Any


def mutants(cls: type[Struct], values: dict[str, Any], version: int) -> Iterator[Mutant]:
    """Every change of every field that the version has, tagged and nested ones included."""
    for path, name, changed in changes(cls, values, version):
        yield Mutant(path, name, build(cls, changed, version))


def changes(
    cls: type[Struct], values: dict[str, Any], version: int, prefix: str = ""
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, name, values) of each: the same before a message is built of them."""
    for field in cls.__fields__:
        if not field.is_in(version):
            continue
        path = f"{prefix}{field.name}"
        for name, value in _wrong_values(field, values.get(field.name, field.default), version):
            yield path, name, {**values, field.name: value}
        inner = values.get(field.name)
        if field.struct is None or not inner:
            continue
        first = inner[0] if field.is_array else inner
        for inner_path, name, changed in changes(field.struct, first, version, f"{path}."):
            yield inner_path, name, {**values, field.name: [changed, *inner[1:]] if field.is_array else changed}


def _wrong_values(field: Field, value: Any, version: int) -> Iterator[tuple[str, Any]]:
    if field.is_nullable_in(version):
        yield "null", None
    if not field.is_array:
        if field.wire is not None:
            yield from _wrong_primitives(field.wire.name, value)
        elif field.struct is not None and all(inner.default is not REQUIRED for inner in field.struct.__fields__):
            yield "defaults", {}
        return
    yield "empty", []
    if value:
        yield "twice", value * 2
        yield MANY, value * 150
    if field.wire is not None:
        for name, element in _wrong_primitives(field.wire.name, value[0] if value else None):
            yield name, [element]


def _wrong_primitives(wire: str, value: Any) -> Iterator[tuple[str, Any]]:
    for name, wrong in _PRIMITIVES[wire] if wire in _PRIMITIVES else _integers(wire):
        if wrong != value:
            yield name, wrong


def _integers(wire: str) -> list[tuple[str, Any]]:
    bits = _BITS[wire]
    if wire.startswith("u"):
        return [("0", 0), ("highest", (1 << bits) - 1)]
    highest = (1 << bits - 1) - 1
    return [(str(number), number) for number in (0, 1, -1, -2, 7)] + [
        ("lowest", -highest - 1),
        ("highest", highest),
    ]


def recounted(count: int) -> bytes:
    """The batch of two records with another count of them."""
    header = read_header(batch())
    return assemble(header._replace(records_count=count, last_offset_delta=count - 1), batch()[HEADER_SIZE:])


_PRIMITIVES: dict[str, list[tuple[str, Any]]] = {
    "boolean": [("true", True), ("false", False)],
    "float64": [
        (repr(number), number) for number in (0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"), 5e-324)
    ],
    "uuid": [("zero", ZERO_UUID), ("unknown", UUID(int=7 << 70))],
    "string": [
        ("empty", ""),
        ("unknown", "unknown"),
        ("dots", ".."),
        ("forbidden", "a/b c\0"),
        ("not ascii", "naïve-тема"),
        ("colon", ":,=*"),
        ("internal", "__consumer_offsets"),
        ("long", "x" * 250),
        ("longest", "x" * 32767),
    ],
    "bytes": [("empty", b""), ("unknown", b"unknown"), ("long", bytes(100_000))],
    "records": [
        ("empty", b""),
        ("one byte", b"\0"),
        ("cut off", batch()[:-1]),
        ("wrong crc", batch()[:-1] + b"?"),
        ("two batches", batch() * 2),
        ("not from 0", batch(base_offset=1)),
        ("control", batch(is_control=True)),
        ("transactional", batch(is_transactional=True, producer_id=77, producer_epoch=0, base_sequence=0)),
        ("no sequence", batch(producer_id=77, producer_epoch=0)),
        ("nonsense", b"\xff" * 200),
        ("count too high", recounted(3)),
        ("count too low", recounted(1)),
        ("bad record", assemble(read_header(batch()), b"\x0c\0\0\0\x7e\1\0" * 2)),
    ],
}
