"""kafka-lag and kafka-monitor with a real broker and a real group."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.broker import BrokerProcess
from tests.support.forked_programs import running_program
from tests.tools.conftest import RunTool
from tools.monitoring import lag
from tools.monitoring.lag import burrow

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60


@contextmanager
def watching(module: str, *arguments: str) -> Iterator[str]:
    """Run a tool that serves HTTP; the value is its address."""
    with running_program(f"tools.{module}", ["--listen", "127.0.0.1:0", *arguments]) as (process, output):
        line = output.readline()
        found = re.search(r"listens on (\S+)", line)
        assert found, line
        try:
            yield found[1]
        finally:
            process.terminate()
            assert process.wait(30) == 0


def get(address: str, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def until(address: str, path: str, text: str) -> str:
    deadline_s = time.monotonic() + DEADLINE_S
    while text not in (found := get(address, path)):
        assert time.monotonic() < deadline_s, found
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def group(broker: BrokerProcess) -> str:
    """Ten records in `lag-topic` that are an hour old, of which the group has committed three."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    time_ms = int((time.time() - 3600) * 1000)
    for _ in range(10):
        producer.produce("lag-topic", b"x", partition=0, timestamp=time_ms)
    assert producer.flush(20) == 0
    commit(broker, 3)
    return "lag-group"


def commit(broker: BrokerProcess, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "lag-group"})
    consumer.commit(offsets=[TopicPartition("lag-topic", 0, offset)], asynchronous=False)
    consumer.close()


def test_lag_is_served_to_prometheus_and_as_burrow_does(broker: BrokerProcess, group: str) -> None:
    options = ("--bootstrap-server", broker.bootstrap, "--interval-ms", "300", "--group", "^lag-group$")
    with watching("monitoring.lag", *options) as address:
        labels = f'cluster="default",consumergroup="{group}",topic="lag-topic",partition="0"'
        text = until(address, "/metrics", f"kafka_consumergroup_lag{{{labels}}} 7\n")
        assert f"kafka_consumergroup_current_offset{{{labels}}} 3\n" in text
        assert re.search(
            rf"^kafka_consumergroup_lag_seconds{re.escape(f'{{{labels}}}')} 3[67]\d\d\.", text, re.MULTILINE
        )
        assert f'kafka_consumergroup_members{{cluster="default",consumergroup="{group}"}} 0\n' in text
        assert 'kafka_topic_partition_current_offset{cluster="default",topic="lag-topic",partition="0"} 10\n' in text
        commit(broker, 8)
        until(address, "/metrics", f"kafka_consumergroup_lag{{{labels}}} 2\n")
        time.sleep(1)
        path = f"/v3/kafka/default/consumer/{group}"
        status = json.loads(until(address, f"{path}/lag", '"offset": 8'))["status"]
        assert (status["totallag"], status["partition_count"]) == (2, 1)
        assert status["partitions"][0]["end"]["offset"] == 8
        assert json.loads(get(address, "/v3/kafka"))["clusters"] == ["default"]
        assert group in json.loads(get(address, "/v3/kafka/default/consumer"))["consumers"]
        assert json.loads(get(address, "/v3/kafka/default/consumer/none/lag"))["error"] is True


def test_one_time_prints_the_current_lag_as_a_table(broker: BrokerProcess, group: str, run: RunTool) -> None:
    outcome = run(lag.main, "--cluster", f"c={broker.bootstrap}", "--group", "^lag-group$", "--one-time")
    assert outcome.status == 0
    head, row = outcome.stdout.splitlines()
    assert head.split() == ["CLUSTER", "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert row.split()[:4] == ["c", "lag-group", "lag-topic", "0"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--one-time",), 'Missing required argument "[bootstrap-server]"'),
        (("--cluster", "x"), "Cannot parse argument 'x' of option cluster"),
        (("--bootstrap-server", "h:1", "--group", "("), "Cannot parse argument '(' of option group"),
        (("--bootstrap-server", "h:1", "--window", "1"), "window of at least 2"),
        (("--bootstrap-server", "h:1", "--listen", "x"), "of option listen"),
    ],
)
def test_wrong_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(lag.main, *arguments)
    assert outcome.status == 1
    assert text in outcome.stderr


def test_unknown_paths_are_404() -> None:
    for path in ([], ["v3"], ["v3", "kafka", "x", "consumer"], ["metrics", "x"]):
        assert burrow({}, path)[0] == 404


def test_the_monitor_reports_each_broker(broker: BrokerProcess) -> None:
    with watching(
        "monitoring.monitor", "--bootstrap-server", broker.bootstrap, "--topic", "probe", "--interval-ms", "50"
    ) as address:
        text = until(address, "/metrics", "kafka_monitor_consume_availability{broker=")
        assert re.search(r'^kafka_monitor_produce_availability\{broker="\d+"\} 1\.0$', text, re.MULTILINE)
        assert re.search(r'^kafka_monitor_consume_availability\{broker="\d+"\} 1\.0$', text, re.MULTILINE)
        assert "kafka_monitor_end_to_end_latency_seconds_count" in text
