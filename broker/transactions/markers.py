"""Sending the markers of a decided transaction to the leaders of its partitions, until every one has its own.

Owns: which leader gets what, what an answer means, and when to try again. Must not know: how a marker reaches a broker
(the channel's), how it gets into a log (`broker.transactions.marker_writer`), or what the transaction becomes then.
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
"""Between two tries: a leader election takes about as long."""
NO_LEADER: Final = -1


class Marker(NamedTuple):
    """The end of one producer's transaction, the same for all partitions."""

    producer_id: int
    producer_epoch: int
    is_committed: bool
    coordinator_epoch: int


Codes = Mapping[TopicPartition, int]
"""A leader's answer: the error code of each partition."""


class MarkerChannel(Protocol):
    """The way to one broker. Another broker's may gather the markers of many transactions into one request."""

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes | Awaitable[Codes]:
        """Have the leader append the marker; the code for each partition once it is replicated, at once if it is.

        Never raises: a broker that cannot be reached is NETWORK_EXCEPTION for each partition.
        """


class Leaders(Protocol):
    """What the sender asks of the metadata cache."""

    def contains(self, topic: str, partition: int) -> bool: ...

    def leader_of(self, topic: str, partition: int) -> int:
        """NO_LEADER when there is none at the moment."""

    def partition_count(self, topic: str) -> int | None: ...


class Fate(Enum):
    """What becomes of a marker after an answer."""

    DONE = auto()
    """It is in the log, or can never matter there."""
    RETRY = auto()
    """Look the leader up again and send again."""
    SUPERSEDED = auto()
    """A newer coordinator or producer took over: the transaction is not ours to complete."""
    FAILED = auto()
    """Nothing that another try would change. The transaction stays as it is until its coordinator is loaded again."""


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
"""By error code; every other one is FAILED."""


class MarkerSender:
    """Sends markers on behalf of the coordinator of one broker."""

    def __init__(
        self, own_topic: str, leaders: Leaders, channels: Mapping[int, MarkerChannel], timer: Timer, clock: Clock
    ) -> None:
        """`channels` has a way to every live broker by its id. `own_topic` is the coordinator's."""
        self._own_topic = own_topic
        self._leaders = leaders
        self._channels = channels
        self._timer = timer
        self._clock = clock
        self.waiting_count = 0
        """Transactions some of whose partitions had no leader that took the marker, until the next try."""

    def send(self, name: str, marker: Marker, partitions: Iterable[TopicPartition]) -> Fate | Awaitable[Fate]:
        """DONE when every partition has its marker, SUPERSEDED or FAILED when this cannot be; at once if it is known.

        `name` is for the log. May take for ever while a partition has no leader; cancelling it is safe.
        """
        missing = self._without_deleted(name, list(partitions))
        if not missing:
            return Fate.DONE
        asked = self._ask(marker, missing)
        if len(asked) == 1 and isinstance(codes := asked[0], Mapping):
            fate, missing = self._judge(name, codes, missing)
            if fate is not Fate.RETRY:
                return fate
            asked = []
        return self._send_until_decided(name, marker, missing, asked)

    async def _send_until_decided(
        self, name: str, marker: Marker, missing: list[TopicPartition], asked: list[Codes | Awaitable[Codes]]
    ) -> Fate:
        """Go on with what was `asked` of the leaders; nothing was when the next try is due after a pause."""
        while True:
            if asked:
                codes: dict[TopicPartition, int] = {}
                for each in asked:
                    codes.update(each if isinstance(each, Mapping) else await each)
                fate, missing = self._judge(name, codes, missing)
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
            asked = self._ask(marker, missing)

    def _judge(self, name: str, codes: Codes, missing: list[TopicPartition]) -> tuple[Fate, list[TopicPartition]]:
        """What the answers mean for the transaction, and the partitions that have to be tried again."""
        if len(codes) == len(missing) and not any(codes.values()):
            return Fate.DONE, []
        fates = {partition: FATES.get(code, Fate.FAILED) for partition, code in codes.items()}
        for fate in (Fate.SUPERSEDED, Fate.FAILED):
            if fate in fates.values():
                at_fault = {each: codes[each] for each, found in fates.items() if found is fate}
                logger.error("Markers of %s: %s after %s", name, fate.name, at_fault)
                return fate, missing
        missing = [partition for partition in missing if fates.get(partition) is not Fate.DONE]
        return (Fate.RETRY if missing else Fate.DONE), missing

    async def pause(self) -> None:
        """Wait before another try."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline_ms = self._clock.monotonic_ms() + RETRY_BACKOFF_MS
        handle = self._timer.schedule(deadline_ms, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            handle.cancel()

    def _ask(self, marker: Marker, partitions: Sequence[TopicPartition]) -> list[Codes | Awaitable[Codes]]:
        """Send to the leaders that can be asked; their answers, in no order."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leaders.leader_of(*partition), []).append(partition)
        return [
            self._channels[leader].write(marker, wanted)
            for leader, wanted in by_leader.items()
            if leader in self._channels
        ]

    def _without_deleted(self, name: str, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """A transaction must not hang on a topic that was deleted meanwhile.

        Metadata without the coordinator's own topic has not arrived yet, and says nothing about any topic.
        """
        if self._leaders.partition_count(self._own_topic) is None:
            return partitions
        kept = [partition for partition in partitions if self._leaders.contains(*partition)]
        if len(kept) < len(partitions):
            deleted = sorted(set(partitions).difference(kept))
            logger.info("Markers of %s are not sent to partitions that exist no more: %s", name, deleted)
        return kept
