"""Self-describing records: a frame version, a type, a version, and the fields.

Owns the frame. Must not know which types exist. The three numbers of the frame are unsigned varints.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.codec import decode, encode
from protocol.errors import Malformed
from protocol.reader import read_uvarint
from protocol.schema import Struct, message_info
from protocol.writer import uvarint

_FRAME_VERSION: Final = 1
_INT16_MAX: Final = (1 << 15) - 1


class FramedRecord(NamedTuple):
    """The content of a frame; `fields` has the class of its type in the table."""

    version: int
    fields: Struct


def read_framed(data: bytes | None, classes: Mapping[int, type]) -> FramedRecord:
    """Read a frame. Raises Malformed with Kafka's text."""
    buffer = data or b""
    frame_version, position = _number(buffer, 0, "frame version")
    if frame_version == 0:
        raise Malformed(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != _FRAME_VERSION:
        raise Malformed(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    record_type, position = _number(buffer, position, "type")
    version, position = _number(buffer, position, "version")
    cls = classes.get(record_type)
    if cls is None:
        raise Malformed(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {record_type}"
        )
    try:
        if version not in message_info(cls).versions:
            raise Malformed(f"version {version}")
        return FramedRecord(version, decode(cls, version, buffer, position))
    except Malformed as error:
        raise Malformed(f"Failed to deserialize record with type {record_type}") from error


def _number(buffer: bytes, position: int, name: str) -> tuple[int, int]:
    try:
        value, position = read_uvarint(buffer, position)
    except (IndexError, Malformed):
        raise Malformed(f"Error while reading {name}") from None
    if value > _INT16_MAX:
        raise Malformed(f"Value for {name} was too large.")
    return value, position


def framed(record_type: int, version: int, fields: object) -> bytes:
    """Return a frame that `read_framed` reads."""
    numbers = b"".join(map(uvarint, (_FRAME_VERSION, record_type, version)))
    return b"".join([numbers, *encode(fields, version)])
