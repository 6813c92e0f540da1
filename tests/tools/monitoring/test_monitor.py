"""kafka-monitor: the topic, the threads and the figures, with brokers that come and go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tools.client.admin_client import CallTimedOut
from tools.monitoring.monitor import ensure_once
from tools.monitoring.monitor_probe import Probe
from tools.monitoring.monitor_topic import END, MonitorTopic, Route
from tools.monitoring.monitor_traffic import Receiver, Sender


class FakeCluster:
    """Brokers that are alive, and the partitions of one topic; an election makes the first replica the leader."""

    request_timeout_ms = 1000

    def __init__(self, *brokers: int) -> None:
        self.alive = set(brokers)
        self.partitions: list[MetadataResponsePartition] = []

    def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        for it in self.partitions:
            it.isr_nodes = [each for each in it.replica_nodes if each in self.alive]
            if it.leader_id not in self.alive:
                it.leader_id = next(iter(it.isr_nodes), -1)
        code = ErrorCode.NONE if self.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=each, host="h", port=each) for each in sorted(self.alive)],
            topics=[MetadataResponseTopic(name=topics[0], error_code=code, partitions=self.partitions)],
        )

    def call_controller(self, request: object, response: type[object], codes: Callable[[Any], object]) -> object:
        match request:
            case CreateTopicsRequest():
                self._add([each.broker_ids for each in request.topics[0].assignments])
                return CreateTopicsResponse(topics=[CreatableTopicResult(name="m")])
            case CreatePartitionsRequest():
                self._add([each.broker_ids for each in request.topics[0].assignments or ()])
                return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="m")])
            case ElectLeadersRequest():
                assert request.election_type == 0
                for number in (request.topic_partitions or [])[0].partitions:
                    self.partitions[number].leader_id = self.partitions[number].replica_nodes[0]
                return ElectLeadersResponse()
        raise AssertionError(request)

    def list_offsets_once(
        self, timestamps: Mapping[tuple[str, int], int], *, broker_id: int
    ) -> dict[tuple[str, int], int | KafkaError]:
        if broker_id not in self.alive:
            raise ConnectionError(f"broker {broker_id} is not available")
        return {(topic, number): 40 + number for topic, number in timestamps}

    def _add(self, assignments: Sequence[list[int]]) -> None:
        for replicas in assignments:
            self.partitions.append(
                MetadataResponsePartition(
                    partition_index=len(self.partitions), leader_id=replicas[0], replica_nodes=replicas
                )
            )


def topic_of(cluster: FakeCluster, replication_factor: int = 1) -> MonitorTopic:
    return MonitorTopic(cluster, "m", replication_factor)  # type: ignore[arg-type]


def test_each_broker_owns_a_partition_also_one_that_joins_or_is_offline() -> None:
    cluster = FakeCluster(1, 2)
    topic = topic_of(cluster)
    assert topic.ensure() == {0: Route(1, True, 0), 1: Route(2, True, 0)}
    cluster.alive = {1, 3}
    assert topic.ensure() == {0: Route(1, True, 0), 1: Route(2, False, 0), 2: Route(3, True, 0)}
    cluster.alive = {1, 2, 3}
    assert topic.ensure() == {0: Route(1, True, 0), 1: Route(2, True, 0), 2: Route(3, True, 0)}


def test_leadership_moves_back_to_a_broker_that_returns() -> None:
    cluster = FakeCluster(1, 2, 3)
    topic = topic_of(cluster, 3)
    topic.ensure()
    cluster.alive = {1, 3}
    assert topic.ensure()[1] == Route(2, False, 0)
    assert cluster.partitions[1].leader_id == 3
    cluster.alive = {1, 2, 3}
    assert topic.ensure()[1] == Route(2, True, 0)


def test_records_of_earlier_runs_are_not_read() -> None:
    """The first records of a run would be missed if the consumer looked for the end after they were sent."""
    cluster = FakeCluster(1, 2, 3)
    topic_of(cluster).ensure()
    cluster.alive = {1, 2}
    topic = topic_of(cluster)
    for _ in range(2):
        assert topic.ensure() == {0: Route(1, True, 40), 1: Route(2, True, 41), 2: Route(3, False, END)}


class Message(NamedTuple):
    """A record that comes back."""

    data: bytes

    def error(self) -> None: ...

    def value(self) -> bytes:
        return self.data


class FakeLog:
    """A producer and a consumer of one log. Partitions in `offline` do not accept records."""

    def __init__(self) -> None:
        self.offline: set[int] = set()
        self.assigned: list[tuple[int, int]] = []
        self.threads: set[int] = set()
        self.blocks = threading.Event()
        self.blocks.set()
        self.is_polling = threading.Event()
        self.has_assigned = threading.Event()
        self.is_closed = False
        self._messages: list[Message] = []

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Callable[[object, object], None]) -> None:
        message = Message(value.encode())
        if partition in self.offline:
            on_delivery("timed out", message)
        else:
            self._messages.append(message)
            on_delivery(None, message)

    def flush(self, timeout_s: float) -> int:
        return 0

    def poll(self, timeout_s: float) -> Message | None:
        if not timeout_s:
            return None  # the producer's
        self.threads.add(threading.get_ident())
        self.is_polling.set()
        assert self.blocks.wait(30)
        return self._messages.pop(0) if self._messages else None

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        self.threads.add(threading.get_ident())
        self.assigned += [(each.partition, each.offset) for each in partitions]
        self.has_assigned.set()

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


class Monitor:
    """All parts of the tool on one clock, without threads."""

    def __init__(self, cluster: FakeCluster, replication_factor: int) -> None:
        self.now_s = 0.0
        self.log = FakeLog()
        self.probe = Probe(5.0)
        self.topic = topic_of(cluster, replication_factor)
        self.sender = Sender(self.log, "m", self.probe, lambda: self.now_s)  # type: ignore[arg-type]
        self.receiver = Receiver(self.log, "m", self.probe, lambda: self.now_s)  # type: ignore[arg-type]

    def ensure(self) -> None:
        ensure_once(self.topic, self.sender, self.receiver, self.probe)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += 1.0
            self.sender.step()
            for _ in range(len(self.sender.routes)):
                self.receiver.step()

    def availability(self, kind: str) -> dict[str, object]:
        (metric,) = (it for it in self.probe.metrics() if it.prometheus_name == f"kafka_monitor_{kind}_availability")
        return {sample[0][0]: sample[1] for sample in metric.read() if sample is not None}


@pytest.mark.parametrize("replication_factor", [1, 3])
def test_an_offline_broker_is_shown_with_availability_0(replication_factor: int) -> None:
    """With several replicas another broker accepts the records, which says nothing about the one that is offline."""
    cluster = FakeCluster(1, 2, 3)
    monitor = Monitor(cluster, replication_factor)
    monitor.ensure()
    monitor.run(100)
    assert monitor.availability("produce") == monitor.availability("consume") == {"1": 1.0, "2": 1.0, "3": 1.0}
    cluster.alive = {1, 3}
    monitor.log.offline = {1} if replication_factor == 1 else set()
    monitor.ensure()
    monitor.run(100)
    assert monitor.availability("produce") == monitor.availability("consume") == {"1": 1.0, "2": 0.0, "3": 1.0}
    cluster.alive, monitor.log.offline = {1, 2, 3}, set()
    monitor.ensure()
    monitor.run(100)
    assert monitor.availability("produce") == monitor.availability("consume") == {"1": 1.0, "2": 1.0, "3": 1.0}


def test_a_topic_that_cannot_be_checked_changes_no_route(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeCluster(1)
    monitor = Monitor(cluster, 1)
    monitor.ensure()
    for error in (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), CallTimedOut("late")):

        def metadata(topics: Sequence[str], failure: Exception = error) -> MetadataResponse:
            raise failure

        cluster.metadata = metadata  # type: ignore[method-assign]
        monitor.ensure()
    assert monitor.sender.routes == {0: Route(1, True, 0)}
    assert capsys.readouterr().err.count("the topic cannot be checked") == 2


def test_the_consumer_belongs_to_one_thread_and_blocks_no_other() -> None:
    monitor = Monitor(FakeCluster(1, 2), 1)
    log, stopped = monitor.log, threading.Event()
    log.blocks.clear()
    reading = threading.Thread(target=monitor.receiver.run, args=(stopped,))
    reading.start()
    assert log.is_polling.wait(30)
    monitor.ensure()  # returns although the consumer polls
    monitor.ensure()
    monitor.sender.step()
    assert monitor.availability("produce") == {"1": 1.0, "2": 1.0}
    assert log.assigned == []
    log.blocks.set()
    assert log.has_assigned.wait(30)
    stopped.set()
    reading.join(30)
    assert log.threads == {reading.ident}
    assert (log.assigned, log.is_closed) == ([(0, 0), (1, 0)], True)


def test_records_that_do_not_count_for_a_broker_are_not_received() -> None:
    monitor = Monitor(FakeCluster(), 1)
    for value in (b"", b"x", b"[]", json.dumps({"broker": None, "number": 1, "sent_s": 0.5}).encode()):
        monitor.log._messages.append(Message(value))
        monitor.receiver.step()
    assert monitor.availability("consume") == {}


def values(probe: Probe) -> dict[str, object]:
    return {metric.prometheus_name: next(iter(metric.read()), None) for metric in probe.metrics()}


def test_records_that_fail_or_are_late_lower_the_availability() -> None:
    probe = Probe(late_s=5.0)
    for number in range(4):
        probe.sent(1, number, 0.0, 0.1, is_acknowledged=number != 3)
    probe.received(1, 0, 0.0, 0.2)
    probe.received(1, 1, 0.0, 4.0)
    probe.expire(6.0)  # number 2 did not come back
    probe.received(1, 2, 0.0, 7.0)
    found = values(probe)
    assert found["kafka_monitor_produce_availability"] == (("1",), 0.75)
    assert found["kafka_monitor_consume_availability"] == (("1",), pytest.approx(2 / 3))
    assert found["kafka_monitor_records_late"] == (("1",), 1)


def test_a_record_may_come_back_before_its_acknowledgement() -> None:
    probe = Probe(late_s=5.0)
    probe.received(1, 0, 0.0, 0.1)
    probe.sent(1, 0, 0.0, 0.2, is_acknowledged=True)
    probe.expire(10.0)
    assert values(probe)["kafka_monitor_consume_availability"] == (("1",), 1.0)


def test_a_broker_without_records_has_no_availability_and_one_that_is_forgotten_no_figures() -> None:
    probe = Probe(late_s=5.0)
    probe.sent(1, 0, 0.0, 0.1, is_acknowledged=True)
    assert values(probe)["kafka_monitor_consume_availability"] is None, "the record may still come"
    probe.received(1, 0, 0.0, 0.2)
    probe.expire(100.0)
    assert values(probe)["kafka_monitor_produce_availability"] is None
    assert values(probe)["kafka_monitor_consume_availability"] is None
    assert values(probe)["kafka_monitor_records_produced"] == (("1",), 1)
    probe.keep(set())
    assert values(probe)["kafka_monitor_records_produced"] is None


def test_a_broker_that_acknowledges_nothing_delivers_nothing() -> None:
    probe = Probe(late_s=5.0)
    probe.sent(1, 0, 0.0, 0.1, is_acknowledged=False)
    assert values(probe)["kafka_monitor_produce_availability"] == (("1",), 0.0)
    assert values(probe)["kafka_monitor_consume_availability"] == (("1",), 0.0)
