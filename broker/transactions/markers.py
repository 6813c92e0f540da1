"""Sends the markers of a decided transaction to the leaders of its partitions, until every partition has its marker.

Owns: which leader gets which markers, what its error codes mean, and when to retry. Must not know: how a marker reaches
a broker (the channel), how it is appended (`broker.transactions.marker_writer`), or what becomes of the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from broker.loop.clock import Clock
from broker.loop.timer import Timer
from broker.transactions.transaction import TopicPartition
from protocol.errors import ErrorCode

logger = logging.getLogger("kafka.coordinator.transaction.TransactionMarkerChannelManager")

RETRY_BACKOFF_MS: Final = 100
"""Between two attempts: a leader election takes about as long."""
NO_LEADER: Final = -1


class Marker(NamedTuple):
    """The end of one producer's transaction, the same for all partitions."""

    producer_id: int
    producer_epoch: int
    is_committed: bool
    coordinator_epoch: int


Codes = Mapping[TopicPartition, int]
"""A leader's response: the error code of each partition."""


class MarkerChannel(Protocol):
    """Sends markers to one broker. An implementation may collect the markers of many transactions in one request."""

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes | Awaitable[Codes]:
        """Append the marker on the leader; return the code of each partition once the marker is replicated.

        The codes are returned directly if they are known in this step. Never raises: if the broker cannot be reached,
        the code of each partition is NETWORK_EXCEPTION.
        """


class Channels(Protocol):
    """The channels to all brokers."""

    def get(self, broker_id: int, /) -> MarkerChannel | None:
        """Return the channel to a live broker, None for any other."""


class Leaders(Protocol):
    """The part of the metadata cache that the sender uses."""

    def contains(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists."""

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker id of the leader; NO_LEADER if there is none at the moment."""

    def partition_count(self, topic: str) -> int | None:
        """Return the partition count of a topic; None if the cache does not have the topic."""


class Fate(Enum):
    """What follows from a leader's error code."""

    DONE = auto()
    """The marker is in the log, or can have no effect there."""
    RETRY = auto()
    """Look up the leader and send the marker again."""
    SUPERSEDED = auto()
    """There is a newer coordinator or producer, so this coordinator must not complete the transaction."""
    FAILED = auto()
    """A retry would not help. The transaction stays as it is until its partition is loaded again."""


FATES: Mapping[int, Fate] = MappingProxyType(
    {
        ErrorCode.NONE: Fate.DONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Fate.DONE,
        ErrorCode.UNSUPPORTED_VERSION: Fate.DONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Fate.RETRY,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: Fate.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Fate.RETRY,
        ErrorCode.NOT_ENOUGH_REPLICAS: Fate.RETRY,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Fate.RETRY,
        ErrorCode.KAFKA_STORAGE_ERROR: Fate.RETRY,
        ErrorCode.NETWORK_EXCEPTION: Fate.RETRY,
        ErrorCode.INVALID_PRODUCER_EPOCH: Fate.SUPERSEDED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: Fate.SUPERSEDED,
    }
)
"""By error code; any other code is FAILED."""


class MarkerSender:
    """Sends markers on behalf of the coordinator of one broker."""

    def __init__(self, own_topic: str, leaders: Leaders, channels: Channels, timer: Timer, clock: Clock) -> None:
        """`own_topic` is the coordinator's internal topic."""
        self._own_topic = own_topic
        self._leaders = leaders
        self._channels = channels
        self._timer = timer
        self._clock = clock
        self.waiting_count = 0
        """Transactions with partitions whose marker no leader has appended yet; they wait for the next attempt."""

    def send(self, name: str, marker: Marker, partitions: Iterable[TopicPartition]) -> Fate | Awaitable[Fate]:
        """Send a marker to all partitions. DONE: every partition has it; SUPERSEDED or FAILED: it cannot be written.

        The result is returned directly if it is known in this step. The awaitable never ends while a partition has no
        leader; it may be cancelled. `name` is the transactional id, for the log.
        """
        missing = self._without_deleted(name, list(partitions))
        if not missing:
            return Fate.DONE
        asked = self._send_to_leaders(marker, missing)
        if len(asked) == 1 and isinstance(codes := asked[0], Mapping):
            fate, missing = self._evaluate(name, codes, missing)
            if fate is not Fate.RETRY:
                return fate
            asked = []
        return self._send_until_decided(name, marker, missing, asked)

    async def _send_until_decided(
        self, name: str, marker: Marker, missing: list[TopicPartition], asked: list[Codes | Awaitable[Codes]]
    ) -> Fate:
        """Wait for the responses `asked` for, and retry. If `asked` is empty, pause before the next attempt."""
        while True:
            if asked:
                codes: dict[TopicPartition, int] = {}
                for each in asked:
                    codes.update(each if isinstance(each, Mapping) else await each)
                fate, missing = self._evaluate(name, codes, missing)
                if fate is not Fate.RETRY:
                    return fate
            self.waiting_count += 1
            try:
                await self.pause()
            finally:
                self.waiting_count -= 1
            missing = self._without_deleted(name, missing)
            if not missing:
                return Fate.DONE
            asked = self._send_to_leaders(marker, missing)

    def _evaluate(self, name: str, codes: Codes, missing: list[TopicPartition]) -> tuple[Fate, list[TopicPartition]]:
        """Return what the codes mean for the transaction, and the partitions to retry."""
        if len(codes) == len(missing) and not any(codes.values()):
            return Fate.DONE, []
        fates = {partition: FATES.get(code, Fate.FAILED) for partition, code in codes.items()}
        for fate in (Fate.SUPERSEDED, Fate.FAILED):
            if fate in fates.values():
                failed = {each: codes[each] for each, found in fates.items() if found is fate}
                logger.error("Markers of %s: %s after %s", name, fate.name, failed)
                return fate, missing
        missing = [partition for partition in missing if fates.get(partition) is not Fate.DONE]
        return (Fate.RETRY if missing else Fate.DONE), missing

    async def pause(self) -> None:
        """Wait before another attempt."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline_ms = self._clock.monotonic_ms() + RETRY_BACKOFF_MS
        handle = self._timer.schedule(deadline_ms, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            handle.cancel()

    def _send_to_leaders(self, marker: Marker, partitions: Sequence[TopicPartition]) -> list[Codes | Awaitable[Codes]]:
        """Send the marker to the leaders that have a channel; return their responses in no particular order."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leaders.leader_of(*partition), []).append(partition)
        return [
            channel.write(marker, wanted)
            for leader, wanted in by_leader.items()
            if (channel := self._channels.get(leader)) is not None
        ]

    def _without_deleted(self, name: str, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that still exist: a deleted topic must not keep a transaction from completing.

        While the metadata lacks the coordinator's own topic, it has not arrived yet, and proves no deletion.
        """
        if self._leaders.partition_count(self._own_topic) is None:
            return partitions
        kept = [partition for partition in partitions if self._leaders.contains(*partition)]
        if len(kept) < len(partitions):
            deleted = sorted(set(partitions).difference(kept))
            logger.info("Markers of %s are not sent to partitions that were deleted: %s", name, deleted)
        return kept
