"""What all simulated clients share: connections, metadata, coordinators, retries.

Owns the way from an operation to the right broker. Must not know what the operations are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, Protocol
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.client import Client
from tests.sim.history import Anomaly, History, Partition
from tests.sim.network import SimulatedHost
from tests.sim.process import PORT
from tests.sim.world import ProcessLoop

REQUEST_TIMEOUT_S: Final = 6.0
BACKOFF_S: Final = 0.2
GROUP: Final = 0
TRANSACTION: Final = 1

RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""After these a client asks again, with newer metadata."""


class Failed(Exception):  # noqa: N818 - an outcome
    """A broker responded with an error that is not to be retried."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Retry(Exception):  # noqa: N818 - an outcome
    """The operation may be tried again, perhaps elsewhere."""


class Surroundings(Protocol):
    """The cluster as clients see it."""

    history: History
    has_version_2: bool
    """Whether brokers support transactions of version 2."""
    is_ending: bool
    """Whether clients without a bounded number of operations are to end."""

    def new_client(self, name: str) -> tuple[SimulatedHost, ProcessLoop, Random]: ...

    def brokers(self) -> dict[int, str]:
        """Return the hosts of all brokers by id."""
        ...

    def rack_of(self, client: str) -> str:
        """Return the rack in which a client is, "" if it has none."""
        ...

    def incarnation_of(self, broker_id: int) -> int:
        """Return which process of a broker runs at present."""
        ...

    def copies_of(self, partition: Partition, offset: int) -> int:
        """Return how many replicas have a record at `offset`."""
        ...

    def copies_of_commit(self, token: str) -> int:
        """Return how many replicas have the committed offset with this metadata."""
        ...

    def copies_of_decision(self, transactional_id: str, epoch: int, broker_id: int) -> int | None:
        """Return how many replicas have the last decision of a coordinator about a transaction of an id and epoch."""
        ...

    def readable(self, broker_id: int, partition: Partition, epoch: int, *, is_committed: bool) -> int:
        """Return the offset up to which consumers may read at a broker, -1 unless it is a replica in this epoch."""
        ...

    def remembered(
        self, broker_id: int, partition: Partition, producer: tuple[int, int], sequence: int
    ) -> object | None:
        """Return where a batch is in the log of a broker, if it is one of the last five of its producer there.

        The result is another one after a restart or a truncation.
        """
        ...


class SimulatedClient:
    """A client process. Subclasses implement `run`."""

    keeps_latest_epoch = False
    """Whether it ignores metadata with an older leader epoch than it has seen (KIP-320).

    Without, a client whose broker does not hear from the controller may go back to an earlier leader, as old ones do.
    """

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.around = around
        self.history = around.history
        self.network, self.loop, self.random = around.new_client(name)
        self.doing = "nothing yet"
        """What it does at present, for the report of a stuck client."""
        self._connections: dict[int, Client] = {}
        self._leaders: dict[Partition, tuple[int, int]] = {}
        self._latest_epochs: dict[Partition, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._controller = -1
        self.task: asyncio.Task[None]

    def start(self) -> None:
        self.task = self.loop.start(self.run())

    async def run(self) -> None:
        raise NotImplementedError

    # Time

    def now_us(self) -> int:
        return self.loop.now_us()

    async def think(self, longest_s: float) -> None:
        """Wait, mostly shortly; hardly at all once the run ends."""
        await asyncio.sleep(longest_s * self.random.random() ** 2 * (0.1 if self.around.is_ending else 1.0))

    async def back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * (0.5 + self.random.random()))

    def note_anomaly(self, name: str, text: str, partition: Partition | None = None) -> None:
        self.history.anomalies.append(Anomaly(name, f"{self.name}: {text}", self.now_us(), partition))

    # Requests

    async def ask(
        self,
        broker_id: int,
        request: object,
        version: int,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        fresh: bool = False,
    ) -> Any:
        """Return the response of a broker, over the connection to it, or with `fresh` over one of its own.

        Raises:
            Retry: The broker cannot be reached, or does not respond in time. Its connection is closed then.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection(broker_id, fresh=fresh)
                response = await connection.ask(request, version)
        except (OSError, TimeoutError) as error:
            if not fresh:
                self._forget(broker_id)
            raise Retry(f"broker {broker_id}: {error!r}") from None
        if fresh:
            connection.close()
        return response

    async def _connection(self, broker_id: int, *, fresh: bool) -> Client:
        connection = None if fresh else self._connections.get(broker_id)
        if connection is None or connection.is_lost:
            connection = await Client.connected(self.network, self.around.brokers()[broker_id], PORT)
            if not fresh:
                self._connections[broker_id] = connection
        return connection

    def _forget(self, broker_id: int) -> None:
        connection = self._connections.pop(broker_id, None)
        if connection is not None and not connection.is_lost:
            connection.close()

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat an attempt that raises `Retry` until it succeeds."""
        self.doing = what
        while True:
            try:
                return await attempt()
            except Retry as reason:
                self.doing = f"{what}, after {reason}"
                self.history.counts["client retries"] += 1
                await self.back_off()

    def expect(self, code: int, *others: ErrorCode) -> ErrorCode:
        """Return the error if it is none or one of `others`. Raises Retry or Failed for all others."""
        error = ErrorCode(code)
        if error is ErrorCode.NONE or error in others:
            return error
        if error in RETRIABLE:
            self.forget_cluster()
            raise Retry(error.name)
        raise Failed(error)

    def forget_cluster(self) -> None:
        """Ask for leaders, coordinators and controller again."""
        self._leaders.clear()
        self._coordinators.clear()
        self._controller = -1

    # The cluster

    def any_broker(self) -> int:
        return self.random.choice(sorted(self.around.brokers()))

    async def refresh(self, topics: list[str] | None) -> Any:
        """Ask any broker for metadata; remember leaders and controller."""
        names = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        response = await self.ask(self.any_broker(), request, 12)
        self._controller = response.controller_id
        self.check_counts(response)
        for topic in response.topics:
            if topic.topic_id.int:
                self.topic_ids[topic.name] = topic.topic_id
            for found in topic.partitions:
                partition = Partition(topic.name, found.partition_index)
                latest = max(found.leader_epoch, self._latest_epochs.get(partition, found.leader_epoch))
                self._latest_epochs[partition] = latest
                is_old = found.leader_epoch < latest and self.keeps_latest_epoch
                if found.leader_id >= 0 and not is_old:
                    self._leaders[partition] = found.leader_id, found.leader_epoch
                else:
                    self._leaders.pop(partition, None)
        return response

    def check_counts(self, response: Any) -> None:
        """Note topics in a Metadata response that have another number of partitions than they ever had."""
        for topic in response.topics:
            count = len(topic.partitions)
            if topic.error_code == ErrorCode.NONE and count not in self.history.partition_counts.get(topic.name, ()):
                self.note_anomaly("metadata names all partitions of a topic", f"{topic.name} with {count} of them")

    async def leader_of(self, partition: Partition) -> tuple[int, int]:
        """Return the leader of a partition and its epoch. Raises Retry if none is known."""
        if partition not in self._leaders:
            await self.refresh([partition.topic])
        if partition not in self._leaders:
            raise Retry(f"no leader of {partition}")
        return self._leaders[partition]

    async def controller(self) -> int:
        if self._controller < 0:
            await self.refresh([])
        if self._controller < 0:
            raise Retry("no controller")
        return self._controller

    async def coordinator(self, kind: int, key: str) -> int:
        known = self._coordinators.get((kind, key))
        if known is None:
            response = await self.ask(self.any_broker(), FindCoordinatorRequest(key=key, key_type=kind), 3)
            self.expect(response.error_code)
            known = self._coordinators[kind, key] = response.node_id
        return known

    async def ask_coordinator(self, kind: int, key: str, request: object, version: int) -> Any:
        """Ask a coordinator; forget it if it cannot be reached."""
        try:
            return await self.ask(await self.coordinator(kind, key), request, version)
        except Retry:
            self._coordinators.pop((kind, key), None)
            raise
