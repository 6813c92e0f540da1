"""kafka-monitor: produces and consumes continuously through every broker, and reports availability and latency.

It keeps a topic with one partition that each broker leads, sends a record to each partition every interval, and reads
all of them back. Figures are served to Prometheus.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as LibraryPartition

from broker.metrics.prometheus import pieces
from broker.metrics.registry import Registry
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tools.admin_client import AdminClient, CallTimedOut, raise_for
from tools.admin_options import add_admin_options, admin_client
from tools.client_settings import library_settings, load_settings
from tools.command_line import CommandLine, StopRequest, UsageError, run_tool, warn
from tools.metrics_server import PROMETHEUS, MetricsServer, Response
from tools.monitor_probe import Probe

DEFAULT_TOPIC: Final = "milena-monitor"
DEFAULT_LISTEN: Final = "127.0.0.1:9309"
ENSURE_S: Final = 10.0
DELIVERY_TIMEOUT_MS: Final = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-monitor", "Produce and consume continuously, and report availability and latency.")
    add_admin_options(line)
    line.add_option(
        "--topic",
        value="topic",
        default=DEFAULT_TOPIC,
        help_text=f"The topic to use; it is created. (default: {DEFAULT_TOPIC})",
    )
    line.add_option(
        "--replication-factor",
        value="n",
        parse=int,
        default=1,
        help_text="Replicas of each partition when it is created. (default: 1)",
    )
    line.add_option(
        "--interval-ms",
        value="ms",
        parse=int,
        default=100,
        help_text="Milliseconds between two records of a partition. (default: 100)",
    )
    line.add_option(
        "--late-ms",
        value="ms",
        parse=int,
        default=20_000,
        help_text="A record that takes longer counts as lost. (default: 20000)",
    )
    line.add_option(
        "--listen",
        value="host:port",
        default=DEFAULT_LISTEN,
        help_text=f"The address of /metrics. (default: {DEFAULT_LISTEN})",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server")
    if options.interval_ms <= 0 or options.late_ms <= 0 or options.replication_factor <= 0:
        raise UsageError("Expected interval-ms, late-ms and replication-factor above 0")
    probe = Probe(options.late_ms / 1000)
    registry = Registry(probe.metrics(), time.monotonic)
    try:
        server = MetricsServer(options.listen, partial(_respond, registry))
    except OSError as error:
        print(f"Error: cannot listen on {options.listen}: {error.strerror}", file=sys.stderr)
        return 1
    stopped = threading.Event()
    with admin_client(options, timeout_ms=DELIVERY_TIMEOUT_MS) as admin, server, StopRequest(stopped.set):
        print(f"kafka-monitor listens on {server.address}", flush=True)
        Traffic(admin, options, probe).run(stopped)
    return 0


def _respond(registry: Registry, path: Sequence[str]) -> Response:
    if list(path) != ["metrics"]:
        return Response(404, "not found; expected /metrics\n", "text/plain")
    return Response(200, "".join(pieces(registry, with_partitions=True, is_open_metrics=False)), PROMETHEUS)


class Traffic:
    """Sends records and reads them back."""

    def __init__(self, admin: AdminClient, options: argparse.Namespace, probe: Probe) -> None:
        self._admin = admin
        self._topic: str = options.topic
        self._replication_factor: int = options.replication_factor
        self._interval_s = options.interval_ms / 1000
        self._probe = probe
        settings = {**load_settings(options.command_config, []), "bootstrap.servers": options.bootstrap_server}
        self._producer = Producer(
            {
                **library_settings(settings, is_consumer=False),
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            }
        )
        self._consumer = Consumer(
            {
                **library_settings({**settings, "group.id": "kafka-monitor"}, is_consumer=True),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._numbers = count()
        self._leaders: dict[int, int] = {}

    def run(self, stopped: threading.Event) -> None:
        """Send and read until `stopped`."""
        reading = threading.Thread(target=self._read, args=(stopped,), name="consumer", daemon=True)
        ensure_s = 0.0
        try:
            while not stopped.is_set():
                now_s = time.monotonic()
                if now_s >= ensure_s:
                    self._ensure()
                    ensure_s = now_s + ENSURE_S
                    if self._leaders and not reading.ident:
                        reading.start()
                for partition, broker_id in self._leaders.items():
                    self._send(partition, broker_id)
                self._producer.poll(0)
                self._probe.expire(time.monotonic())
                stopped.wait(max(now_s + self._interval_s - time.monotonic(), 0))
            self._producer.flush(2)
        finally:
            stopped.set()
            if reading.ident:
                reading.join(5)
            self._consumer.close()

    def _ensure(self) -> None:
        """Have one partition for each broker, and learn who leads which."""
        try:
            metadata = self._admin.metadata([self._topic])
            brokers = sorted(broker.node_id for broker in metadata.brokers)
            topic = metadata.topics[0]
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._create(brokers)
            else:
                raise_for(topic.error_code)
                preferred = {it.replica_nodes[0] for it in topic.partitions if it.replica_nodes}
                missing = [broker for broker in brokers if broker not in preferred]
                if missing:
                    self._add(len(topic.partitions), missing, brokers)
            topic = self._admin.metadata([self._topic]).topics[0]
            leaders = {it.partition_index: it.leader_id for it in topic.partitions if it.leader_id >= 0}
            if leaders.keys() != self._leaders.keys() and leaders:
                known = {it.partition: it for it in self._consumer.assignment()}
                self._consumer.incremental_assign(
                    [LibraryPartition(self._topic, partition, -1) for partition in leaders.keys() - known.keys()]
                )
            if leaders:
                self._leaders = leaders
                self._probe.forget(set(leaders.values()))
        except (KafkaError, CallTimedOut, KafkaException) as error:
            warn(f"the topic {self._topic} cannot be checked: {error}")  # the records go on and show what fails

    def _create(self, brokers: Sequence[int]) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=self._replicas(broker, brokers))
            for index, broker in enumerate(brokers)
        ]
        topic = CreatableTopic(
            name=self._topic, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=DELIVERY_TIMEOUT_MS)
        (result,) = self._admin.call_controller(
            request, CreateTopicsResponse, lambda response: [it.error_code for it in response.topics]
        ).topics
        raise_for(result.error_code, result.error_message)

    def _add(self, present: int, missing: Sequence[int], brokers: Sequence[int]) -> None:
        topic = CreatePartitionsTopic(
            name=self._topic,
            count=present + len(missing),
            assignments=[CreatePartitionsAssignment(broker_ids=self._replicas(it, brokers)) for it in missing],
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=DELIVERY_TIMEOUT_MS, validate_only=False)
        (result,) = self._admin.call_controller(
            request, CreatePartitionsResponse, lambda response: [it.error_code for it in response.results]
        ).results
        raise_for(result.error_code, result.error_message)

    def _replicas(self, first: int, brokers: Sequence[int]) -> list[int]:
        """Return the replicas of a partition, its preferred leader first."""
        start = brokers.index(first)
        size = min(self._replication_factor, len(brokers))
        return [brokers[(start + step) % len(brokers)] for step in range(size)]

    def _send(self, partition: int, broker_id: int) -> None:
        number, sent_s = next(self._numbers), time.monotonic()

        def done(error: object, message: Message) -> None:
            self._probe.sent(broker_id, number, sent_s, time.monotonic(), is_acknowledged=error is None)

        value = json.dumps({"number": number, "broker": broker_id, "sent_s": sent_s})
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=done)
        except (BufferError, KafkaException):
            self._probe.sent(broker_id, number, sent_s, time.monotonic(), is_acknowledged=False)

    def _read(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            record = _record(message.value())
            if record is not None:
                broker, number, sent_s = record
                self._probe.received(broker, number, sent_s, time.monotonic())


def _record(value: bytes | None) -> tuple[int, int, float] | None:
    """Return broker, number and time of a record of this tool, None for others."""
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(found, Mapping):
        return None
    broker, number, sent_s = found.get("broker"), found.get("number"), found.get("sent_s")
    if isinstance(broker, int) and isinstance(number, int) and isinstance(sent_s, float):
        return broker, number, sent_s
    return None


if __name__ == "__main__":
    raise SystemExit(main())
