"""The partitions of one internal topic that this broker leads, and how far each of them is loaded.

Owns: which partition an id belongs to and whether it can be served now; loading when this broker becomes the leader of
a partition, unloading when it resigns; how long loading took. Must not know: what the records of the topic mean (the
`PartitionContents`), or how the log replicates.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from base.clock import Clock
from base.dataclass import dataclass
from base.line_limit import LineLimit
from broker.coordination.background import BackgroundTasks, ended
from broker.coordination.coordinator_log import CoordinatorLog
from broker.coordination.partitioner import partition_for
from protocol.errors import ErrorCode, KafkaError, Malformed
from storage.disk.shortages import TryLaterError

LOAD_TIMES_KEPT: Final = 50
"""One for each partition of a topic of the default size, for the metrics."""
RELOAD_S: Final = 1
"""The pause before a load is repeated."""
LINE_INTERVAL_S: Final = 10.0


class PartitionState(Enum):
    """How far this broker has loaded a partition that it leads."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    """The log could not be read. No id of the partition is served: one that is in the log would seem not to exist."""


@dataclass(slots=True, eq=False)
class LedPartition:
    """One partition for as long as this broker leads it."""

    number: int
    leader_epoch: int
    tasks: BackgroundTasks
    """Loading, and whatever else ends with the leadership."""
    state: PartitionState = PartitionState.LOADING
    is_led: bool = True
    """False from the end of this leadership on: results of what was begun in it are void."""


P = TypeVar("P", bound=LedPartition)


class PartitionContents(Protocol[P]):
    """What one kind of coordinator keeps of a partition."""

    def new_partition(self, number: int, leader_epoch: int) -> P:
        """Return an empty partition."""

    async def read(self, partition: P) -> int:
        """Fill the partition from its log and return the number of ids in it, for the log message.

        Raises KafkaError or Malformed if the log cannot be read. After TryLaterError it is called again.
        """

    async def activated(self, partition: P) -> None:
        """Begin to serve the partition. It is ACTIVE now; requests may come before this returns."""

    def unloaded(self, partition: P) -> None:
        """Forget the partition: this broker no longer leads it."""


class LedPartitions(Generic[P]):
    """The led partitions of one internal topic by number."""

    def __init__(
        self,
        topic: str,
        log: CoordinatorLog,
        clock: Clock,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
        contents: PartitionContents[P],
        logger: logging.Logger,
        *,
        reloads_in_new_epoch: bool,
    ) -> None:
        """`ensure_internal_topic(name)` creates the topic unless it exists, and raises KafkaError if it cannot.

        With `reloads_in_new_epoch`, a leader that is elected again discards what it has loaded and reads the log again.
        """
        self._topic = topic
        self._log = log
        self._clock = clock
        self._ensure_internal_topic = ensure_internal_topic
        self._contents = contents
        self._logger = logger
        self._reloads_in_new_epoch = reloads_in_new_epoch
        self._led: dict[int, P] = {}
        self._is_stopping = False
        self._lines = LineLimit(LINE_INTERVAL_S)  # of all partitions: a shortage concerns all that are being loaded
        self.load_times_ms: deque[int] = deque(maxlen=LOAD_TIMES_KEPT)

    # The topic

    def count(self) -> int | None:
        """Return the partition count of the topic; None while it does not exist."""
        return self._log.partition_count()

    async def ensure_topic(self) -> int:
        """Create the topic unless it exists, and return its partition count.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) if the topic cannot be created yet, for example because too few
        brokers are alive.
        """
        count = self.count()
        if count is None:
            try:
                await self._ensure_internal_topic(self._topic)
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            count = self.count()
        if count is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return count

    # Leadership

    def become_leader(self, number: int, leader_epoch: int) -> None:
        """Start to load a partition that this broker leads now. An epoch that is not newer changes nothing."""
        current = self._led.get(number)
        if current is not None:
            if leader_epoch <= current.leader_epoch:
                return
            if not self._reloads_in_new_epoch:
                current.leader_epoch = leader_epoch
                return
            self.resign(number)
        partition = self._led[number] = self._contents.new_partition(number, leader_epoch)
        partition.tasks.start(self._load(partition))

    def resign(self, number: int) -> None:
        """Unload a partition that this broker no longer leads, with its tasks."""
        partition = self._led.pop(number, None)
        if partition is None:
            return
        partition.is_led = False
        partition.tasks.cancel()
        self._contents.unloaded(partition)

    async def stop(self) -> None:
        """Stop serving, and unload every partition."""
        self._is_stopping = True
        unfinished = [future for partition in self._led.values() for future in partition.tasks.cancel()]
        for number in list(self._led):
            self.resign(number)
        await ended(unfinished)

    # Lookup

    def require(self, key: str) -> P:
        """Return the partition of a group id or transactional id.

        Raises KafkaError, in this order: COORDINATOR_NOT_AVAILABLE (the broker stops), NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (the partition could not be loaded).
        """
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        count = self._log.partition_count()
        partition = None if count is None else self._led.get(partition_for(key, count))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.state is PartitionState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if partition.state is PartitionState.FAILED:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition

    def are_loading(self) -> bool:
        """Return whether a list of all ids would be incomplete because a partition is still being loaded.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) when the broker stops.
        """
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return any(partition.state is PartitionState.LOADING for partition in self._led.values())

    def get(self, number: int) -> P | None:
        """Return a led partition in any state."""
        return self._led.get(number)

    def __iter__(self) -> Iterator[P]:
        """Iterate over the partitions led now, in any state; the set may change during the iteration."""
        return iter(list(self._led.values()))

    def active(self) -> Iterator[P]:
        """Iterate over the partitions that are loaded now."""
        return (partition for partition in self if partition.state is PartitionState.ACTIVE)

    # Loading

    async def _read(self, partition: P) -> int:
        """Return what `PartitionContents.read` returns. Repeats it after a shortage of descriptors or memory."""
        while True:
            try:
                return await self._contents.read(partition)
            except TryLaterError as error:
                suppressed = self._lines.admit(self._clock.monotonic_s())
                if suppressed is not None:
                    self._logger.warning(
                        "Partition %d of %s is loaded again in %d s: %s (%d such failures not logged)",
                        partition.number,
                        self._topic,
                        RELOAD_S,
                        error,
                        suppressed,
                    )
            await asyncio.sleep(RELOAD_S)

    async def _load(self, partition: P) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            id_count = await self._read(partition)
        except (KafkaError, Malformed) as error:
            partition.state = PartitionState.FAILED
            self._logger.error("Partition %d of %s was not loaded: %s", partition.number, self._topic, error)
            return
        except Exception:
            partition.state = PartitionState.FAILED
            self._logger.exception("Partition %d of %s was not loaded", partition.number, self._topic)
            return
        partition.state = PartitionState.ACTIVE
        await self._contents.activated(partition)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        self.load_times_ms.append(elapsed_ms)
        if id_count:
            self._logger.info(
                "Loaded %d ids of partition %d of %s in %d ms", id_count, partition.number, self._topic, elapsed_ms
            )
