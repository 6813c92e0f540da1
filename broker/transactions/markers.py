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

from base.clock import Clock
from base.topic_partition import TopicPartition
from broker.coordination.background import sleep
from broker.coordination.partitioner import Leaders
from broker.loop.timer import Timer
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


class _Part(NamedTuple):
    """The partitions of a transaction that one leader gets the marker for."""

    partitions: Sequence[TopicPartition]
    asked: Codes | Awaitable[Codes] | None
    """The response of the leader; None if there is no way to it at present."""


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
        """Parts of transactions, one for each leader, that wait for the next attempt."""

    def send(self, name: str, marker: Marker, partitions: Iterable[TopicPartition]) -> Fate | Awaitable[Fate]:
        """Send a marker to all partitions. DONE: every partition has it; SUPERSEDED or FAILED: it cannot be written.

        The result is returned directly if it is known in this step. The awaitable never ends while a partition has no
        leader; it may be cancelled. `name` is the transactional id, for the log.
        """
        missing = self._without_deleted(name, list(partitions))
        if not missing:
            return Fate.DONE
        parts = self._send_to_leaders(marker, missing)
        if len(parts) == 1:
            ((missing, asked),) = parts
            if isinstance(asked, Mapping):
                fate, missing = self._evaluate(name, asked, missing)
                if fate is not Fate.RETRY:
                    return fate
                parts = [_Part(missing, None)]
        return self._until_decided(name, marker, parts)

    async def _until_decided(self, name: str, marker: Marker, parts: Sequence[_Part]) -> Fate:
        """Wait until all parts are done, or one cannot be.

        No part waits for another: readers of a partition that has a marker must not wait for a leader that does not
        respond.
        """
        if len(parts) == 1:
            return await self._until_part_decided(name, marker, *parts[0])
        sending = [asyncio.ensure_future(self._until_part_decided(name, marker, *part)) for part in parts]
        try:
            for decided in asyncio.as_completed(sending):
                fate = await decided
                if fate is not Fate.DONE:
                    return fate
            return Fate.DONE
        finally:
            for each in sending:
                each.cancel()

    async def _until_part_decided(
        self, name: str, marker: Marker, missing: Sequence[TopicPartition], asked: Codes | Awaitable[Codes] | None
    ) -> Fate:
        """Wait for the response of a leader, and retry. Without a request, pause before the next attempt."""
        while True:
            if asked is not None:
                fate, missing = self._evaluate(name, asked if isinstance(asked, Mapping) else await asked, missing)
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
            parts = self._send_to_leaders(marker, missing)
            if len(parts) > 1:  # so the depth of these calls is limited by the number of partitions
                return await self._until_decided(name, marker, parts)
            ((missing, asked),) = parts

    def _evaluate(
        self, name: str, codes: Codes, missing: Sequence[TopicPartition]
    ) -> tuple[Fate, Sequence[TopicPartition]]:
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
        await sleep(self._timer, self._clock, RETRY_BACKOFF_MS)

    def _send_to_leaders(self, marker: Marker, partitions: Sequence[TopicPartition]) -> list[_Part]:
        """Send the marker to the leaders that have a channel; return a part for each leader."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leaders.leader_of(*partition), []).append(partition)
        return [
            _Part(wanted, None if (channel := self._channels.get(leader)) is None else channel.write(marker, wanted))
            for leader, wanted in by_leader.items()
        ]

    def _without_deleted(self, name: str, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
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
