"""`milena_broker.testing`: brokers for tests, used as a test would use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from milena_broker.testing import Broker, BrokerError, Cluster
from milena_broker.testing.nursery import START_TIMEOUT_S
from tests.support.processes import is_running

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    return shared


def values(broker: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.consume(topic)]


def test_rows_of_every_form_are_produced(broker: Broker) -> None:
    row = {"key": "k", "value": b"\xff", "headers": {"h": "1", "n": None}, "timestamp_ms": 5}
    assert broker.produce("orders", ["text", b"bytes", None, ("key", {"a": 1}), {"a": 2}, row]) == 6
    found = broker.consume("orders")
    assert [record.value for record in found] == [b"text", b"bytes", None, b'{"a": 1}', b'{"a": 2}', b"\xff"]
    assert [record.key for record in found] == [None, None, None, b"key", None, b"k"]
    assert found[-1].headers == (("h", b"1"), ("n", None))
    assert found[-1].timestamp_ms == 5
    assert found[3].json() == {"a": 1}


def test_rows_with_equal_keys_go_to_one_partition(broker: Broker) -> None:
    broker.create_topic("keyed", 5)
    broker.produce("keyed", [(f"key {number % 7}", str(number)) for number in range(70)])
    partitions: dict[bytes | None, set[int]] = {}
    for record in broker.consume("keyed", 70):
        partitions.setdefault(record.key, set()).add(record.partition)
    assert all(len(used) == 1 for used in partitions.values())
    assert len(set.union(*partitions.values())) > 1


def test_a_row_names_its_partition(broker: Broker) -> None:
    broker.create_topic("three", 3)
    broker.produce("three", [{"value": "x", "partition": 2}])
    assert [record.partition for record in broker.consume("three")] == [2]
    with pytest.raises(BrokerError, match="partition 3 of topic 'three': expected one of 0 to 2"):
        broker.produce("three", [{"value": "x", "partition": 3}])


def test_more_rows_than_one_request_holds(broker: Broker) -> None:
    large = "x" * 300_000
    broker.produce("large", [large] * 10)
    broker.produce("many", (str(number) for number in range(12_345)))
    assert values(broker, "large") == [large.encode()] * 10
    assert values(broker, "many") == [str(number).encode() for number in range(12_345)]


def test_more_records_than_one_response_holds(broker: Broker) -> None:
    broker.create_topic("huge", 2)
    large = b"x" * 900_000
    broker.produce("huge", ({"value": large, "partition": number % 2} for number in range(12)))
    found = broker.consume("huge", 12)
    assert [(record.partition, record.offset) for record in found] == [(n // 6, n % 6) for n in range(12)]
    assert all(record.value == large for record in found)


def test_consume_waits_for_other_producers_and_reports_what_is_missing(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    broker.create_topic("waited")
    producer.produce("waited", b"late")
    producer.flush(PATIENCE_S)
    assert [record.value for record in broker.consume("waited", 1)] == [b"late"]
    with pytest.raises(BrokerError, match=r"topic 'waited' has 1 records after 0.05 s, expected 2"):
        broker.consume("waited", 2, timeout_s=0.05)


def test_consume_returns_committed_records_only(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    broker.create_topic("transactions")
    producer.init_transactions(PATIENCE_S)
    for commit, value in ((False, b"aborted"), (True, b"committed"), (False, b"aborted too")):
        producer.begin_transaction()
        producer.produce("transactions", value)
        producer.flush(PATIENCE_S)
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    assert values(broker, "transactions") == [b"committed"]


def test_a_missing_topic_is_named(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="nothing-here"):
        broker.consume("nothing-here")


def test_reset_removes_topics_and_groups_with_members(broker: Broker) -> None:
    broker.produce("orders", ["one"])
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    first = consumer.poll(PATIENCE_S)
    assert first is not None
    assert first.value() == b"one"
    consumer.commit(asynchronous=False)
    broker.reset()
    broker.produce("orders", ["two"])
    assert values(broker, "orders") == [b"two"]
    consumer.close()
    again = Consumer(settings)
    again.subscribe(["orders"])
    second = again.poll(PATIENCE_S)
    again.close()
    assert second is not None
    assert second.value() == b"two"


def test_a_killed_broker_comes_back_with_its_address_and_records() -> None:
    with Broker() as broker:
        address = broker.bootstrap_servers
        broker.produce("orders", ["kept"])
        broker.kill()
        with pytest.raises(BrokerError, match="not running"):
            broker.consume("orders")
        broker.restart()
        assert broker.bootstrap_servers == address
        assert values(broker, "orders") == [b"kept"]
        broker.restart()  # a clean one
        assert values(broker, "orders") == [b"kept"]


def test_a_paused_broker_does_not_respond_until_it_is_resumed(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    broker.create_topic("paused")
    producer.produce("paused", b"first")
    assert producer.flush(PATIENCE_S) == 0
    with broker.pause():
        producer.produce("paused", b"second")
        assert producer.flush(0.3) == 1
    assert producer.flush(PATIENCE_S) == 0
    assert values(broker, "paused") == [b"first", b"second"]


def test_a_paused_broker_refuses_commands_at_once_and_lives_on(broker: Broker) -> None:
    broker.produce("paused", ["kept"])
    with broker.pause():
        for command in (
            lambda: broker.consume("paused", timeout_s=2),
            lambda: broker.produce("paused", ["x"]),
            lambda: broker.create_topic("other"),
            broker.reset,
        ):
            with pytest.raises(BrokerError, match=r"the broker is paused: call resume\(\) before \w+$"):
                command()
    assert values(broker, "paused") == [b"kept"]


def test_consume_ends_in_time_if_the_broker_does_not_respond(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milena_broker.testing.operations.RESPONSE_DELAY_MAX_S", 0.05)
    broker.produce("halted", ["kept"])
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BrokerError, match=r"^no response within 0\.1 s"):
            broker.consume("halted", timeout_s=0.05)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert values(broker, "halted") == [b"kept"]


def test_writes_to_a_slow_disk_take_longer(broker: Broker) -> None:
    broker.produce("slow", ["warm"])
    with broker.slow_disk(150):
        begin = time.monotonic()
        broker.produce("slow", ["slow"])
        assert time.monotonic() - begin >= 0.15
    assert len(broker.consume("slow")) == 2


def test_files_of_json_lines_and_csv_are_seeds(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"id": 1}\n\n{"key": "k", "value": {"id": 2}}\n"text"\n')
    (tmp_path / "records.csv").write_text("key,value,partition\na,first,1\n,second,0\n")
    (tmp_path / "flights.csv").write_text("carrier,delay\nAA,5\n")
    seed = {name: tmp_path / f"{name}" for name in ("orders.jsonl", "records.csv", "flights.csv")}
    with Broker(topics={"records.csv": 2}, seed=seed) as broker:
        assert values(broker, "orders.jsonl") == [b'{"id": 1}', b'{"id": 2}', b"text"]
        assert [record[1:3] + record[4:6] for record in broker.consume("records.csv")] == [
            (0, 0, None, b"second"),
            (1, 0, b"a", b"first"),
        ]
        assert [record.json() for record in broker.consume("flights.csv")] == [{"carrier": "AA", "delay": "5"}]


def test_a_damaged_seed_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"id": 1}\n{"id"\n')
    with pytest.raises(ValueError, match=r"orders.jsonl:2: expected one JSON value a line"):
        Broker(seed={"orders": tmp_path / "orders.jsonl"}).start()


def test_a_wrong_setting_is_reported_with_the_broker_gone() -> None:
    broker = Broker({"log.retention.ms": "never"})
    with pytest.raises(BrokerError, match=r"never.*log\.retention\.ms"):
        broker.start()
    with pytest.raises(BrokerError, match="not started"):
        _ = broker.log


def test_a_given_folder_keeps_the_data(tmp_path: Path) -> None:
    with Broker(folder=tmp_path / "kept") as broker:
        broker.produce("orders", ["kept"])
    assert (tmp_path / "kept" / "data-0" / ".kafka_cleanshutdown").exists(), "the next start checks no log"
    with Broker(folder=tmp_path / "kept") as broker:
        assert values(broker, "orders") == [b"kept"]


def test_temporary_data_is_removed_at_the_end() -> None:
    with Broker() as broker:
        folder = broker.log.parent
        assert folder.is_dir()
    assert not folder.exists()


def test_brokers_of_a_cluster_replicate_without_zookeeper() -> None:
    with Cluster(3) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        cluster.create_topic("orders", 3, configs={"min.insync.replicas": 2})
        cluster.produce("orders", [str(number) for number in range(30)])
        cluster.stop_broker(1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for number in range(30):
            producer.produce("orders", str(number))
        assert producer.flush(PATIENCE_S) == 0
        assert len(cluster.consume("orders", 60)) == 60
        cluster.start_broker(1)
        assert len(cluster.consume("orders", 60)) == 60
        with pytest.raises(BrokerError, match="broker 7"):
            cluster.stop_broker(7)


PARENT = """
import os, signal, sys, time
from milena_broker.testing import Broker

broker = Broker().start()
print(broker.pid, broker.log.parent, flush=True)
if "paused" in sys.argv:
    broker.pause()
match sys.argv[1]:
    case "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    case "exits":
        os._exit(3)
    case "interrupted":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    case "raises":
        raise RuntimeError
"""


@pytest.mark.parametrize("end", ["killed", "killed paused", "exits", "interrupted", "raises"])
def test_a_broker_is_gone_with_its_parent(end: str) -> None:
    parent = subprocess.run(
        [sys.executable, "-P", "-c", PARENT, *end.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert parent.returncode != 0
    pid, folder = parent.stdout.split()
    deadline_s = time.monotonic() + PATIENCE_S
    while Path(folder).exists() or is_running(int(pid)):
        assert time.monotonic() < deadline_s, f"broker {pid} or its data outlived the test process"
        time.sleep(0.02)


def test_importing_the_package_imports_no_module_of_the_broker() -> None:
    code = (
        "import sys, json, milena_broker.testing, milena_broker.pytest_plugin; print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {name.partition(".")[0] for name in json.loads(run.stdout)}
    assert not imported & {
        "base",
        "broker",
        "config",
        "controller",
        "protocol",
        "storage",
        "tools",
        "confluent_kafka",
        "uvloop",
    }


def test_the_plugin_imports_no_broker_before_a_test_uses_one() -> None:
    code = "import sys, milena_broker.pytest_plugin; print([n for n in sys.modules if n.startswith('milena_broker')])"
    run = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "['milena_broker', 'milena_broker.pytest_plugin']\n"


def test_a_broker_that_dies_is_reported_with_its_log(broker: Broker) -> None:
    with Broker() as dying:
        os.kill(dying.pid, signal.SIGKILL)
        with pytest.raises(BrokerError, match="the broker has ended; its log ends:\n"):
            dying.produce("orders", ["lost"])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_thousand_brokers_start_under_eight_workers(tmp_path: Path) -> None:
    (tmp_path / "test_starts.py").write_text(
        "import pytest\n"
        "from milena_broker.testing import Broker\n"
        "@pytest.mark.parametrize('number', range(2000))\n"
        "def test_start(number):\n"
        "    with Broker() as broker:\n"
        "        broker.produce('t', ['x'])\n"
        "        assert len(broker.consume('t')) == 1\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-n", "8", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert "2000 passed" in run.stdout
