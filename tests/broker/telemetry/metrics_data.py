"""Writes the metrics of a push, as clients do (OpenTelemetry's `MetricsData`)."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def field(number: int, content: bytes | int) -> bytes:
    """A field with the bytes of a text or message, or with a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(key: str, value: str | int) -> bytes:
    inner = field(1, value.encode()) if isinstance(value, str) else field(3, value & (1 << 64) - 1)
    return field(1, key.encode()) + field(2, inner)


def point(value: float, attributes: Mapping[str, str | int]) -> bytes:
    number = b"\x31" + struct.pack("<q", value) if isinstance(value, int) else b"\x21" + struct.pack("<d", value)
    times = b"\x11" + bytes(8) + b"\x19" + bytes(8)
    return times + number + b"".join(field(7, attribute(*pair)) for pair in attributes.items())


def metric(name: str, value: float, kind: int = 5, temporality: int = 0, **attributes: str | int) -> bytes:
    """A metric with one point; `kind` 5 is a gauge, 7 a sum."""
    data = field(1, point(value, attributes)) + (field(2, temporality) if temporality else b"")
    return field(1, name.encode()) + field(kind, data)


def metrics_data(*metrics: bytes) -> bytes:
    scope = field(1, field(1, b"scope")) + b"".join(field(2, each) for each in metrics)
    return field(1, field(1, field(1, attribute("client_rack", "r1"))) + field(2, scope))
