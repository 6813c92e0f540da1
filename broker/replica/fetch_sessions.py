"""Incremental fetch sessions (KIP-227): what a client last asked for, so that it need not ask again.

Owns: the sessions, their epochs, their order of partitions and what was last sent of each. Must not know: logs, clocks,
randomness (`now_ms` and `new_id` are passed in), or how a response is laid out.

A request names a session by (id, epoch):

=================  ====================================================================
(0, 0), (id, 0)    full request; opens a session (closing `id`) when a slot is free
(0, -1)            full request, no session
(id, -1)           full request, closes the session
(id, n > 0)        changes to the session's partitions; answers carry changed partitions
=================  ====================================================================

A cache without a free slot answers with id 0, never with an error. A slot is taken from a session that was unused for
two minutes, or by a follower from a consumer, or by a larger session from a smaller one that was left alone for two
minutes.

Served partitions move to the end, so that one that is always full cannot starve the others (fairness).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from broker.slices import Slices
from protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000

# By (topic id, partition) from version 13 on, by (name, partition) before.
PartitionKey = tuple[UUID | str, int]


@dataclass(slots=True)
class FetchPartition:
    """One partition of a fetch request, and what its session last told the client about it."""

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


@dataclass(slots=True)
class FetchSession:
    """One client's cached request."""

    id: int
    is_follower: bool
    uses_topic_ids: bool
    last_used_ms: int
    created_ms: int
    epoch: int = 1
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)


@dataclass(slots=True)
class FetchContext:
    """What one request asks for, once its session was consulted."""

    partitions: dict[PartitionKey, FetchPartition]
    session: FetchSession | None = None
    """The session whose changes alone are answered; None answers every partition."""
    wants_session: bool = False

    def is_worth_sending(
        self,
        key: PartitionKey,
        *,
        has_records: bool,
        error_code: int,
        high_watermark: int,
        log_start_offset: int,
        has_preferred_replica: bool = False,
    ) -> bool:
        """Whether the answer must mention this partition; remembers what is sent and moves served partitions back."""
        if self.session is None:
            return True
        partition = self.partitions.get(key)
        if partition is None:
            return False  # forgotten meanwhile, by another request of the same session
        is_changed = (
            has_records
            or has_preferred_replica
            or partition.sent_high_watermark != high_watermark
            or partition.sent_log_start_offset != log_start_offset
        )
        if error_code:
            # Told again once the error is over, whatever the offsets are then.
            partition.sent_high_watermark = -1
            return True
        partition.sent_high_watermark = high_watermark
        partition.sent_log_start_offset = log_start_offset
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        return is_changed


class FetchSessionCache:
    """All sessions of one broker (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots_max: int, new_id: Callable[[], int]) -> None:
        """`new_id` gives random positive int32s; one that is taken is asked for again."""
        self._slots_max = slots_max
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(
        self,
        session_id: int,
        session_epoch: int,
        partitions: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Slices[FetchContext]:
        """Resolve one request. `partitions` become those of the session, if one is opened.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            return FetchContext(partitions, wants_session=session_epoch == INITIAL_EPOCH)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.last_used_ms = now_ms
        yield from self._update(session, partitions, forgotten)
        if not session.partitions:
            self._sessions.pop(session.id, None)
            return FetchContext({})
        return FetchContext(session.partitions, session)

    def open(self, context: FetchContext, *, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> int:
        """After a full answer: keep its partitions as a session if there is room; the session's id, 0 for none."""
        if not context.wants_session or not context.partitions:
            return 0
        if len(self._sessions) >= self._slots_max and not self._evict(len(context.partitions), is_follower, now_ms):
            return 0
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        self._sessions[session_id] = FetchSession(
            session_id, is_follower, uses_topic_ids, now_ms, now_ms, partitions=context.partitions
        )
        return session_id

    def _update(
        self,
        session: FetchSession,
        partitions: Mapping[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
    ) -> Slices[None]:
        for key, wanted in partitions.items():
            yield
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = wanted
                continue
            known.fetch_offset = wanted.fetch_offset
            known.bytes_max = wanted.bytes_max
            known.current_leader_epoch = wanted.current_leader_epoch
            known.last_fetched_epoch = wanted.last_fetched_epoch
            known.log_start_offset = wanted.log_start_offset
        for key in forgotten:
            session.partitions.pop(key, None)
            yield

    def _evict(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Free one slot for a session of `size` partitions if any may be pushed out."""
        if not self._sessions:
            return False
        stalest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - stalest.last_used_ms > EVICTION_MS:
            return self._drop(stalest)
        weakest = min(self._sessions.values(), key=lambda session: (session.is_follower, len(session.partitions)))
        if is_follower and not weakest.is_follower:
            return self._drop(weakest)
        is_smaller = (weakest.is_follower, len(weakest.partitions)) < (is_follower, size)
        if is_smaller and now_ms - weakest.created_ms > EVICTION_MS:
            return self._drop(weakest)
        return False

    def _drop(self, session: FetchSession) -> bool:
        del self._sessions[session.id]
        self.eviction_count += 1
        return True
