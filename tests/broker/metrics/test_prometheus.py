"""The text that Prometheus reads, read by prometheus_client's parsers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from broker.metrics import prometheus
from broker.metrics.metric import Distribution, Kind, Metric, Sample, alone
from broker.metrics.prometheus import SAMPLES_PER_PIECE
from broker.metrics.prometheus import pieces as pieces_of
from broker.metrics.registry import Registry


def pieces(metrics: list[Metric], *, is_open_metrics: bool) -> Iterator[str]:
    return pieces_of(Registry(metrics, lambda: 0.0), with_partitions=True, is_open_metrics=is_open_metrics)


Read = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(metrics: list[Metric], *, is_open_metrics: bool) -> tuple[list[Family], Read]:
    text = "".join(pieces(metrics, is_open_metrics=is_open_metrics))
    families = list(parse_open_metrics(text + "# EOF\n") if is_open_metrics else parse_text(text))
    return families, {
        (sample.name, frozenset(sample.labels.items())): sample.value for it in families for sample in it.samples
    }


def labels(**values: str) -> frozenset[tuple[str, str]]:
    return frozenset(values.items())


@pytest.mark.parametrize("is_open_metrics", [False, True])
def test_every_kind_is_read_back(is_open_metrics: bool) -> None:
    distribution = Distribution(3, 4.5, {"0.50": 1.5, "0.999": 2.0})
    metrics = [
        Metric(Kind.GAUGE, "kafka.a:type=Gauge", "A gauge.", alone(lambda: -2.5)),
        Metric(Kind.METER, "kafka.a:type=B,name=MeterPerSec", "A meter.", alone(lambda: 2**60)),
        Metric(Kind.HISTOGRAM, "kafka.a:type=H", "A histogram.", lambda: [(("x",), distribution)], ("topic",)),
    ]
    families, values = parsed(metrics, is_open_metrics=is_open_metrics)
    assert [(it.name, it.type) for it in families] == [
        ("kafka_a_gauge", "gauge"),
        ("kafka_a_b_meter", "counter"),
        ("kafka_a_h", "summary"),
    ]
    assert values == {
        ("kafka_a_gauge", labels()): -2.5,
        ("kafka_a_b_meter_total", labels()): 2**60,
        ("kafka_a_h", labels(topic="x", quantile="0.50")): 1.5,
        ("kafka_a_h", labels(topic="x", quantile="0.999")): 2.0,
        ("kafka_a_h_sum", labels(topic="x")): 4.5,
        ("kafka_a_h_count", labels(topic="x")): 3,
    }


@pytest.mark.parametrize("is_open_metrics", [False, True])
def test_odd_values_and_labels(is_open_metrics: bool) -> None:
    odd = 'a"b\\c\nd,e=f{g}'
    samples: list[Sample] = [((odd,), math.inf), (("",), -math.inf), (("ü",), math.nan)]
    metrics = [Metric(Kind.GAUGE, "kafka.a:type=B", "Text.", lambda: samples, ("logDirectory",))]
    _, values = parsed(metrics, is_open_metrics=is_open_metrics)
    assert values["kafka_a_b", labels(logDirectory=odd)] == math.inf
    assert values["kafka_a_b", labels(logDirectory="")] == -math.inf
    assert math.isnan(values["kafka_a_b", labels(logDirectory="ü")])


def test_much_comes_in_pieces_and_is_read_piece_by_piece() -> None:
    read: list[int] = []

    def samples() -> Iterable[Sample]:
        for number in range(3 * SAMPLES_PER_PIECE + 1):
            read.append(number)
            yield (str(number),), number

    metric = Metric(Kind.GAUGE, "kafka.a:type=B", "Text.", samples, ("partition",))
    lengths = []
    for piece in pieces([metric], is_open_metrics=False):
        lengths.append(sum(not line.startswith("#") for line in piece.splitlines()))
        assert len(read) == sum(lengths)
    assert lengths == [SAMPLES_PER_PIECE] * 3 + [1]
    assert len(parsed([metric], is_open_metrics=False)[1]) == 3 * SAMPLES_PER_PIECE + 1


def test_long_sums_leave_turns_to_others() -> None:
    metric = Metric(Kind.GAUGE, "kafka.a:type=B", "Text.", lambda: [None, None, ((), 7)])
    texts = list(pieces([metric], is_open_metrics=False))
    assert texts[:2] == ["", ""]
    assert texts[2:] == ["# HELP kafka_a_b Text.\n# TYPE kafka_a_b gauge\nkafka_a_b 7\n"]


def test_metric_without_samples_is_omitted() -> None:
    assert list(pieces([Metric(Kind.GAUGE, "kafka.a:type=B", "Text.", list)], is_open_metrics=False)) == []


def test_a_metric_that_cannot_be_read_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Iterable[Sample]:
        raise RuntimeError("the owner is gone")

    bad = Metric(Kind.GAUGE, "kafka.a:type=Bad", "Text.", fail)
    good = Metric(Kind.GAUGE, "kafka.a:type=Good", "Text.", alone(lambda: 1))
    _, values = parsed([bad, good], is_open_metrics=False)
    assert values == {("kafka_a_good", labels()): 1}
    assert "kafka_a_bad" in caplog.text


def _of_partitions(count: int, metrics: int) -> list[Metric]:
    partitions = [("orders", str(number)) for number in range(count)]
    return [
        Metric(
            Kind.GAUGE,
            f"kafka.log:type=Log,name=Figure{number}",
            "Of each partition.",
            lambda: ((tags, int(tags[1])) for tags in partitions),
            ("topic", "partition"),
        )
        for number in range(metrics)
    ]


def test_labels_of_a_partition_are_written_once_for_all_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped: list[str] = []
    original = prometheus._escaped
    monkeypatch.setattr(prometheus, "_escaped", lambda text: escaped.append(text) or original(text))  # type: ignore[func-returns-value]
    text = "".join(pieces(_of_partitions(1000, 10), is_open_metrics=False))
    assert text.count("\nkafka_log_log_figure") == 10_000
    assert len(escaped) == 2 * 1000 + 10  # a topic and a partition of each, and the help of each metric


def test_labels_are_the_same_if_they_are_too_many_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = _of_partitions(10, 3)
    kept = "".join(pieces(metrics, is_open_metrics=True))
    monkeypatch.setattr(prometheus, "LABELS_MAX", 4)
    assert "".join(pieces(metrics, is_open_metrics=True)) == kept
