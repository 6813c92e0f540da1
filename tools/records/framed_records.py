"""Self-describing records: a frame version, a type, a version, and the fields.

Owns the frame, and the JSON that Kafka's tools print for fields. Must not know which types exist. The three numbers
of the frame are unsigned varints.
"""

import math
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from protocol.codec import decode
from protocol.errors import Malformed
from protocol.ids import id_text
from protocol.reader import read_uvarint
from protocol.schema import Field, Struct, message_info
from tools.base.java_names import json_text

_FRAME_VERSION: Final = 1
_INT16_MAX: Final = (1 << 15) - 1
_PLAIN_EXPONENTS: Final = range(-3, 7)  # outside these limits Java prints a double with an exponent


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


def fields_json(fields: Struct, version: int) -> str:
    """Return the fields of `version` under the names of Kafka's schemas; tagged ones unless they have the default."""
    shown = (
        f'"{_camel_case(field.name)}":{_field_json(field, getattr(fields, field.name), version)}'
        for field in fields.__fields__
        if field.is_in(version) and not (field.tag is not None and getattr(fields, field.name) == field.default)
    )
    return f"{{{','.join(shown)}}}"


def _field_json(field: Field, value: Any, version: int) -> str:
    if value is None:
        return "null"
    if field.is_array:
        return f"[{','.join(_element_json(field, element, version) for element in value)}]"
    return _element_json(field, value, version)


def _element_json(field: Field, value: Any, version: int) -> str:
    if field.wire is None:
        return fields_json(value, version)
    if field.wire.name == "uuid":
        return json_text(id_text(value))
    if field.wire.name == "bytes":
        return json_text(b64encode(value).decode())
    if field.wire.name == "float64":
        return _double_json(value)
    return json_text(value)


def _double_json(value: float) -> str:
    """Return the text of a double as Java prints it."""
    if not math.isfinite(value):
        return json_text("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    exponent = Decimal(repr(value)).adjusted()
    if value == 0 or exponent in _PLAIN_EXPONENTS:
        return repr(value)
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent}"


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
