"""Incremental fetch sessions (KIP-227): the partitions of a client's fetches, so that requests carry only changes.

Owns: the sessions, their epochs, their order of partitions and what was last sent of each. Must not know: logs, clocks,
randomness (`now_ms` and `new_id` are passed in), or the layout of a response.

A request names a session by (id, epoch):

=================  ====================================================================
(0, 0), (id, 0)    full request; opens a session (closing `id`) when a slot is free
(0, -1)            full request, no session
(id, -1)           full request, closes the session
(id, n > 0)        changes to the session's partitions; responses carry changed partitions
=================  ====================================================================

Without a free slot, or without room for its partitions, the response has id 0, never an error: the client sends full
requests from then on. A new session evicts those that were unused for two minutes, as many as it needs. If that is not
enough, it evicts one that makes enough room: a follower's evicts a consumer's; a larger one evicts a smaller one that
was created more than two minutes ago. A session for whose new partitions there is no room is closed with
FETCH_SESSION_ID_NOT_FOUND, like an evicted one, and its client sends a full request.

No session keeps a name that no topic can have: such a name may have 32 KB.

A session knows which of its partitions have news: those that the request names, those that changed since they were last
read to their end (`broker.replica.fetch_news`), and those that are in error or were not read to their end. Only these
are read. Served partitions move to the end, so that one that always has records cannot starve the others.

Invariants, which `check` tests:
* There are at most as many sessions as slots.
* The sessions have as many partitions as are counted, and not more than there is room for.
* A session is found by its id until it is closed.
* The epoch of a session is positive.
* A partition belongs to its session alone, once the response that opens the session has named it.
* Only partitions of the session have news.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import field
from typing import Protocol
from uuid import UUID

from base.dataclass import dataclass
from base.pause import Pause
from broker.replica.bound_partition import BoundPartition
from broker.replica.fetch_news import FetchNews, Watcher
from controller.machine.topic_creation import NAME_LENGTH_MAX
from protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000

_COUNTED = "The sessions have as many partitions as are counted, and not more than there is room for"

Reader = tuple[int, bool]
"""The replica id of the reader, and whether its isolation level is read_committed."""

# By (topic id, partition) from version 13 on, by (name, partition) before.
PartitionKey = tuple[UUID | str, int]


class Follower(Protocol):
    """The leader's record of a follower that this session belongs to."""

    def confirm(self, fetched_ms: int) -> None:
        """Note a fetch that did not name the partition, because nothing had changed since the follower caught up."""


@dataclass(slots=True, eq=False)
class FetchPartition:
    """One partition of a fetch request, and what its session last sent to the client."""

    key: PartitionKey
    topic: str | None
    """None: the request named an id that this broker does not know (yet)."""
    topic_id: UUID
    partition: int
    fetch_offset: int
    bytes_max: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    session: FetchSession | None = None
    bound: BoundPartition | None = None
    """What topic and partition stand for; None before the first read."""
    follower: Follower | None = None
    """None for consumers."""

    def note_event(self) -> bool:
        """Part of `Watcher`."""
        session = self.session
        if session is None:
            return False
        if self.follower is not None:
            # Until this event every fetch of the session was a fetch at the end of this partition's log.
            self.follower.confirm(session.last_used_ms)
        if session.is_closed:  # its watches are removed in steps
            return False
        session.news[self.key] = self
        return session.on_news is not None

    def wake(self) -> None:
        """Part of `Watcher`."""
        if self.session is not None and self.session.on_news is not None:
            self.session.on_news(self)

    def note_sent(self, *, has_records: bool, is_urgent: bool, high_watermark: int, log_start_offset: int) -> bool:
        """Record what a response sends of this partition; return whether it must include it."""
        if is_urgent:
            # Include it again once the error is over, even if its offsets have not changed.
            self.sent_high_watermark = -1
            return True
        is_changed = (
            has_records or self.sent_high_watermark != high_watermark or self.sent_log_start_offset != log_start_offset
        )
        self.sent_high_watermark = high_watermark
        self.sent_log_start_offset = log_start_offset
        return is_changed


@dataclass(slots=True, eq=False)
class FetchSession:
    """One client's cached request."""

    id: int
    is_follower: bool
    uses_topic_ids: bool
    last_used_ms: int
    created_ms: int
    reader: Reader
    epoch: int = 1
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    news: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    """The partitions to read at the next request, in this order."""
    is_closed: bool = False
    on_news: Callable[[FetchPartition], None] | None = None
    """Called when a partition changes while a fetch of the session waits."""

    def follow_news(self, on_news: Callable[[FetchPartition], None]) -> None:
        """Call `on_news` from now on instead of what another fetch has passed."""
        self.on_news = on_news

    def ignore_news(self, on_news: Callable[[FetchPartition], None]) -> None:
        """Call `on_news` no longer. Has no effect if another fetch has taken its place."""
        if self.on_news is on_news:
            self.on_news = None

    def served(self, partition: FetchPartition) -> None:
        """Move a partition whose records are sent to the end of the order."""
        if partition.session is self and self.news.pop(partition.key, None) is not None:
            self.news[partition.key] = partition


@dataclass(slots=True)
class FetchContext:
    """The partitions that one request reads, resolved with its session."""

    partitions: dict[PartitionKey, FetchPartition]
    """The partitions to read."""
    session: FetchSession | None = None
    """The session, whose response carries only changes; None: the response carries every partition."""
    wants_session: bool = False


class FetchSessionCache:
    """All sessions of one broker. `partition_count` is the number of their partitions."""

    def __init__(self, slots_max: int, partitions_max: int, new_id: Callable[[], int], news: FetchNews) -> None:
        """`new_id` returns a random positive int32; it is called again if that id is in use.

        The limits are `max.incremental.fetch.session.cache.slots` and `max.incremental.fetch.session.cache.partitions`.
        """
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._new_id = new_id
        self._news = news
        self._sessions: dict[int, FetchSession] = {}
        self.partition_count = 0
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    async def context(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Iterable[FetchPartition],
        forgotten: Iterable[PartitionKey],
        pause: Pause,
        *,
        uses_topic_ids: bool,
        reader: Reader,
        now_ms: int,
    ) -> FetchContext:
        """Resolve one request. The epoch is checked and raised before the first pause.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(session_id)
            named = {}
            wants_session = session_epoch == INITIAL_EPOCH
            for partition in partitions:
                named[partition.key] = partition
                wants_session = wants_session and _has_possible_name(partition)
                await pause()
            return FetchContext(named, wants_session=wants_session)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.last_used_ms = now_ms
        if session.reader != reader:
            # A partition without news for one reader may have news for another.
            session.reader = reader
            for known in list(session.partitions.values()):
                if known.session is session:
                    session.news.setdefault(known.key, known)
                await pause()
        if partitions or forgotten:
            await self._update(session, partitions, forgotten, pause)
        if not session.partitions:
            self._close(session.id)
            return FetchContext({})
        return FetchContext(session.news, session)

    def open(
        self, context: FetchContext, *, is_follower: bool, uses_topic_ids: bool, reader: Reader, now_ms: int
    ) -> FetchSession | None:
        """Open a session for the partitions of a full response if there is room. All of them have news."""
        size = len(context.partitions)
        if not context.wants_session or not size:
            return None
        if not self._has_room(size) and not self._make_room(size, is_follower, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(
            session_id,
            is_follower,
            uses_topic_ids,
            now_ms,
            now_ms,
            reader,
            partitions=context.partitions,
            news=dict(context.partitions),
        )
        self._sessions[session_id] = session
        self.partition_count += size
        return session

    def settle(self, session: FetchSession, partition: FetchPartition) -> None:
        """Remove the news of a partition whose client is up to date, and watch it for the next event."""
        session.news.pop(partition.key, None)
        self.watch(partition)

    def watch(self, partition: FetchPartition) -> None:
        """Notify the partition's session of the next event. Has no effect if the partition has no session."""
        if partition.session is not None and not partition.session.is_closed:
            self._news.watch((partition.topic, partition.partition), partition)

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        assert len(self._sessions) <= self._slots_max, "There are at most as many sessions as slots"
        assert self.partition_count == sum(len(session.partitions) for session in self._sessions.values()), _COUNTED
        assert self.partition_count <= self._partitions_max, _COUNTED
        for session_id, session in self._sessions.items():
            assert session.id == session_id, "A session is found by its id until it is closed"
            assert not session.is_closed, "A session is found by its id until it is closed"
            assert 0 < session.epoch <= EPOCH_MAX, "The epoch of a session is positive"
            assert all(it.session in (None, session) for it in session.partitions.values()), (
                "A partition belongs to its session alone, once the response that opens the session has named it"
            )
            assert all(session.partitions.get(key) is it for key, it in session.news.items()), (
                "Only partitions of the session have news"
            )

    async def _update(
        self,
        session: FetchSession,
        partitions: Iterable[FetchPartition],
        forgotten: Iterable[PartitionKey],
        pause: Pause,
    ) -> None:
        for wanted in partitions:
            known = session.partitions.get(wanted.key)
            if known is None:
                known = self._join(session, wanted)
            else:
                if wanted.current_leader_epoch != known.current_leader_epoch:
                    # A follower applies nothing that was sent for an older epoch than the one in which it fetches now.
                    known.sent_high_watermark = known.sent_log_start_offset = -1
                known.fetch_offset = wanted.fetch_offset
                known.bytes_max = wanted.bytes_max
                known.current_leader_epoch = wanted.current_leader_epoch
                known.last_fetched_epoch = wanted.last_fetched_epoch
                known.log_start_offset = wanted.log_start_offset
            session.news.setdefault(wanted.key, known)
            await pause()
        for key in forgotten:
            gone = session.partitions.pop(key, None)
            if gone is not None:
                self._leave(session, gone)
            await pause()

    def _join(self, session: FetchSession, partition: FetchPartition) -> FetchPartition:
        """Add a partition to a session, and return it. Without room for it, close the session.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, also if the session was closed since the request began.
        """
        if self.partition_count >= self._partitions_max or not _has_possible_name(partition):
            self._close(session.id)
        if session.is_closed:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.partitions[partition.key] = partition
        partition.session = session
        self.partition_count += 1
        return partition

    def _leave(self, session: FetchSession, partition: FetchPartition) -> None:
        partition.session = None
        if not session.is_closed:
            self.partition_count -= 1
        self._confirm(partition, session)
        session.news.pop(partition.key, None)
        self._news.unwatch((partition.topic, partition.partition), partition)

    def _has_room(self, size: int) -> bool:
        """Return whether a session of `size` partitions may be opened."""
        return len(self._sessions) < self._slots_max and self.partition_count + size <= self._partitions_max

    def _make_room(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Evict sessions for a new one of `size` partitions; return whether there is room for it."""
        unused = [it for it in self._sessions.values() if now_ms - it.last_used_ms > EVICTION_MS]
        for session in sorted(unused, key=lambda it: it.last_used_ms):
            if self._has_room(size):
                break
            self._drop(session)
        if self._has_room(size):
            return True
        missing = self.partition_count + size - self._partitions_max
        sufficient = [it for it in self._sessions.values() if len(it.partitions) >= missing]
        if not sufficient:
            return False
        weakest = min(sufficient, key=lambda it: (it.is_follower, len(it.partitions)))
        is_smaller = (weakest.is_follower, len(weakest.partitions)) < (is_follower, size)
        is_evicted = (is_follower and not weakest.is_follower) or (
            is_smaller and now_ms - weakest.created_ms > EVICTION_MS
        )
        if is_evicted:
            self._drop(weakest)
        return is_evicted

    def _drop(self, session: FetchSession) -> None:
        self._close(session.id)
        self.eviction_count += 1

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            # A request of the session that is served in slices may still use it.
            session.is_closed = True
            self.partition_count -= len(session.partitions)
            session.news.clear()
            self._news.unwatch_all(self._leaving(session, list(session.partitions.values())))

    def _leaving(
        self, session: FetchSession, partitions: Iterable[FetchPartition]
    ) -> Iterator[tuple[Hashable, Watcher]]:
        """Yield the watch of each partition of a closed session, whose follower had everything if it is still there."""
        for known in partitions:
            self._confirm(known, session)
            yield (known.topic, known.partition), known

    def _confirm(self, partition: FetchPartition, session: FetchSession) -> None:
        """Note that a follower had everything at the last fetch of a session, which it leaves without an event."""
        if partition.follower is not None and self._news.is_watched((partition.topic, partition.partition), partition):
            partition.follower.confirm(session.last_used_ms)


def _has_possible_name(partition: FetchPartition) -> bool:
    """Return whether a topic can have the name that the request gives; True if it gives an id that is not known yet."""
    return partition.topic is None or len(partition.topic) <= NAME_LENGTH_MAX
