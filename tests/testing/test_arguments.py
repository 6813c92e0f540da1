"""Every wrong argument of the fixture fails with the value and what was expected, and the broker lives on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milena_broker.testing import Broker, BrokerError, Cluster, ProcessCluster

ROW = "row 0"


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    """A broker, without its types: the tests are about calls that these forbid."""
    with Broker() as started:
        started.create_topic("t")
        yield started


NEW: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda _: Cluster(0), ValueError, "brokers is 0: expected at least 1"),
    (lambda _: Cluster(101), ValueError, "brokers is 101: expected at most 100"),
    (lambda _: Cluster("3"), TypeError, "brokers is '3': expected an integer"),  # type: ignore[arg-type]
    (lambda new: new(["a"]), TypeError, "settings is ['a']: expected a mapping of names of settings to values"),
    (lambda new: new({5: "a"}), TypeError, "a key of settings is 5: expected a text"),
    (
        lambda new: new({"log.dirs": None}),
        TypeError,
        "settings['log.dirs'] is None: expected a text, a number, True or False",
    ),
    (
        lambda new: new(topics=["a"]),
        TypeError,
        "topics is ['a']: expected a mapping of topics to numbers of partitions",
    ),
    (lambda new: new(topics={"a": "3"}), TypeError, "topics['a'] is '3': expected an integer"),
    (lambda new: new(topics={"a": 0}), ValueError, "topics['a'] is 0: expected at least 1"),
    (lambda new: new(seed="orders.csv"), TypeError, "seed is 'orders.csv': expected a mapping of topics to files"),
    (lambda new: new(seed={"a": 5}), TypeError, "seed['a'] is 5: expected a path"),
    (lambda new: new(folder=5), TypeError, "folder is 5: expected a path"),
    (lambda new: new(movable_clock=1), TypeError, "movable_clock is 1: expected True or False"),
    (lambda new: new(as_version=2.8), TypeError, "as_version is 2.8: expected a text, such as '2.8'"),
    (lambda new: new(tls="yes"), TypeError, "tls is 'yes': expected True or False"),
    (lambda new: new(users=["ann:secret"]), TypeError, "users is a list: expected a mapping of users to passwords"),
    (
        lambda new: new(users={"a b": "secret"}),
        ValueError,
        "a key of users is 'a b': expected letters, digits, '.', '_' and '-'",
    ),
    (lambda new: new(users={"ann": 5}), TypeError, "users['ann'] is no password: expected a text that is not empty"),
    (
        lambda new: new({"listeners": "SSL://:9093"}, tls=True),
        ValueError,
        "settings has 'listeners': expected none beside tls and users, which define the listeners",
    ),
    (lambda _: ProcessCluster(2, racks="ab"), TypeError, "racks is 'ab': expected a sequence of names"),
    (lambda _: ProcessCluster(2, racks=["a", ""]), ValueError, "racks[1] is empty: expected a name"),
]

CALLS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda broker: broker.create_topic(5), TypeError, "topic is 5: expected a text"),
    (lambda broker: broker.create_topic(""), ValueError, "topic is empty: expected a text"),
    (lambda broker: broker.create_topic("k", "3"), TypeError, "partitions is '3': expected an integer"),
    (lambda broker: broker.create_topic("k", True), TypeError, "partitions is True: expected an integer"),
    (lambda broker: broker.create_topic("k", 0), ValueError, "partitions is 0: expected at least 1"),
    (
        lambda broker: broker.create_topic("k", replication_factor=0),
        ValueError,
        "replication_factor is 0: expected at least 1",
    ),
    (
        lambda broker: broker.create_topic("k", configs="compact"),
        TypeError,
        "configs is 'compact': expected a mapping of names of settings to values",
    ),
    (
        lambda broker: broker.produce("t", "hello"),
        TypeError,
        "rows is 'hello': expected a list, or another iterable, of rows",
    ),
    (
        lambda broker: broker.produce("t", {"value": "x"}),
        TypeError,
        "rows is {'value': 'x'}: expected a list, or another iterable, of rows",
    ),
    (lambda broker: broker.produce("t", 5), TypeError, "rows is 5: expected a list, or another iterable, of rows"),
    (
        lambda broker: broker.produce("t", [{"value": "x", "keys": "k"}]),
        TypeError,
        (
            f"{ROW} has 'value' and 'keys': expected only key, value, headers, partition, timestamp_ms; "
            "a JSON object with the field 'value' is written as {'value': {'value': ...}}"
        ),
    ),
    (
        lambda broker: broker.produce("t", [("k", "v", "h")]),
        TypeError,
        f"{ROW} is ('k', 'v', 'h'): expected a tuple of key and value",
    ),
    (
        lambda broker: broker.produce("t", [{"value": "x", "timestamp_ms": "now"}]),
        TypeError,
        f"timestamp_ms of {ROW} is 'now': expected an integer",
    ),
    (
        lambda broker: broker.produce("t", [{"value": "x", "timestamp_ms": -1}]),
        ValueError,
        f"timestamp_ms of {ROW} is -1: expected at least 0",
    ),
    (
        lambda broker: broker.produce("t", [{"value": "x", "partition": "0"}]),
        TypeError,
        f"partition of {ROW} is '0': expected an integer",
    ),
    (
        lambda broker: broker.produce("t", [{"value": "x", "headers": {5: "a"}}]),
        TypeError,
        f"the name of a header of {ROW} is 5: expected a text",
    ),
    (
        lambda broker: broker.produce("t", [{"value": "x", "headers": "h"}]),
        TypeError,
        f"headers of {ROW} is 'h': expected a mapping, or pairs of name and value",
    ),
    (
        lambda broker: broker.produce("t", [{"value": "x", "headers": ["h"]}]),
        TypeError,
        f"a header of {ROW} is 'h': expected a pair of name and value",
    ),
    (
        lambda broker: broker.produce("t", [{1, 2}]),
        TypeError,
        (
            f"value of {ROW} is {{1, 2}}: expected bytes, text, or what JSON can express: "
            "Object of type set is not JSON serializable"
        ),
    ),
    (
        lambda broker: broker.produce("t", [float("nan")]),
        ValueError,
        (
            f"value of {ROW} is nan: expected bytes, text, or what JSON can express: "
            "Out of range float values are not JSON compliant"
        ),
    ),
    (lambda broker: broker.consume("t", "1"), TypeError, "count is '1': expected an integer"),
    (lambda broker: broker.consume("t", -1), ValueError, "count is -1: expected at least 0"),
    (lambda broker: broker.consume("t", timeout_s="1"), TypeError, "timeout_s is '1': expected a number of seconds"),
    (
        lambda broker: broker.consume("t", timeout_s=float("inf")),
        ValueError,
        "timeout_s is inf: expected a number of seconds that is not negative",
    ),
    (lambda broker: broker.wait_for_record("t", "x"), TypeError, "matches is 'x': expected a function of a record"),
    (lambda broker: broker.wait_for_topic(None), TypeError, "topic is None: expected a text"),
    (lambda broker: broker.wait_for_topic("t", 0), ValueError, "partitions is 0: expected at least 1"),
    (lambda broker: broker.wait_for_leader("t", -1), ValueError, "partition is -1: expected at least 0"),
    (lambda broker: broker.wait_for_leader("t", other_than="0"), TypeError, "other_than is '0': expected an integer"),
    (lambda broker: broker.wait_for_isr(b"t"), TypeError, "topic is b't': expected a text"),
    (lambda broker: broker.wait_for_group(""), ValueError, "group is empty: expected a text"),
    (lambda broker: broker.wait_for_group("g", members="2"), TypeError, "members is '2': expected an integer"),
    (
        lambda broker: broker.wait_for_group("g", is_caught_up=0),
        TypeError,
        "is_caught_up is 0: expected True or False",
    ),
    (
        lambda broker: broker.client_settings(library="sarama"),
        ValueError,
        "library is 'sarama': expected one of librdkafka, kafka-python, aiokafka, java",
    ),
    (
        lambda broker: broker.client_settings(mechanism="GSSAPI"),
        ValueError,
        "mechanism is 'GSSAPI': expected one of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN",
    ),
    (
        lambda broker: broker.client_settings("ann"),
        ValueError,
        "user is 'ann': expected none, because the brokers have no users",
    ),
    (lambda broker: broker.client_settings(5), TypeError, "user is 5: expected the name of a user"),
    (lambda broker: broker.slow_disk("a"), TypeError, "delay_ms is 'a': expected a number of milliseconds"),
    (
        lambda broker: broker.slow_disk(-1),
        ValueError,
        "delay_ms is -1: expected a number of milliseconds that is not negative",
    ),
    (
        lambda broker: broker.fail_next(0, "NONE"),
        TypeError,
        "api is 0: expected the name of an API, for example 'Produce'",
    ),
    (lambda broker: broker.fail_next("Produce", 6), TypeError, "error is 6: expected the name of an error code"),
    (
        lambda broker: broker.fail_next("Produce", "NONE"),
        BrokerError,
        "error is 'NONE': expected the name of an error code, and NONE is that of success",
    ),
    (
        lambda broker: broker.fail_next("Produce", "NOT_LEADER"),
        BrokerError,
        "error is 'NOT_LEADER': expected an error code of Kafka's protocol; the nearest is 'NOT_LEADER_OR_FOLLOWER'",
    ),
    (
        lambda broker: broker.fail_next("produce", "NOT_COORDINATOR"),
        BrokerError,
        "api is 'produce': expected an API of Kafka's protocol; the nearest is 'Produce'",
    ),
    (
        lambda broker: broker.fail_next("Fetch", "NOT_COORDINATOR", times=0),
        ValueError,
        "times is 0: expected at least 1",
    ),
    (lambda broker: broker.delay("Fetch", None), TypeError, "delay_ms is None: expected a number of milliseconds"),
    (
        lambda broker: broker.drop_connection("Fetch", is_served="yes"),
        TypeError,
        "is_served is 'yes': expected True or False",
    ),
    (lambda broker: broker.fail_next("Produce", "INVALID_RECORD", topic=5), TypeError, "topic is 5: expected a text"),
    (
        lambda broker: broker.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="t"),
        BrokerError,
        "api is 'Fetch': expected one with a result for each topic, such as 'Produce'",
    ),
    (lambda broker: broker.drop_connection("Fetch", client_id=5), TypeError, "client_id is 5: expected a text"),
    (
        lambda broker: broker.drop_connection("SaslAuthenticate"),
        BrokerError,
        "api is 'SaslAuthenticate': expected an API other than those of logins, which meet no faults",
    ),
    (
        lambda broker: broker.fault_count(1),
        TypeError,
        "fault is 1: expected what fail_next, delay or drop_connection returns",
    ),
    (lambda broker: broker.run_compaction(None), TypeError, "topic is None: expected a text"),
    (
        lambda broker: broker.run_compaction("t"),
        BrokerError,
        "topic 't' is not compacted: its cleanup.policy is delete",
    ),
    (lambda broker: broker.run_compaction("missing"), BrokerError, "topic 'missing' does not exist"),
    (lambda broker: broker.advance("1 h"), TypeError, "time is '1 h': expected a number of seconds, or a timedelta"),
    (
        lambda broker: broker.advance(1),
        BrokerError,
        "the broker has the clock of the machine: start it with movable_clock=True",
    ),
    (lambda broker: broker.stop_broker("0"), TypeError, "broker_id is '0': expected an integer"),
    (
        lambda broker: broker.stop_broker(7),
        BrokerError,
        "broker 7 is not running, expected one of [0]",
    ),
]


@pytest.mark.parametrize(("new", "kind", "message"), NEW)
def test_a_wrong_argument_of_a_new_broker_is_named(
    new: Callable[[Any], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised:
        new(Broker)
    assert str(raised.value) == message


@pytest.mark.parametrize(("call", "kind", "message"), CALLS)
def test_a_wrong_argument_of_a_call_is_named(
    broker: Any, call: Callable[[Any], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised:
        call(broker)
    assert str(raised.value) == message


def test_a_broker_survives_all_wrong_calls(broker: Any) -> None:
    for call, _, _ in CALLS:
        with pytest.raises((TypeError, ValueError, BrokerError)):
            call(broker)
    assert broker.produce("t", ["x"]) == 1


def test_a_broker_survives_a_command_that_fails_unexpectedly(broker: Any) -> None:
    with pytest.raises(BrokerError, match=r"^create_topic failed unexpectedly: TypeError\("):
        broker._call("create_topic", unknown=1)
    assert broker.produce("t", ["x"]) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"message.max.byte": 5},
            (
                "settings has 'message.max.byte': expected the name of a setting of a broker; "
                "the nearest is 'message.max.bytes'"
            ),
        ),
        ({"zzz": 5}, "settings has 'zzz': expected the name of a setting of a broker"),
    ],
)
def test_an_unknown_setting_is_named_with_the_nearest(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BrokerError) as raised:
        Broker(settings).start()
    assert str(raised.value) == message


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match=r"^folder .*/file/data cannot be used: .*Not a directory"):
        Broker(folder=tmp_path / "file" / "data").start()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"value": 1, "partition": "0"}\n', "1: partition of the row is '0': expected an integer"),
        ("a.jsonl", '\n{"value": 1, "keys": 2}\n', "2: the row has 'value' and 'keys': expected only key, value"),
        ("a.csv", "value,partition\nx,first\n", "2: partition is 'first': expected an integer, or nothing"),
        ("a.csv", "value,amount\nx,1\n", "2: the row has 'value' and 'amount': expected only key, value"),
    ],
)
def test_a_wrong_row_of_a_seed_is_named_and_leaves_no_folder(
    name: str, content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match="expected") as raised:
        Broker(seed={"orders": tmp_path / name}).start()
    assert str(raised.value).startswith(f"{tmp_path / name}:{message}")
    assert list((tmp_path / "temporary").iterdir()) == []
