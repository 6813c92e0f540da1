"""The dumb twin of the compiled codec: walks the declarations one field and one value at a time, with no fast path."""

import struct
from io import BytesIO
from typing import Any
from uuid import UUID

from protocol.errors import Malformed
from protocol.schema import Field, Struct, message_info


def read(cls: type, version: int, data: bytes) -> Any:
    source = BytesIO(data)
    info = message_info(cls)
    message = _read_struct(cls, version, info.is_flexible_in(version), source)
    if source.read(1) and not info.is_request:
        raise Malformed("bytes after a response")
    return message


def write(message: Any, version: int) -> bytes:
    return _write_struct(message, version, message_info(type(message)).is_flexible_in(version))


def _read_struct(cls: type[Struct], version: int, flexible: bool, source: BytesIO) -> Any:
    values = {}
    for field in cls.__fields__:
        if not field.is_in(version) or field.tag is not None:
            values[field.name] = [] if field.default == [] else field.default
        else:
            values[field.name] = _read_field(field, version, flexible, source)
    tags = {field.tag: field for field in cls.__fields__ if field.is_in(version) and field.tag is not None}
    previous = -1
    for _ in range(_read_uvarint(source) if flexible else 0):
        tag, data = _read_uvarint(source), BytesIO(_exactly(source, _read_uvarint(source)))
        if tag <= previous:
            raise Malformed("tags must rise")
        previous = tag
        if tag in tags:
            values[tags[tag].name] = _read_field(tags[tag], version, flexible, data)
            if data.read(1):
                raise Malformed("a tag must fill its size")
    return cls(**values)


def _read_field(field: Field, version: int, flexible: bool, source: BytesIO) -> Any:
    nullable = field.is_nullable_in(version)
    if not field.is_array:
        return _read_element(field, version, flexible, nullable, source)
    count = _read_length("i", flexible, nullable, source)
    return None if count is None else [_read_element(field, version, flexible, False, source) for _ in range(count)]


def _read_element(field: Field, version: int, flexible: bool, nullable: bool, source: BytesIO) -> Any:
    if field.struct is not None:
        if nullable and _check_marker(_exactly(source, 1)):
            return None
        return _read_struct(field.struct, version, flexible, source)
    assert field.wire is not None
    if field.wire.letter:
        layout = struct.Struct(">" + field.wire.letter)
        return layout.unpack(_exactly(source, layout.size))[0]
    if field.wire.name == "uuid":
        return UUID(bytes=_exactly(source, 16))
    size = _read_length("h" if field.wire.name == "string" else "i", flexible, nullable, source)
    if size is None:
        return None
    if field.wire.name != "string":
        return _exactly(source, size)
    if size > 0x7FFF:
        raise Malformed("a string is at most 32767 bytes")
    try:
        return _exactly(source, size).decode()
    except UnicodeDecodeError as error:
        raise Malformed("strings are UTF-8") from error


def _read_length(letter: str, flexible: bool, nullable: bool, source: BytesIO) -> int | None:
    if flexible:
        length = _read_uvarint(source) - 1
    else:
        (length,) = struct.unpack(">" + letter, _exactly(source, struct.calcsize(letter)))
    if length == -1 and nullable:
        return None
    if length < 0:
        raise Malformed("a length below zero")
    return int(length)


def _read_uvarint(source: BytesIO) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = _exactly(source, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                break
            return value
    raise Malformed("a varint above 31 bits")


def _check_marker(marker: bytes) -> bool:
    if marker not in (b"\x01", b"\xff"):
        raise Malformed("a struct is marked 1 or -1")
    return marker == b"\xff"


def _exactly(source: BytesIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise Malformed("bytes are missing")
    return data


def _write_struct(value: Struct, version: int, flexible: bool) -> bytes:
    out = b""
    tags: dict[int, bytes] = {}
    for field in value.__fields__:
        item = getattr(value, field.name)
        if not field.is_in(version):
            continue
        if field.tag is None:
            out += _write_field(field, item, version, flexible)
        elif item != field.default:
            tags[field.tag] = _write_field(field, item, version, flexible)
    if flexible:
        out += _write_uvarint(len(tags))
        for tag, data in sorted(tags.items()):
            out += _write_uvarint(tag) + _write_uvarint(len(data)) + data
    return out


def _write_field(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    nullable = field.is_nullable_in(version)
    if not field.is_array:
        return _write_element(field, value, version, flexible, nullable)
    if value is None:
        return _write_length("i", flexible, -1)
    elements = (_write_element(field, element, version, flexible, False) for element in value)
    return _write_length("i", flexible, len(value)) + b"".join(elements)


def _write_element(field: Field, value: Any, version: int, flexible: bool, nullable: bool) -> bytes:
    if field.struct is not None:
        if value is None:
            return b"\xff"
        return (b"\x01" if nullable else b"") + _write_struct(value, version, flexible)
    assert field.wire is not None
    if field.wire.letter:
        return struct.pack(">" + field.wire.letter, value)
    if field.wire.name == "uuid":
        return bytes(value.bytes)
    letter = "h" if field.wire.name == "string" else "i"
    if value is None:
        return _write_length(letter, flexible, -1)
    data = value.encode() if field.wire.name == "string" else bytes(value)
    return _write_length(letter, flexible, len(data)) + data


def _write_length(letter: str, flexible: bool, length: int) -> bytes:
    return _write_uvarint(length + 1) if flexible else struct.pack(">" + letter, length)


def _write_uvarint(value: int) -> bytes:
    low = value & 0x7F
    return bytes([low]) if value < 0x80 else bytes([low | 0x80]) + _write_uvarint(value >> 7)
