"""Bytes of keys, values and headers as text, under the names of Java's deserializers.

Owns one function per name. Must not know where bytes come from or where text goes.
"""

import struct
from collections.abc import Callable, Mapping

from config.definition import text_of
from tools.base.plug_ins import load_plug_in

Deserializer = Callable[[bytes], bytes]
"""Returns the printed form of some bytes. Raises DeserializationError."""


class DeserializationError(Exception):
    """Bytes that the deserializer cannot read."""


def raw(data: bytes) -> bytes:
    """Return the bytes unchanged."""
    return data


def _string(data: bytes) -> bytes:
    return data.decode(errors="replace").encode()


def _void(data: bytes) -> bytes:
    raise DeserializationError("Data should be null for a VoidDeserializer.")


def _number(name: str, layout: str) -> Deserializer:
    fixed = struct.Struct(layout)

    def deserialize(data: bytes) -> bytes:
        if len(data) != fixed.size:
            raise DeserializationError(f"Size of data received by {name}Deserializer is not {fixed.size}")
        (value,) = fixed.unpack(data)
        return _shortest_float(value) if layout == ">f" else (text_of(value) or "").encode()

    return deserialize


def _shortest_float(value: float) -> bytes:
    """Return the shortest decimal of this 32-bit float, as Java prints it."""
    for digits in range(1, 10):
        candidate = float(f"{value:.{digits}g}")
        if struct.pack(">f", candidate) == struct.pack(">f", value):
            return (text_of(candidate) or "").encode()
    return str(value).encode()


_DESERIALIZERS: Mapping[str, Deserializer] = {
    "ByteArrayDeserializer": raw,
    "BytesDeserializer": raw,
    "ByteBufferDeserializer": raw,
    "StringDeserializer": _string,
    "UUIDDeserializer": _string,
    "IntegerDeserializer": _number("Integer", ">i"),
    "LongDeserializer": _number("Long", ">q"),
    "ShortDeserializer": _number("Short", ">h"),
    "FloatDeserializer": _number("Float", ">f"),
    "DoubleDeserializer": _number("Double", ">d"),
    "VoidDeserializer": _void,
}


def deserializer(name: str) -> Deserializer:
    """Return the deserializer of a Java class name, or an object of the class `module:Class`. Raises UsageError."""

    def built_in(function: Deserializer) -> Callable[[], Deserializer]:
        return lambda: function

    return load_plug_in(name, {key: built_in(function) for key, function in _DESERIALIZERS.items()}, "deserializer")()
