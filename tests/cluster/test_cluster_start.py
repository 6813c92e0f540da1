"""kafka-cluster-start with real servers: a killed broker returns, records survive, and SIGTERM stops all in order."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.load import PRODUCER_SETTINGS, read_topic
from tests.docs.console_blocks import ROOT, Command, blocks, run
from tests.support.broker import BrokerProcess

PAGE = (ROOT / "docs" / "growing.md").read_text(encoding="utf-8")
TIMEOUT_S = 30
RECORDS = 200
OVERRIDES = ("zookeeper.session.timeout.ms=60000", "controlled.shutdown.retry.backoff.ms=100")
"""The session of the killed broker would last longer than the test waits: the supervisor ends it."""


BROKERS = 4


def section(title: str) -> list[list[Command]]:
    """Return the blocks of commands of a section of docs/growing.md."""
    return list(blocks(re.split(r"\n##+ ", PAGE.partition(f"# {title}\n")[2])[0]))


def start_one_broker(folder: Path) -> None:
    """Run the broker of `From one broker` until it has a topic with a record and a group with an offset."""
    with BrokerProcess(folder / "var", {"offsets.topic.num.partitions": "3"}, broker_id=1) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"1", partition=0)
        producer.flush(TIMEOUT_S)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()


def test_cluster_grows_from_one_broker_survives_a_kill_and_stops_in_order(tmp_path: Path) -> None:
    """The commands are those of docs/growing.md, with one broker more, which is taken out of service at the end."""
    start_one_broker(tmp_path)
    ((stop, copy, move, start),) = section("From one broker")
    assert stop.line == "bin/kafka-server-stop --wait"  # it is stopped already, and others have brokers, too
    for command in (copy, move):
        run(command.line, tmp_path, {})
    assert start.line == "bin/kafka-cluster-start -n 3 --data var/cluster"
    command = [sys.executable, "-P", "-m", "tools.launch.cluster_start", "-n", str(BROKERS), "--data", "var/cluster"]
    command += ["--port", "0", "--zookeeper-port", "0", *(f"--override={it}" for it in OVERRIDES)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as supervisor:
        assert supervisor.stdout is not None
        lines: list[str] = []

        def line_with(pattern: str) -> str:
            """Return the next line that matches, or the end of a group in it."""
            for line in supervisor.stdout or ():
                lines.append(line.split(" ", 1)[1].rstrip())
                if found := re.search(pattern, line):
                    return found[found.lastindex or 0]
            raise AssertionError(f"{pattern} is not among {lines}")

        try:
            coordination = line_with(r"coordination starts: process \d+, (\S+),")
            bootstrap = line_with(r"bootstrap\.servers=(\S+)")
            _produce_while(bootstrap, lambda: os.kill(_pid_of(lines, "broker-2"), signal.SIGKILL))
            line_with("broker-2 ended by SIGKILL and starts again in 1 s")
            line_with("broker-2 serves")
            assert len([line for line in lines if line.startswith("broker-2 ended")]) == 1, "its restart waits"
            _grow(tmp_path, bootstrap, coordination)
            os.kill(_pid_of(lines, "broker-4"), signal.SIGTERM)  # as kafka-server-stop does
            line_with("broker-4 ended with status 0")
            records = read_topic(bootstrap, "numbers", 3)
            assert sorted(number for pairs in records.values() for _, number in pairs) == list(range(RECORDS))
        finally:
            supervisor.send_signal(signal.SIGTERM)
            rest, _ = supervisor.communicate(timeout=TIMEOUT_S)
    stopped = re.findall(r"(\S+) ended with status 0", rest)
    assert stopped == ["broker-3", "broker-2", "broker-1", "coordination"]
    assert supervisor.returncode == 0
    assert rest.splitlines()[-1].split(" ")[1] == "coordination"


def _grow(folder: Path, bootstrap: str, coordination: str) -> None:
    """Raise the replication of all topics, check the coordination server, and empty broker 4."""
    variables = {"bootstrap": bootstrap}
    (raising,) = section("From one to three replicas")
    assert raising[0].line.startswith("bootstrap=")
    *_, under_replicated, _ = [run(command.line, folder, variables) for command in raising[1:]]
    assert under_replicated == ""
    described = run("bin/kafka-topics --bootstrap-server $bootstrap --describe", folder, variables)
    replicas = re.findall(r"Replicas: (\S+)", described)
    assert {len(each.split(",")) for each in replicas} == {3}
    assert described.count("Topic: __consumer_offsets\tPartition:") == 3

    (checks,) = section("The ensemble")
    host, _, port = coordination.rpartition(":")
    shown = [run(it.line.replace("127.0.0.1:2181", coordination), folder, {}) for it in checks if "nc " not in it.line]
    assert "[1, 2, 3, 4]" in shown[0]
    assert '"brokerid":' in shown[1]
    with socket.create_connection((host, int(port)), TIMEOUT_S) as asked:  # as `echo srvr | nc` does
        asked.sendall(b"srvr")
        assert b"Mode: standalone" in asked.makefile("rb").read()

    (leaving,) = section("Take a broker out of service")
    assert leaving[-1].line == "bin/kafka-server-stop --node-id 4 --wait"
    *_, log_dirs = [run(command.line, folder, variables) for command in leaving[:-1]]
    (found,) = json.loads(log_dirs.splitlines()[-1])["brokers"]
    assert [each["partitions"] for each in found["logDirs"]] == [[]]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    (committed,) = consumer.committed([TopicPartition("orders", 0)], TIMEOUT_S)
    consumer.close()
    assert committed.offset == 1


def _pid_of(lines: list[str], name: str) -> int:
    (pid,) = (found[1] for line in lines if (found := re.match(rf"{name} starts: process (\d+),", line)))
    return int(pid)


def _produce_while(bootstrap: str, kill: Callable[[], None]) -> None:
    """Produce numbered records, call `kill` in the middle, and read them all."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("numbers", 3)])["numbers"].result(TIMEOUT_S)
    producer = Producer({**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    failed: list[object] = []
    for number in range(RECORDS):
        if number == RECORDS // 2:
            kill()
        producer.produce(
            "numbers", str(number), partition=number % 3, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    records = read_topic(bootstrap, "numbers", 3)
    assert sorted(number for pairs in records.values() for _, number in pairs) == list(range(RECORDS))
