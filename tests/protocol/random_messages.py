"""Random messages of any declared class and version, from a seeded source, with a liking for edges."""

from random import Random
from typing import Any
from uuid import UUID

from protocol.api import APIS
from protocol.schema import Field, Struct, message_info

MESSAGES: list[type] = [cls for api in APIS.values() for cls in (api.request, api.response)]

_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
_STRINGS = ("", "a", "my-topic", "naïve-тема-主题", "x" * 126, "x" * 127, "x" * 128, "é" * 300)


def versions_of(cls: type) -> range:
    return message_info(cls).versions


def random_message(cls: type, version: int, random: Random, *, list_size_max: int = 3) -> Any:
    """An object whose fields of this version hold random values, and whose other fields hold their defaults."""
    values = {
        field.name: _random_field(field, version, random, list_size_max)
        for field in cls.__fields__  # type: ignore[attr-defined]
        if field.is_in(version)
    }
    return cls(**values)


def mutated(data: bytes, random: Random) -> bytes:
    """The bytes with up to three changed, inserted or removed places."""
    mutant = bytearray(data or b"\0")
    for _ in range(random.randint(1, 3)):
        position = random.randrange(len(mutant))
        kind = random.randrange(3)
        if kind == 0:
            mutant[position] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif kind == 1:
            mutant[position:position] = random.randbytes(random.randint(1, 4))
        elif len(mutant) > 1:
            del mutant[position]
    return bytes(mutant)


def _random_field(field: Field, version: int, random: Random, list_size_max: int) -> Any:
    is_absent_tag = field.tag is not None and random.random() < 0.4
    if is_absent_tag:
        return [] if field.default == [] else field.default
    if field.is_nullable_in(version) and random.random() < 0.25:
        return None
    if not field.is_array:
        return _random_element(field, version, random, list_size_max)
    is_long = field.wire is not None and random.random() < 0.05
    count = random.choice((16, 17, 130)) if is_long else random.randint(0, list_size_max)
    return [_random_element(field, version, random, list_size_max) for _ in range(count)]


def _random_element(field: Field, version: int, random: Random, list_size_max: int) -> Any:
    if field.struct is not None:
        return _random_struct(field.struct, version, random, list_size_max)
    assert field.wire is not None
    name = field.wire.name
    if name in _BITS:
        return _random_int(name, random)
    if name == "boolean":
        return random.random() < 0.5
    if name == "float64":
        return random.choice((0.0, -1.5, random.uniform(-1e300, 1e300)))
    if name == "uuid":
        return UUID(int=random.choice((0, random.getrandbits(128))))
    if name == "string":
        return random.choice(_STRINGS)
    return random.randbytes(random.choice((0, 1, 40, 127, 128, 2000)))


def _random_struct(cls: type[Struct], version: int, random: Random, list_size_max: int) -> Any:
    return random_message(cls, version, random, list_size_max=list_size_max)


def _random_int(name: str, random: Random) -> int:
    bits = _BITS[name]
    low, high = (0, (1 << bits) - 1) if name.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return random.choice((0, -1 if low else 1, low, high, random.randint(low, high)))
