"""A produce request that waits until every in-sync replica has its batches, or with acks=1 until they are written.

Owns when it is done, a partition at a time. Must not know the answer's layout or what wakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.purgatory import DelayedOperation
from broker.replica.partition import Partition
from protocol.errors import ErrorCode


@dataclass(slots=True)
class AwaitedAppend:
    """One appended batch that is not committed yet, or not even written because its log directory is slow."""

    partition: Partition
    leader_epoch: int
    end_offset: int
    """Committed once the high watermark is here or beyond."""
    needs_isr: bool = True
    """False: it is enough that it is written here."""
    error: ErrorCode | None = None
    """None while undecided."""

    def outcome(self) -> ErrorCode | None:
        partition = self.partition
        if partition.log.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.needs_isr:
            return None if partition.log.log_end_offset < self.end_offset else ErrorCode.NONE
        if partition.log.high_watermark < self.end_offset:
            return None
        return ErrorCode.NONE if partition.has_enough_in_sync else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class DelayedProduce(DelayedOperation):
    """Completes when each append is committed or its leader is lost; what is undecided at the deadline timed out."""

    __slots__ = ("_appends", "_on_decided")

    def __init__(self, appends: list[AwaitedAppend], on_decided: Callable[[], None]) -> None:
        """`on_decided` is called once, when every append has its `error`."""
        super().__init__()
        self._appends = appends
        self._on_decided = on_decided

    def is_satisfied(self) -> bool:
        undecided = False
        for append in self._appends:
            if append.error is None:
                append.error = append.outcome()
                undecided = undecided or append.error is None
        return not undecided

    def on_complete(self) -> None:
        for append in self._appends:
            if append.error is None:
                append.error = append.outcome() or ErrorCode.REQUEST_TIMED_OUT
        self._on_decided()
