"""The file of offsets of a standalone worker: a Java `HashMap` of byte arrays, as Java serializes it.

Format: Java Object Serialization Specification, chapter 6. Only this one shape is read and written, byte by byte: no
class that the file names is looked up.

Owns the format. Must not know what keys and values mean.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from base.replaced_file import replace_file
from spark_jobs.connect.base.errors import ConnectError

_HEAD: Final = bytes.fromhex("aced0005")
_MAP: Final = bytes.fromhex(
    "737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f6164466163746f72"
) + bytes.fromhex("4900097468726573686f6c647870")
"""An object of a new class: java.util.HashMap with its serial version, and the fields loadFactor and threshold."""
_LOAD_FACTOR: Final = 0.75
_FIELDS: Final = struct.Struct(">fi")
_BLOCK: Final = struct.Struct(">BBii")
"""Block data of eight bytes: the capacity of the table and the number of entries."""
_BLOCK_DATA, _BLOCK_LENGTH, _END_BLOCK, _NULL = 0x77, 8, 0x78, 0x70
_ARRAY_CLASS: Final = bytes.fromhex("757200025b42acf317f8060854e0020000 7870".replace(" ", ""))
"""An array whose class byte[] is described here; later arrays refer to it."""
_ARRAY_AGAIN: Final = 0x75
_REFERENCE: Final = 0x71
_LENGTH: Final = struct.Struct(">i")
_FIRST_HANDLE: Final = 0x7E0000
# Handles count classes and objects in order: the class HashMap, the map, then the class byte[].
_BYTE_ARRAY_HANDLE: Final = struct.pack(">BI", _REFERENCE, _FIRST_HANDLE + 2)


def write_map(path: Path, entries: Mapping[bytes, bytes | None]) -> None:
    """Replace the file by one with these entries. Raises OSError."""
    capacity = 16
    while capacity * _LOAD_FACTOR < len(entries):
        capacity *= 2
    parts = [
        _HEAD,
        _MAP,
        _FIELDS.pack(_LOAD_FACTOR, int(capacity * _LOAD_FACTOR) if entries else 0),
        _BLOCK.pack(_BLOCK_DATA, _BLOCK_LENGTH, capacity, len(entries)),
    ]
    is_first = True
    for entry in entries.items():
        for each in entry:
            if each is None:
                parts.append(bytes([_NULL]))
                continue
            parts.append(_ARRAY_CLASS if is_first else bytes([_ARRAY_AGAIN]) + _BYTE_ARRAY_HANDLE)
            parts += [_LENGTH.pack(len(each)), each]
            is_first = False
    replace_file(path, b"".join([*parts, bytes([_END_BLOCK])]))


def read_map(path: Path) -> dict[bytes, bytes | None]:
    """Return the entries of the file; none if it is missing or empty.

    Raises ConnectError if it is not such a file, and OSError.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return _parse(content) if content else {}
    except (ValueError, struct.error, IndexError) as error:
        raise ConnectError(f"{path} is not a file of offsets of a standalone worker: {error}") from error


def _parse(content: bytes) -> dict[bytes, bytes | None]:
    start = len(_HEAD) + len(_MAP)
    if content[:start] != _HEAD + _MAP:
        raise ValueError("expected a serialized java.util.HashMap")
    position = start + _FIELDS.size
    kind, length, _capacity, count = _BLOCK.unpack_from(content, position)
    if (kind, length) != (_BLOCK_DATA, _BLOCK_LENGTH):
        raise ValueError(f"expected the number of entries at byte {position}")
    position += _BLOCK.size
    found: list[bytes | None] = []
    for _ in range(2 * count):
        item, position = _item(content, position)
        found.append(item)
    if content[position:] != bytes([_END_BLOCK]):
        raise ValueError(f"expected the end of the map at byte {position}")
    return {key: value for key, value in zip(found[::2], found[1::2], strict=True) if key is not None}


def _item(content: bytes, position: int) -> tuple[bytes | None, int]:
    if content[position] == _NULL:
        return None, position + 1
    for head in (_ARRAY_CLASS, bytes([_ARRAY_AGAIN]) + _BYTE_ARRAY_HANDLE):
        if content.startswith(head, position):
            (length,) = _LENGTH.unpack_from(content, position + len(head))
            begin = position + len(head) + _LENGTH.size
            if not 0 <= length <= len(content) - begin:
                raise ValueError(f"expected an array of bytes at byte {position}")
            return content[begin : begin + length], begin + length
    raise ValueError(f"expected an array of bytes at byte {position}")
