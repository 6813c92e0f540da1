"""Groups of Kafka 4.1 at Milena and at Apache Kafka 4.1 without ZooKeeper: a thousand members, and share consumers.

    PYTHONPATH=. python -m bench.newer_groups [--rounds 3] [--only milena]

Each round starts both servers in new folders, in turn. In the first part a thousand members of the consumer protocol
(KIP-848), each on its own connection, join one group that reads a topic of a thousand partitions; every member sends
its next heartbeat when it has the response to the last one, until each has its partition. Then a tenth of them leaves,
and the rest continues until all partitions have an owner again. In the second part a hundred share consumers (KIP-932)
read and accept all records of a topic, each on its own connection, with one request under way.

The client is one process on the same cores; it takes more of them than either server, so the times are those of both,
and the CPU time is the server's alone. It prints the medians, with the smallest and the largest value, and the ratio of
Milena to Kafka.

Owns the loads and the report. Must not know how servers are started.
"""

from __future__ import annotations

import argparse
import selectors
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID, uuid4

from bench.admin import ask, create_topic
from bench.client import ProduceStream, closed_loop, connect, receive_frame
from bench.frames import SIZE_FIELD, batch_of_size, request_frame
from bench.processes import MIB, cpu_seconds, resident_mib
from bench.servers import KAFKA_JVM_OPTIONS
from bench.subject import closing_all
from protocol.api import APIS
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.headers import read_response_header
from protocol.ids import id_text
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.schema import message_info
from tests.support.broker import BrokerProcess
from tests.support.kraft_node import KraftNode, empty_node
from tests.support.processes import ServerProcess

MILENA, KAFKA = "milena", "kafka"
MEMBERS: Final = 1000
LEAVING: Final = MEMBERS // 10
PARTITIONS: Final = 1000
SHARE_CONSUMERS: Final = 100
SHARE_PARTITIONS: Final = 10
SHARE_RECORDS: Final = 200_000
RECORDS_IN_BATCH: Final = 50
RECORD_SIZE: Final = 100
GROUP_RESOURCE: Final = 32
SET: Final = 0
ACCEPT: Final = 1
TIMEOUT_S: Final = 300.0
SETTINGS: Final = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "offsets.topic.num.partitions": "10",
    "share.coordinator.state.topic.num.partitions": "10",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.partition.max.record.locks": "2000",
}
MEASURES: Final = (
    "1,000 members join, s",
    "CPU of the server, s",
    "100 leave, s",
    "CPU of the server then, s",
    "share consumers, records/s",
    "CPU of the server, s/million records",
    "memory after that, MiB",
)

Response = TypeVar("Response")


class Connection:
    """One client; the caller decides when it sends and receives."""

    def __init__(self, port: int) -> None:
        self.connection = connect(port)
        self._buffer = memoryview(bytearray(2 * MIB))

    def send(self, request: object) -> None:
        self.connection.sendall(request_frame(request, _version_of(request)))

    def receive(self, response_type: type[Response]) -> Response:
        size = receive_frame(self.connection, self._buffer)
        frame = self._buffer[SIZE_FIELD:size]
        key, version = message_info(response_type).api_key, _version_of(response_type)
        _, position = read_response_header(key, version, frame)
        return decode(response_type, version, frame, position)

    def close(self) -> None:
        self.connection.close()


def _version_of(message: object) -> int:
    return APIS[message_info(message if isinstance(message, type) else type(message)).api_key].versions[-1]


class Member(Connection):
    """A member of a group of the consumer protocol."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        super().__init__(port)
        self._group, self._topic = group, topic
        self.member_id = id_text(uuid4())
        self.epoch = 0
        self.assigned: list[TopicPartitions] = []

    def beat(self, epoch: int | None = None) -> None:
        """Send a heartbeat that reports what the member has."""
        is_joining = self.epoch == 0
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                rebalance_timeout_ms=300_000 if is_joining else -1,
                subscribed_topic_names=[self._topic] if is_joining else None,
                topic_partitions=self.assigned,
            )
        )

    def heard(self) -> None:
        """Do what the response to the heartbeat says."""
        response = self.receive(ConsumerGroupHeartbeatResponse)
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = response.assignment.topic_partitions

    @property
    def partitions(self) -> list[tuple[UUID, int]]:
        return [(each.topic_id, number) for each in self.assigned for number in each.partitions]


class ShareConsumer(Connection):
    """A member of a share group, which accepts all that it gets."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        super().__init__(port)
        self._group, self._topic = group, topic
        self.member_id = id_text(uuid4())
        self._session_epoch = 0
        self._topics: list[FetchTopic] = []

    def join(self) -> bool:
        """Join or stay; return whether there are partitions."""
        self.send(
            ShareGroupHeartbeatRequest(
                group_id=self._group, member_id=self.member_id, member_epoch=0, subscribed_topic_names=[self._topic]
            )
        )
        response = self.receive(ShareGroupHeartbeatResponse)
        if response.error_code or response.assignment is None or not response.assignment.topic_partitions:
            return False
        self._topics = [
            FetchTopic(
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(partition_index=each, acknowledgement_batches=[]) for each in topic.partitions
                ],
            )
            for topic in response.assignment.topic_partitions
        ]
        return True

    def fetch(self) -> None:
        """Ask for records, and accept those of the last response."""
        self.send(
            ShareFetchRequest(
                group_id=self._group,
                member_id=self.member_id,
                share_session_epoch=self._session_epoch,
                max_wait_ms=500,
                min_bytes=1,
                max_records=500,
                batch_size=500,
                topics=self._topics,
                forgotten_topics_data=[],
            )
        )

    def take(self) -> int:
        """Return how many records have come."""
        response = self.receive(ShareFetchResponse)
        assert response.error_code == 0, response
        self._session_epoch += 1
        self._topics, count = [], 0
        for topic in response.responses:
            partitions = []
            for data in topic.partitions:
                assert data.error_code == data.acknowledge_error_code == 0, data
                accepted = [
                    AcknowledgementBatch(
                        first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[ACCEPT]
                    )
                    for each in data.acquired_records
                ]
                count += sum(each.last_offset - each.first_offset + 1 for each in accepted)
                if accepted:
                    partitions.append(
                        FetchPartition(partition_index=data.partition_index, acknowledgement_batches=accepted)
                    )
            if partitions:
                self._topics.append(FetchTopic(topic_id=topic.topic_id, partitions=partitions))
        return count


def members(server: ServerProcess) -> list[float]:
    """Measure the first part."""
    create_topic(server.port, "members", PARTITIONS)
    _find_coordinator(server.port, "members")
    with ExitStack() as connections:
        group = [connections.enter_context(closing(Member(server.port, "members", "members"))) for _ in range(MEMBERS)]
        joined_s, joined_cpu_s = _measured(server, lambda: _settle(group))
        for member in group[:LEAVING]:
            member.beat(-1)
        for member in group[:LEAVING]:
            member.receive(ConsumerGroupHeartbeatResponse)
        rest = group[LEAVING:]
        left_s, left_cpu_s = _measured(server, lambda: _settle(rest))
    return [joined_s, joined_cpu_s, left_s, left_cpu_s]


def _settle(group: Sequence[Member]) -> None:
    """Send heartbeats until each partition has an owner, and all members are at the same epoch."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while True:
        for member in group:
            member.beat()
        for member in group:
            member.heard()
        owned = [place for member in group for place in member.partitions]
        assert len(owned) == len(set(owned)), "a partition has one owner"
        if len(owned) == PARTITIONS and len({member.epoch for member in group}) == 1:
            return
        assert time.monotonic() < give_up_s, f"{len(owned)} partitions have an owner"


def share_consumers(server: ServerProcess) -> list[float]:
    """Measure the second part."""
    create_topic(server.port, "shared", SHARE_PARTITIONS)
    batch = batch_of_size(RECORDS_IN_BATCH * RECORD_SIZE, RECORD_SIZE, int(time.time() * 1000))
    produced = [ProduceStream(server.port, "shared", number, batch, in_flight=5) for number in range(SHARE_PARTITIONS)]
    with closing_all(produced) as streams:
        total = closed_loop(streams, requests=SHARE_RECORDS // batch.record_count).requests * batch.record_count
    _begin_with_the_first_record(server.port, "shared")
    _find_coordinator(server.port, "shared")
    with ExitStack() as connections:
        consumers = [
            connections.enter_context(closing(ShareConsumer(server.port, "shared", "shared")))
            for _ in range(SHARE_CONSUMERS)
        ]
        give_up_s = time.monotonic() + TIMEOUT_S
        for consumer in consumers:
            while not consumer.join():
                assert time.monotonic() < give_up_s, "every member has a partition"
                time.sleep(0.02)
        seconds, cpu_s = _measured(server, lambda: _consume(consumers, total))
    return [total / seconds, cpu_s / total * 1e6, resident_mib(server.pid)]


def _consume(consumers: Sequence[ShareConsumer], total: int) -> None:
    count, give_up_s = 0, time.monotonic() + TIMEOUT_S
    with selectors.DefaultSelector() as readable:
        for consumer in consumers:
            readable.register(consumer.connection, selectors.EVENT_READ, consumer)
            consumer.fetch()
        while count < total:
            for key, _ in readable.select(1):
                count += key.data.take()
                key.data.fetch()
            assert time.monotonic() < give_up_s, f"{count} of {total} records have come"


def _measured(server: ServerProcess, work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of some work, and the CPU seconds of the server."""
    cpu_s, begin = cpu_seconds(server.pid), time.perf_counter()
    work()
    return time.perf_counter() - begin, cpu_seconds(server.pid) - cpu_s


def _find_coordinator(port: int, group: str) -> None:
    """Wait until the group has a coordinator."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    give_up_s = time.monotonic() + TIMEOUT_S
    while ask(port, request, 4, FindCoordinatorResponse).coordinators[0].error_code:
        assert time.monotonic() < give_up_s, "a coordinator"
        time.sleep(0.1)
    time.sleep(1)  # it loads its partition


def _begin_with_the_first_record(port: int, group: str) -> None:
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = ask(port, request, 1, IncrementalAlterConfigsResponse).responses
    assert result.error_code == ErrorCode.NONE, result


@contextmanager
def _server(name: str, folder: Path) -> Iterator[ServerProcess]:
    with ExitStack() as running:
        if name == MILENA:
            yield running.enter_context(BrokerProcess(folder / name, SETTINGS))
        else:
            empty_node(folder / name / "data", features={"share.version": 1})
            data = str(folder / name / "data")
            node = KraftNode(folder / name, data, overrides=SETTINGS, jvm_options=KAFKA_JVM_OPTIONS)
            yield running.enter_context(node)


def main() -> int:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--rounds", type=int, default=3)
    line.add_argument("--only", choices=(MILENA, KAFKA))
    options = line.parse_args()
    names = [options.only] if options.only else [MILENA, KAFKA]
    values: Mapping[str, list[list[float]]] = defaultdict(list)
    for number in range(options.rounds):
        for name in names:
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder, _server(name, Path(folder)) as server:
                values[name].append([*members(server), *share_consumers(server)])
    for column, measure in enumerate(MEASURES):
        shown = [_shown([row[column] for row in values[name]]) for name in names]
        medians = [statistics.median(row[column] for row in values[name]) for name in names]
        ratio = f"  {medians[0] / medians[1]:.2f} x" if len(names) > 1 else ""
        print(f"{measure:40}" + "".join(f"{text:>32}" for text in shown) + ratio)
    return 0


def _shown(found: Sequence[float]) -> str:
    return f"{statistics.median(found):,.2f} ({min(found):,.2f} to {max(found):,.2f})"


if __name__ == "__main__":
    sys.exit(main())
