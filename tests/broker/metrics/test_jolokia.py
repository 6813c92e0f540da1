"""Metrics as JSON objects: names, attributes, patterns, old names and errors of the Jolokia protocol."""

from __future__ import annotations

import fnmatch
import json
import random
from typing import Any
from urllib.parse import unquote

import pytest

from base.pause import never, whole
from broker.metrics import object_names
from broker.metrics.histogram import Histogram
from broker.metrics.jolokia import (
    BODY_SIZE_MAX,
    NAME_LENGTH_MAX,
    JolokiaError,
    JolokiaRequest,
    request_of_path,
    requests_of_body,
    respond,
)
from broker.metrics.metric import Kind, Metric, Shown, alone
from broker.metrics.object_names import ObjectNameError, canonical_name, object_name, parse_object_name
from broker.metrics.old_names import present_name
from broker.metrics.rates import MeterRates, WindowedRate
from broker.metrics.registry import Registry

TOPICS = "kafka.server:type=BrokerTopicMetrics"
REQUESTS = "kafka.network:type=RequestMetrics"
METER_ATTRIBUTES = {
    "EventType",
    "RateUnit",
    "OneMinuteRate",
    "FiveMinuteRate",
    "FifteenMinuteRate",
    "MeanRate",
    "Count",
}
HISTOGRAM_ATTRIBUTES = {
    *(f"{share}thPercentile" for share in ("50", "75", "95", "98", "99", "999")),
    *("Count", "Min", "Max", "Mean", "StdDev"),
}


class Counted:
    """Metrics over plain counters, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.by_topic = {"a.b": 0, "c": 0}
        self.times = Histogram(random.Random(1).random)
        self.registry = Registry(
            [
                Metric(Kind.METER, f"{TOPICS},name=MessagesInPerSec", "Records.", self.topics, ("topic",)),
                Metric(Kind.METER, f"{TOPICS},name=BytesInPerSec", "Bytes.", self.topics, ("topic",)),
                Metric(
                    Kind.METER,
                    f"{REQUESTS},name=RequestsPerSec",
                    "Requests.",
                    lambda: [(("Produce", "9"), 3), (("Produce", "11"), 4), (("ListOffsets", "7"), 5)],
                    ("request", "version"),
                ),
                Metric(
                    Kind.HISTOGRAM,
                    f"{REQUESTS},name=TotalTimeMs",
                    "Times.",
                    lambda: [(("FetchConsumer",), self.times.distribution())],
                    ("request",),
                ),
                Metric(
                    Kind.TIMER,
                    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
                    "Times.",
                    alone(self.times.distribution),
                ),
                Metric(
                    Kind.GAUGE,
                    "kafka.server:type=KafkaServer,name=ClusterId",
                    "Id.",
                    alone(lambda: "abc"),
                    shown=Shown.JSON,
                ),
                Metric(
                    Kind.GAUGE,
                    "java.lang:type=Memory",
                    "Bytes.",
                    alone(lambda: {"used": 9}),
                    attribute="HeapMemoryUsage",
                ),
                Metric(
                    Kind.GAUGE,
                    "kafka.log:type=LogManager,name=LogDirectoryOffline",
                    "Directories.",
                    lambda: [(("/var/lib/kafka",), 0)],
                    ("logDirectory",),
                ),
                Metric(
                    Kind.GAUGE,
                    "kafka.server:type=group-coordinator-metrics",
                    "Commits.",
                    alone(lambda: 7),
                    attribute="offset-commit-count",
                ),
                Metric(
                    Kind.RATE,
                    "kafka.server:type=group-coordinator-metrics",
                    "Commits.",
                    alone(lambda: self.by_topic["c"]),
                    attribute="offset-commit-rate",
                ),
                Metric(
                    Kind.GAUGE,
                    "kafka.log:type=Log,name=Size",
                    "Bytes.",
                    lambda: [(("c", "0"), 10)],
                    ("topic", "partition"),
                    is_per_partition=True,
                ),
            ],
            lambda: self.now_s,
        )

    def topics(self) -> list[Any]:
        return [((), sum(self.by_topic.values())), *(((topic,), count) for topic, count in self.by_topic.items())]

    def tick(self, seconds: float = 5.0) -> None:
        self.now_s += seconds
        whole(self.registry.tick(never))

    def ask(self, path: str, *, with_partitions: bool = True, **query: str) -> Any:
        try:
            request: Any = request_of_path(path, query)
        except JolokiaError as error:
            request = error
        return json.loads("".join(respond(self.registry, request, 5, "0.1.0", with_partitions=with_partitions)))

    def read(self, name: str) -> Any:
        response = self.ask(f"read/{name}")
        assert response["status"] == 200, response
        return response["value"]


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_a_meter_has_exactly_seven_attributes_and_its_rates_follow_the_count(counted: Counted) -> None:
    for _ in range(3):
        counted.by_topic["a.b"] += 50
        counted.tick()
    value = counted.read(f"{TOPICS},name=MessagesInPerSec,topic=a.b")
    assert value.keys() == METER_ATTRIBUTES
    assert value["Count"] == 150
    assert value["EventType"] == "messages"
    assert value["RateUnit"] == "SECONDS"
    for rate in ("OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate", "MeanRate"):
        assert value[rate] == pytest.approx(10)
    for _ in range(12):  # a minute without events
        counted.tick()
    value = counted.read(f"{TOPICS},name=MessagesInPerSec,topic=a.b")
    assert value["OneMinuteRate"] == pytest.approx(10 / 2.718281828)
    assert value["MeanRate"] == pytest.approx(2)


def test_a_histogram_and_a_timer_have_percentiles(counted: Counted) -> None:
    for number in range(1, 100):
        counted.times.update(number, counted.now_s)
    value = counted.read(f"{REQUESTS},name=TotalTimeMs,request=FetchConsumer")
    assert value.keys() == HISTOGRAM_ATTRIBUTES
    assert (value["Min"], value["Max"], value["Mean"], value["Count"]) == (1, 99, 50, 99)
    assert value["99thPercentile"] == pytest.approx(99)
    assert value["StdDev"] == pytest.approx(28.577, abs=0.01)
    timer = counted.read("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs")
    assert timer.keys() == HISTOGRAM_ATTRIBUTES | METER_ATTRIBUTES | {"LatencyUnit"}
    assert timer["LatencyUnit"] == "MILLISECONDS"


def test_a_rate_covers_its_window(counted: Counted) -> None:
    counted.tick()
    for _ in range(24):
        counted.by_topic["c"] += 10
        counted.tick()
    name = "kafka.server:type=group-coordinator-metrics"
    assert counted.read(name) == {"offset-commit-count": 7, "offset-commit-rate": pytest.approx(2)}
    for _ in range(13):
        counted.tick()
    assert counted.ask(f"read/{name}/offset-commit-rate")["value"] == 0


@pytest.mark.parametrize(
    "name",
    [
        f"{TOPICS},name=MessagesInPerSec",
        "kafka.server:name=MessagesInPerSec,type=BrokerTopicMetrics",
        "kafka.server:name=MessagesInPerSec, type=BrokerTopicMetrics",
        '"kafka.server":name="AllTopicsMessagesInPerSec",type="BrokerTopicMetrics"',
        '"kafka.server":type="BrokerTopicMetrics",name="AllTopicsMessagesInPerSec"',
    ],
)
def test_any_order_blanks_and_old_quotes_name_the_same_object(counted: Counted, name: str) -> None:
    counted.by_topic["c"] = 3
    assert counted.ask(f"read/{name}/Count")["value"] == 3


def test_patterns_return_objects_by_name(counted: Counted) -> None:
    counted.by_topic["c"] = 3
    value = counted.read("kafka.server:type=BrokerTopicMetrics,name=*InPerSec,topic=*")
    assert set(value) == {
        f"kafka.server:name={name},topic={topic},type=BrokerTopicMetrics"
        for name in ("MessagesInPerSec", "BytesInPerSec")
        for topic in ("a.b", "c")
    }
    value = counted.ask("read/kafka.server:type=BrokerTopicMetrics,*/Count")["value"]
    assert value["kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics"] == {"Count": 3}
    assert len(value) == 6
    found = counted.ask("search/*:type=Log*,*")["value"]
    assert 'kafka.log:logDirectory="/var/lib/kafka",name=LogDirectoryOffline,type=LogManager' in found


def test_a_quoted_value_with_slashes_is_found(counted: Counted) -> None:
    name = 'kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory="/var/lib/kafka"'
    assert counted.ask(f"read/{name}/Value")["value"] == 0
    escaped = name.replace("/", "!/")
    assert counted.ask(f"read/{escaped}/Value")["value"] == 0


@pytest.mark.parametrize(
    ("old", "attribute", "value"),
    [
        ('"kafka.network":type="RequestMetrics",name="Produce-RequestsPerSec"', "Count", 7),
        ("kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce", "Count", 7),
        ("kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Offsets", "Count", 5),
        ('"kafka.network":type="RequestMetrics",name="Fetch-consumer-TotalTimeMs"', "Count", 0),
    ],
)
def test_old_request_names_are_sums_over_versions(counted: Counted, old: str, attribute: str, value: int) -> None:
    assert counted.ask(f"read/{old}/{attribute}")["value"] == value


@pytest.mark.parametrize(
    ("old", "present"),
    [
        ("a:type=ReplicaManager,name=ISRShrinksPerSec", "a:type=ReplicaManager,name=IsrShrinksPerSec"),
        (
            "a:type=FetchRequestPurgatory,name=PurgatorySize",
            "a:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Fetch",
        ),
        (
            "a:type=RequestMetrics,name=Produce-QueueTimeMs",
            "a:type=RequestMetrics,name=RequestQueueTimeMs,request=Produce",
        ),
        (
            "a:type=ReplicaFetcherManager,name=Replica-MaxLag",
            "a:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        ),
        (
            "a:type=FetcherLagMetrics,name=x-0-ConsumerLag",
            "a:type=FetcherLagMetrics,name=ConsumerLag,clientId=x-0,topic=*,partition=*",
        ),
    ],
)
def test_old_names_stand_for_present_ones(old: str, present: str) -> None:
    assert present_name(parse_object_name(old)) == parse_object_name(present)


def test_unknown_names_are_404_in_the_body(counted: Counted) -> None:
    for path in (
        "read/kafka.server:type=Nothing",
        "read/kafka.server:type=Nothing,name=*",
        f"read/{TOPICS},name=BytesInPerSec,topic=x",
    ):
        response = counted.ask(path)
        assert (response["status"], response["error_type"]) == (404, "javax.management.InstanceNotFoundException")
    response = counted.ask(f"read/{TOPICS},name=BytesInPerSec/Rate")
    assert (response["status"], response["error_type"]) == (404, "javax.management.AttributeNotFoundException")
    assert counted.ask("read/nonsense")["status"] == 400
    assert counted.ask("exec/a:b=c")["status"] == 400


def test_deleted_topics_disappear(counted: Counted) -> None:
    counted.tick()
    del counted.by_topic["a.b"]
    assert counted.ask(f"read/{TOPICS},name=BytesInPerSec,topic=a.b")["status"] == 404
    counted.tick()
    counted.by_topic["a.b"] = 0
    assert counted.read(f"{TOPICS},name=BytesInPerSec,topic=a.b")["Count"] == 0


def test_list_version_and_texts(counted: Counted) -> None:
    listed = counted.ask("list")["value"]
    assert listed.keys() == {"kafka.server", "kafka.network", "kafka.log", "java.lang"}
    assert listed["kafka.server"]["name=ClusterId,type=KafkaServer"]["attr"].keys() == {"Value"}
    assert counted.ask("version")["value"]["info"]["version"] == "0.1.0"
    assert counted.read("kafka.server:type=KafkaServer,name=ClusterId") == {"Value": "abc"}
    assert counted.ask("read/kafka.log:type=Log,name=Size,topic=c,partition=0")["status"] == 200
    assert counted.ask("read/kafka.log:type=Log,name=Size,topic=c,partition=0", with_partitions=False)["status"] == 404


def test_names_are_canonical_unless_the_registered_order_is_asked_for(counted: Counted) -> None:
    registered, canonical = f"{TOPICS},name=BytesInPerSec", "kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics"
    assert counted.ask(f"read/{registered}")["request"]["mbean"] == canonical
    assert counted.ask(f"read/{registered}", canonicalNaming="false")["request"]["mbean"] == registered
    assert canonical in counted.ask(f"search/{TOPICS},*")["value"]
    assert registered in counted.ask(f"search/{TOPICS},*", canonicalNaming="false")["value"]
    assert counted.ask(f"read/{TOPICS},name=B*", canonicalNaming="false")["value"].keys() == {registered}
    assert "type=KafkaServer,name=ClusterId" in counted.ask("list", canonicalNaming="false")["value"]["kafka.server"]
    assert canonical_name('a:z="x,y=1",b=2, *,c="q\\"r"') == 'a:b=2,c="q\\"r",z="x,y=1",*'


def test_a_path_selects_a_part_of_a_value(counted: Counted) -> None:
    response = counted.ask("read/java.lang:type=Memory/HeapMemoryUsage/used")
    assert (response["value"], response["request"]["path"]) == (9, "used")
    assert counted.ask("read/java.lang:type=Memory/HeapMemoryUsage")["value"] == {"used": 9}
    assert counted.ask("read/java.lang:type=Memory//HeapMemoryUsage/used")["value"] == 9
    assert counted.ask("", p="read/java.lang:type=Memory/HeapMemoryUsage/used")["value"] == 9
    (posted,), _ = requests_of_body(
        b'{"type":"read","mbean":"java.lang:type=Memory","attribute":"HeapMemoryUsage","path":"used"}'
    )
    assert posted == request_of_path("read/java.lang:type=Memory/HeapMemoryUsage/used")
    for path in ("HeapMemoryUsage/free", "HeapMemoryUsage/used/more"):
        missing = counted.ask(f"read/java.lang:type=Memory/{path}")
        assert (missing["status"], missing["error_type"]) == (404, "javax.management.AttributeNotFoundException")
    assert counted.ask("read/java.lang:type=*/HeapMemoryUsage/used")["status"] == 400


def test_a_part_of_the_list_is_selected_and_its_depth_limited(counted: Counted) -> None:
    whole_list = counted.ask("list")["value"]
    assert counted.ask("list/kafka.log")["value"] == whole_list["kafka.log"]
    name = "name=ClusterId,type=KafkaServer"
    about = whole_list["kafka.server"][name]
    assert counted.ask("list/kafka.server/type=KafkaServer,name=ClusterId")["value"] == about
    assert counted.ask(f"list/kafka.server/{name}/attr/Value/desc")["value"] == "Id."
    assert counted.ask("list/nothing")["value"] == {}
    assert counted.ask("list/kafka.server/type=Nothing")["status"] == 404
    assert counted.ask("list", maxDepth="1")["value"] == dict.fromkeys(whole_list, 1)
    assert counted.ask("list", maxDepth="2")["value"] == {
        domain: dict.fromkeys(objects, 1) for domain, objects in whole_list.items()
    }
    assert counted.ask("list", maxDepth="3")["value"]["kafka.server"][name] == {"desc": 1, "attr": 1}
    assert counted.ask("list/kafka.log", maxDepth="1")["value"] == dict.fromkeys(whole_list["kafka.log"], 1)
    assert counted.ask(f"list/kafka.server/{name}", maxDepth="1")["value"] == {"desc": 1, "attr": 1}
    assert counted.ask("list", maxDepth="0")["value"] == whole_list
    assert counted.ask("list", maxDepth="x")["status"] == 400
    assert counted.ask("read/java.lang:type=Memory", maxDepth="1")["value"] == {"HeapMemoryUsage": '{"used":9}'}
    assert counted.ask("read/java.lang:type=*", maxDepth="3")["value"] == {
        "java.lang:type=Memory": {"HeapMemoryUsage": {"used": 9}}
    }


def test_every_meter_of_kafka_says_what_it_counts(counted: Counted) -> None:
    values = {
        f"{TOPICS},name=BytesInPerSec": "bytes",
        f"{REQUESTS},name=RequestsPerSec,request=Produce,version=9": "requests",
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs": "calls",
    }
    assert {name: counted.read(name)["EventType"] for name in values} == values


def test_body_has_one_request_or_an_array_and_malformed_ones_are_rejected() -> None:
    requests, is_array = requests_of_body(b'[{"type":"read","mbean":"a:b=c","attribute":["x","y"]},{"type":"exec"},3]')
    assert is_array
    assert requests[0] == request_of_path("read/a:b=c/x,y")
    assert all(isinstance(one, JolokiaError) for one in requests[1:])
    assert not requests_of_body(b'{"type":"version"}')[1]
    for body in (b"", b"{", b"[" * 60_000, b"[" + b"1," * 2000 + b"1]"):
        with pytest.raises(JolokiaError):
            requests_of_body(body)


@pytest.mark.parametrize("text", ["a" * (NAME_LENGTH_MAX + 1), "%61" * (NAME_LENGTH_MAX + 1)])
def test_long_paths_are_rejected_before_they_are_split(text: str) -> None:
    expected = f"a path of {len(unquote(text))} characters; expected at most {NAME_LENGTH_MAX}"
    with pytest.raises(JolokiaError, match=expected):
        request_of_path(text)
    with pytest.raises(JolokiaError, match=expected):
        request_of_path("", {"p": unquote(text)})
    (posted,), _ = requests_of_body(json.dumps({"type": "version", "path": unquote(text)}).encode())
    assert str(posted) == expected


def test_a_body_is_rejected_by_its_size_before_it_is_parsed() -> None:
    with pytest.raises(JolokiaError, match=f"{BODY_SIZE_MAX + 1} bytes; expected at most {BODY_SIZE_MAX}"):
        requests_of_body(b" " * (BODY_SIZE_MAX + 1))


def test_parameters_without_a_meaning_are_not_copied_for_each_request() -> None:
    class Parameters(dict[str, str]):
        def keys(self) -> Any:
            raise AssertionError("all parameters are visited")

        __iter__ = items = keys

    (first, second), _ = requests_of_body(b'[{"type":"list"},{"type":"list"}]', Parameters(maxDepth="3", other="x"))
    assert isinstance(first, JolokiaRequest)
    assert first == second
    assert first.depth_max == 3


def test_names_are_quoted_where_jmx_quotes_them() -> None:
    assert object_name("a:b=c", ("x", "y"), ("a-b_%.d", "/tmp")) == 'a:b=c,x=a-b_%.d,y="/tmp"'
    assert object_name("a:b=c", ("x", "y"), ("", 'q"*')) == 'a:b=c,y="q\\"\\*"'
    assert parse_object_name('a:b="q\\"x"').properties == {"b": 'q"x'}
    for text in ("", "a", "a:", "a:b", 'a:b="c', "a:b=c,=d"):
        with pytest.raises(ObjectNameError):
            parse_object_name(text)


def test_rates_before_the_first_tick_are_zero() -> None:
    assert MeterRates(0, 0.0).rates == (0.0, 0.0, 0.0)
    assert MeterRates(0, 0.0).mean(3, 0.0) == 0.0
    assert WindowedRate(3, 1.0).per_second(3, 1.0) == 0.0


@pytest.mark.parametrize(
    "text", ["a:" + " " * 4_000 + '"', "a:k=" + " " * 4_000 + '"', "a:" + '"' * 4_000, "a:k=" + '"\\' * 2_000]
)
def test_a_hostile_name_is_refused_in_linear_time(text: str) -> None:
    with pytest.raises(ObjectNameError):
        parse_object_name(text)  # in cubic time it takes a minute


def test_a_pattern_is_translated_once_for_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    translated: list[str] = []
    monkeypatch.setattr(object_names, "translate", lambda text: translated.append(text) or fnmatch.translate(text))
    pattern = parse_object_name(f"kafka.log:type=Log,topic=*{'a' * 900}")
    names = [str(number) + "a" * 900 for number in range(500)]
    assert all(pattern.matches(("type", "topic"), ("Log", name)) for name in names)
    assert len(translated) == 1


def test_a_pattern_has_a_limited_number_of_wildcards() -> None:
    with pytest.raises(ObjectNameError, match="100 wildcards"):
        parse_object_name("a:k=" + "*" * 101)
