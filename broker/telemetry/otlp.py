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
"""In one push, with or without a number."""
FIELDS_MAX: Final = 200_000
"""In one push, on all levels. A point of a client takes about 5, and 4 more for each attribute."""
ATTRIBUTES_MAX: Final = 8

_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_NAME, _GAUGE, _SUM = 1, 5, 7
_POINTS, _TEMPORALITY, _DELTA = 1, 2, 1
_AS_DOUBLE, _AS_INTEGER, _POINT_ATTRIBUTES = 4, 6, 7
_KEY, _VALUE, _TEXT_VALUE, _INTEGER_VALUE = 1, 2, 1, 3

_DOUBLE, _INTEGER = Struct("<d"), Struct("<q")


def points_of(data: bytes) -> list[Point]:
    """Return the points of a push. Raises ValueError for bytes that are no `MetricsData`, or have too much in them."""
    return list(_Push().points(memoryview(data)))


class _Push:
    """Reads one push, and counts what it has read: a few compressed bytes may open to millions of empty fields."""

    def __init__(self) -> None:
        self._field_count = 0
        self._point_count = 0

    def points(self, data: memoryview) -> Iterator[Point]:
        for resource in self._messages(data, _RESOURCE_METRICS):
            for scope in self._messages(resource, _SCOPE_METRICS):
                for metric in self._messages(scope, _METRICS):
                    yield from self._points_of_metric(metric)

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int, Value]]:
        for each in fields(data):
            self._field_count += 1
            if self._field_count > FIELDS_MAX:
                raise ValueError(f"more than {FIELDS_MAX} fields")
            yield each

    def _messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, _, value in self._fields(data):
            if number == wanted:
                yield _bytes(value)

    def _points_of_metric(self, metric: memoryview) -> Iterator[Point]:
        name, data = "", None
        for number, _, value in self._fields(metric):
            if number == _NAME:
                name = _text(value)
            elif number in (_GAUGE, _SUM):
                data = _bytes(value)
        if data is None:
            return
        temporality, points = 0, []
        for number, _, value in self._fields(data):
            if number == _POINTS:
                self._point_count += 1
                if self._point_count > POINTS_MAX:
                    raise ValueError(f"more than {POINTS_MAX} points")
                points.append(_bytes(value))
            elif number == _TEMPORALITY and isinstance(value, int):
                temporality = value
        for point in points:
            amount, attributes = self._read_point(point)
            if amount is not None:
                yield Point(name, attributes, amount, temporality == _DELTA)

    def _read_point(self, point: memoryview) -> tuple[float | None, str]:
        amount: float | None = None
        attributes: dict[str, str] = {}
        for number, wire_type, value in self._fields(point):
            if number == _POINT_ATTRIBUTES:
                if len(attributes) < ATTRIBUTES_MAX:
                    key, text = self._attribute(_bytes(value))
                    attributes[key] = text
            elif number in (_AS_DOUBLE, _AS_INTEGER):
                if wire_type != 1 or not isinstance(value, bytes):
                    raise ValueError(f"a number of wire type {wire_type}")
                (amount,) = (_DOUBLE if number == _AS_DOUBLE else _INTEGER).unpack(value)
        return amount, ",".join(f"{key}={attributes[key]}" for key in sorted(attributes))

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        key = text = ""
        for number, _, value in self._fields(data):
            if number == _KEY:
                key = _text(value)
            elif number == _VALUE:
                for kind, _, inner in self._fields(_bytes(value)):
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
