"""Reads the metrics of a push: OpenTelemetry's `MetricsData`, of which clients send sums and gauges.

Owns which of its fields are read. Pure. Must not know who pushed them. Histograms and summaries, which no client of
Kafka sends, are skipped.

    MetricsData      1 resource metrics*
    ResourceMetrics  2 scope metrics*
    ScopeMetrics     2 metrics*
    Metric           1 name, 5 gauge or 7 sum
    Gauge, Sum       1 points*, and of a sum: 2 temporality (1: delta, 2: cumulative)
    NumberDataPoint  4 double or 6 integer, 7 attributes*
    KeyValue         1 key, 2 value: 1 text or 3 integer
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from broker.telemetry.client_instances import TEXT_LENGTH_MAX, Point
from protocol.protobuf import Value, fields

POINTS_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 8

_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_NAME, _GAUGE, _SUM = 1, 5, 7
_POINTS, _TEMPORALITY, _DELTA = 1, 2, 1
_AS_DOUBLE, _AS_INTEGER, _POINT_ATTRIBUTES = 4, 6, 7
_KEY, _VALUE, _TEXT_VALUE, _INTEGER_VALUE = 1, 2, 1, 3

_DOUBLE, _INTEGER = Struct("<d"), Struct("<q")


def points_of(data: bytes) -> list[Point]:
    """Return the points of a push. Raises ValueError for bytes that are no `MetricsData`, or have too many points."""
    points: list[Point] = []
    for resource in _messages(memoryview(data), _RESOURCE_METRICS):
        for scope in _messages(resource, _SCOPE_METRICS):
            for metric in _messages(scope, _METRICS):
                for point in _points(metric):
                    if len(points) == POINTS_MAX:
                        raise ValueError(f"more than {POINTS_MAX} points")
                    points.append(point)
    return points


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, _, value in fields(data):
        if number == wanted:
            yield _bytes(value)


def _points(metric: memoryview) -> Iterator[Point]:
    name, data = "", None
    for number, _, value in fields(metric):
        if number == _NAME:
            name = _text(value)
        elif number in (_GAUGE, _SUM):
            data = _bytes(value)
    if data is None:
        return
    temporality, points = 0, []
    for number, _, value in fields(data):
        if number == _POINTS:
            points.append(_bytes(value))
        elif number == _TEMPORALITY and isinstance(value, int):
            temporality = value
    for point in points:
        amount, attributes = _read_point(point)
        if amount is not None:
            yield Point(name, attributes, amount, temporality == _DELTA)


def _read_point(point: memoryview) -> tuple[float | None, str]:
    amount: float | None = None
    attributes: dict[str, str] = {}
    for number, wire_type, value in fields(point):
        if number == _POINT_ATTRIBUTES:
            if len(attributes) < ATTRIBUTES_MAX:
                key, text = _attribute(_bytes(value))
                attributes[key] = text
        elif number in (_AS_DOUBLE, _AS_INTEGER):
            if wire_type != 1 or not isinstance(value, bytes):
                raise ValueError(f"a number of wire type {wire_type}")
            (amount,) = (_DOUBLE if number == _AS_DOUBLE else _INTEGER).unpack(value)
    return amount, ",".join(f"{key}={attributes[key]}" for key in sorted(attributes))


def _attribute(data: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, _, value in fields(data):
        if number == _KEY:
            key = _text(value)
        elif number == _VALUE:
            for kind, _, inner in fields(_bytes(value)):
                if kind == _TEXT_VALUE:
                    text = _text(inner)
                elif kind == _INTEGER_VALUE and isinstance(inner, int):
                    text = str(inner - (1 << 64) if inner >= 1 << 63 else inner)
    return key, text


def _bytes(value: Value) -> memoryview:
    if isinstance(value, memoryview):
        return value
    raise ValueError("a number where a message or text was expected")


def _text(value: Value) -> str:
    return str(_bytes(value)[: 4 * TEXT_LENGTH_MAX], "utf-8", "replace")[:TEXT_LENGTH_MAX]
