"""A produce request that waits until every in-sync replica has its batches, or with acks=1 until they are written.

Owns when each partition is decided. Must not know the layout of the response or what wakes the request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from base.dataclass import dataclass
from broker.loop.purgatory import DelayedOperation, nothing
from broker.replica.partition import Partition
from protocol.errors import ErrorCode


@dataclass(slots=True)
class AwaitedAppend:
    """One appended batch that is not committed yet, or not even written because its log directory is slow."""

    partition: Partition
    leading_since: int
    """`Partition.leading_since` at the append. A new epoch of the same leader keeps it: that leader has the batch."""
    end_offset: int
    """Committed once the high watermark is here or beyond."""
    needs_isr: bool = True
    """False (acks=1): the append is complete once it is written here."""
    error: ErrorCode | None = None
    """None while undecided."""

    @property
    def key(self) -> tuple[str, int]:
        return self.partition.topic, self.partition.partition

    def outcome(self) -> ErrorCode | None:
        partition = self.partition
        if partition.log.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not partition.is_leader or partition.leading_since != self.leading_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.needs_isr:
            return None if partition.log.log_end_offset < self.end_offset else ErrorCode.NONE
        if partition.log.high_watermark < self.end_offset:
            return None
        return ErrorCode.NONE if partition.has_enough_in_sync else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class DelayedProduce(DelayedOperation):
    """Completes when each append is committed or has failed; undecided appends time out at the deadline."""

    __slots__ = ("_appends", "_by_key", "_on_decided", "_undecided_count")

    def __init__(self, appends: list[AwaitedAppend], on_decided: Callable[[], None]) -> None:
        """`on_decided` is called once, when every append has its `error`."""
        super().__init__()
        self._appends = appends
        self._on_decided = on_decided
        self._by_key: dict[Hashable, list[AwaitedAppend]] = {}
        for append in appends:
            if append.error is None:
                self._by_key.setdefault(append.key, []).append(append)
        self._undecided_count = sum(append.error is None for append in appends)

    @property
    def keys(self) -> Iterable[Hashable]:
        """The keys in the purgatory: the partitions whose appends were undecided at first."""
        return self._by_key.keys()

    def is_satisfied(self) -> bool:
        return self._are_decided(self._appends)

    def is_satisfied_after(self, key: Hashable) -> bool:
        return self._are_decided(self._by_key[key])

    def _are_decided(self, changed: Iterable[AwaitedAppend]) -> bool:
        """Decide those of `changed` that can be decided; return whether every append is decided."""
        for append in changed:
            if append.error is None:
                append.error = append.outcome()
                self._undecided_count -= append.error is not None
        return not self._undecided_count

    def expired_subjects(self) -> Iterable[Hashable]:
        """Return the partitions that were undecided at the deadline."""
        return [append.key for append in self._appends if append.error is ErrorCode.REQUEST_TIMED_OUT]

    def on_complete(self) -> None:
        for append in self._appends:
            if append.error is None:
                append.error = append.outcome() or ErrorCode.REQUEST_TIMED_OUT
        self._on_decided()

    def release(self) -> None:
        self._by_key = {}
        self._on_decided = nothing
