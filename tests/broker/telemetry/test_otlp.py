"""The metrics of a push are read, whatever bytes a client sends."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from broker.telemetry.client_instances import TEXT_LENGTH_MAX, Point
from broker.telemetry.otlp import POINTS_MAX, points_of
from protocol.protobuf import Value, fields
from tests.broker.telemetry.metrics_data import field, metric, metrics_data, point

SUM = 7
DELTA, CUMULATIVE = 1, 2
FIELDS = 100
PUSH = metrics_data(
    metric("a.gauge", 1.5, topic="t", partition=3),
    metric("a.delta", 7, SUM, DELTA),
    metric("a.total", -7, SUM, CUMULATIVE, negative=-2),
)


def test_gauges_and_sums_are_read() -> None:
    assert points_of(PUSH) == [
        Point("a.gauge", "partition=3,topic=t", 1.5, False),
        Point("a.delta", "", 7, True),
        Point("a.total", "negative=-2", -7, False),
    ]


def test_the_name_may_follow_the_points() -> None:
    late = field(5, field(1, point(1.0, {}))) + field(1, b"late")
    assert points_of(metrics_data(late)) == [Point("late", "", 1.0, False)]


def test_other_kinds_are_skipped() -> None:
    assert points_of(metrics_data(field(1, b"histogram") + field(9, field(1, b"")), field(1, b"none"))) == []


def test_a_point_without_a_value_is_skipped() -> None:
    assert points_of(metrics_data(field(1, b"empty") + field(5, field(1, b"")))) == []


def test_long_texts_are_cut() -> None:
    (found,) = points_of(metrics_data(metric("n" * 1000, 1, **{"k" * 1000: "v" * 1000})))
    assert found.name == "n" * TEXT_LENGTH_MAX
    assert found.attributes == f"{'k' * TEXT_LENGTH_MAX}={'v' * TEXT_LENGTH_MAX}"


def test_too_many_points_are_refused() -> None:
    points = field(1, point(1, {})) * (POINTS_MAX + 1)
    with pytest.raises(ValueError, match="points"):
        points_of(metrics_data(field(1, b"m") + field(5, points)))


def test_points_without_a_value_count() -> None:
    points = field(1, b"") * (POINTS_MAX + 1)
    with pytest.raises(ValueError, match=f"more than {POINTS_MAX} points"):
        points_of(metrics_data(field(1, b"m") + field(5, points)))


@pytest.mark.parametrize(
    "data",
    [
        field(1, b"") * (FIELDS + 1),
        metrics_data(*[field(1, b"")] * (FIELDS)),
        metrics_data(field(5, field(1, field(7, b"") * (FIELDS + 1)))),
        metrics_data(field(5, field(1, field(7, field(2, field(9, 0) * (FIELDS + 1)))))),
    ],
    ids=["resources", "metrics", "attributes", "values"],
)
def test_too_many_fields_of_any_message_are_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.telemetry.otlp.FIELDS_MAX", FIELDS)
    with pytest.raises(ValueError, match=f"more than {FIELDS} fields"):
        points_of(data)


def test_reading_stops_at_the_first_point_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(data: memoryview) -> Iterator[tuple[int, int, Value]]:
        nonlocal read
        for each in fields(data):
            read += 1
            yield each

    monkeypatch.setattr("broker.telemetry.otlp.fields", counted)
    with pytest.raises(ValueError, match="points"):
        points_of(metrics_data(field(5, field(1, b"") * (3 * POINTS_MAX))))
    assert read < POINTS_MAX + 10


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05abc", b"\x08\x01", b"\xff" * 20, b"\x0b", b"\x09\0\0", PUSH[:-1]],
    ids=["no length", "cut off", "number", "long number", "group", "short number", "one byte less"],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        points_of(data)


def test_mutated_bytes_are_read_or_refused() -> None:
    rng = Random(1)
    for _ in range(3000):
        mutant = bytearray(PUSH)
        for _ in range(rng.randint(1, 3)):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        try:
            points_of(bytes(mutant))
        except ValueError:
            continue
