"""Kafka Streams applications: each record counts once, also if broker or application is killed; a reset starts over."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.interop.conftest import RunKafkaTool, Server, StartServer, create_topic
from tests.interop.streams import StreamsHost
from tests.support.apache_kafka import VERSION
from tests.support.broker import ROOT, BrokerProcess
from tests.support.parts import skip_when_unavailable

# The first exactly_once, of a producer per task, went with 4.0; exactly_once_v2 was called beta before 3.0.
APPLICATIONS = (
    ("2.8.2", "exactly_once"),
    ("2.8.2", "exactly_once_beta"),
    (VERSION, "exactly_once_v2"),
    ("4.1.0", "exactly_once_v2"),
)
PROGRAM = "WordsAndPairs"
PARTITIONS = 3
DEADLINE_S = 120
WORDS = ("one", "two", "three", "four", "five")
WRITE_INTERVAL_S = 0.005
TURN = 100
"""The number of lines to count between two events."""
KAFKA_RESET = "org.apache.kafka.tools.StreamsResetter"


def client(bootstrap: str) -> dict[str, object]:
    """A client that logs nothing while its broker is down."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def start_application(host: StreamsHost, bootstrap: str, name: str, guarantee: str) -> None:
    """Start `WordsAndPairs`; return when it has its tasks."""
    settings = {"processing.guarantee": guarantee, "repartition.purge.interval.ms": 100}
    host.start(name, PROGRAM, bootstrap, f"{name}-", settings)
    host.running(name)


class Writer:
    """Repeatedly writes a line with every word, and one record for each side of the join."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.lines = 0
        self._name = name
        self._producer = Producer(
            {**client(bootstrap), "enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 200}
        )
        self._is_enough = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._is_enough.wait(WRITE_INTERVAL_S):
            key = str(self.lines)
            self._producer.produce(f"{self._name}-lines", key=key, value=" ".join(WORDS))
            for side in ("left", "right"):
                self._producer.produce(f"{self._name}-{side}", key=key, value=side + key)
            self._producer.poll(0)
            self.lines += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_enough.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0


class Results:
    """What an application has written and committed."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self.joined: list[str] = []
        self._counts_topic = f"{name}-counts"
        self._consumer = Consumer({**client(bootstrap), "group.id": "nobody", "enable.auto.commit": False})
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in (self._counts_topic, f"{name}-joined")
                for partition in range(PARTITIONS)
            ]
        )

    def read_until(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_there():
            assert time.monotonic() < deadline, f"{self.counted} lines counted, {len(self.joined)} joined"
            self._read(0.1)

    def read_until_counted(self, lines: int) -> None:
        """Read until that many lines are counted."""
        self.read_until(lambda: self.counted >= lines)

    def read_on(self) -> None:
        """Read for a short time, to detect unexpected records."""
        self._read(1)

    def _read(self, timeout_s: float) -> None:
        for message in self._consumer.consume(500, timeout_s):
            if message.error() is not None:
                continue  # the broker is down
            if message.topic() == self._counts_topic:
                self.counts[message.key().decode()].append(int(message.value()))
            else:
                self.joined.append(message.value().decode())

    @property
    def counted(self) -> int:
        return min((len(self.counts[word]) for word in WORDS), default=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def create_topics(bootstrap: str, name: str) -> None:
    for each in ("lines", "left", "right", "counts", "joined"):
        create_topic(bootstrap, f"{name}-{each}", PARTITIONS)


def restart(server: Server) -> None:
    """Restart after kill -9; Apache Kafka starts only after ZooKeeper has expired the killed broker's session."""
    server.kill()
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            server.start()
            return
        except RuntimeError:
            assert time.monotonic() < deadline


def count_while_killing(server: Server, name: str, folder: Path, *, version: str, guarantee: str, rounds: int) -> None:
    """Kill the application and the broker alternately; each line must be counted once."""
    create_topics(server.bootstrap, name)
    with StreamsHost(folder, PROGRAM, version=version) as host, Results(server.bootstrap, name) as results:
        start_application(host, server.bootstrap, name, guarantee)
        with Writer(server.bootstrap, name) as writer:
            for turn in range(1, 2 * rounds + 1):
                results.read_until_counted(turn * TURN)
                if turn % 2:
                    host.restart()
                    start_application(host, server.bootstrap, name, guarantee)
                else:
                    restart(server)
            results.read_until_counted((2 * rounds + 1) * TURN)
        results.read_until(lambda: results.counted >= writer.lines and len(results.joined) >= writer.lines)
        results.read_on()
        host.end()
        assert results.counts == {word: list(range(1, writer.lines + 1)) for word in WORDS}
        assert sorted(results.joined) == sorted(f"left{line}+right{line}" for line in range(writer.lines))


def test_each_record_counts_once_after_kills(tmp_path: Path) -> None:
    with skip_when_unavailable(), BrokerProcess(tmp_path / "broker") as broker:
        count_while_killing(broker, "killed", tmp_path, version=VERSION, guarantee="exactly_once_v2", rounds=1)


@pytest.mark.soak
@pytest.mark.parametrize(("version", "guarantee"), APPLICATIONS)
def test_applications_of_any_version_count_each_record_once(
    start_server: StartServer, tmp_path: Path, version: str, guarantee: str
) -> None:
    with start_server({"zookeeper.session.timeout.ms": "4000"}) as server:
        count_while_killing(server, "killed-often", tmp_path, version=version, guarantee=guarantee, rounds=4)


def test_internal_topics_are_created_and_reset(server: Server, tmp_path: Path, run_kafka_tool: RunKafkaTool) -> None:
    name = "internal"
    create_topics(server.bootstrap, name)
    lines = 0
    with StreamsHost(tmp_path, PROGRAM) as host:
        for turn in (1, 2):
            start_application(host, server.bootstrap, name, "exactly_once_v2")
            with Results(server.bootstrap, name) as results:
                if turn == 1:
                    with Writer(server.bootstrap, name) as writer:
                        results.read_until_counted(TURN)
                        wait_until_purged(server.bootstrap, f"{name}-counts-repartition")
                    lines = writer.lines
                results.read_until_counted(turn * lines)
                host.stop(name)
                results.read_on()
            assert results.counts == {word: [*range(1, lines + 1)] * turn for word in WORDS}
            assert cleanup_policies(server.bootstrap, name) == {
                f"{name}-counts-repartition": "delete",
                f"{name}-counts-changelog": "compact",
                f"{name}-pairs-this-join-store-changelog": "delete",
                f"{name}-pairs-other-join-store-changelog": "delete",
            }
            # The first reset is ours: the second run shows that it counts everything again.
            reset(server.bootstrap, name, run_own_reset if turn == 1 else partial(run_kafka_tool, KAFKA_RESET))
            assert cleanup_policies(server.bootstrap, name) == {}
            host.forget(name)


def wait_until_purged(bootstrap: str, topic: str) -> None:
    """Wait until counted records are deleted from a repartition topic."""
    consumer = Consumer({**client(bootstrap), "group.id": "nobody"})
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    deadline = time.monotonic() + DEADLINE_S
    while not any(consumer.get_watermark_offsets(partition)[0] for partition in partitions):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    consumer.close()


def cleanup_policies(bootstrap: str, name: str) -> dict[str, str]:
    """Return the cleanup policies of the application's internal topics."""
    admin = AdminClient(client(bootstrap))
    internal = [
        ConfigResource(ResourceType.TOPIC, topic)
        for topic in admin.list_topics().topics
        if topic.startswith(name) and topic.endswith(("-repartition", "-changelog"))
    ]
    described = admin.describe_configs(internal) if internal else {}
    return {topic.name: found.result()["cleanup.policy"].value for topic, found in described.items()}


def wait_until_left(bootstrap: str, name: str) -> None:
    """Wait until the session of the application's members expires: they do not leave at its end."""
    admin = AdminClient(client(bootstrap))
    deadline = time.monotonic() + DEADLINE_S
    while admin.describe_consumer_groups([name])[name].result().members:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def run_own_reset(*arguments: str) -> Sequence[str]:
    command = [sys.executable, "-P", "-m", "tools.admin.streams_application_reset", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=DEADLINE_S)
    return finished.stdout.splitlines()


def reset(bootstrap: str, name: str, run: Callable[..., Sequence[str]]) -> None:
    wait_until_left(bootstrap, name)
    arguments = ("--bootstrap-server", bootstrap, "--application-id", name)
    topics = ("--input-topics", f"{name}-lines,{name}-left,{name}-right")
    lines = run(*arguments, *topics)
    assert lines.count("Done.") == 2, lines
