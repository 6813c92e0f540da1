"""A DeleteRecords request that waits until every live replica has raised its log's start.

Owns when each partition is decided. Must not know the layout of the response or what wakes the request.
"""

from __future__ import annotations

from collections.abc import Callable

from base.dataclass import dataclass
from broker.loop.purgatory import DelayedOperation, nothing
from broker.replica.partition import Partition
from protocol.errors import ErrorCode


@dataclass(slots=True)
class AwaitedDeletion:
    """One partition whose records below `offset` all live replicas have to delete."""

    partition: Partition
    offset: int
    error: ErrorCode | None = None
    """None while undecided."""
    low_watermark: int = -1
    """The lowest log start offset of all live replicas; set only if `error` is NONE."""

    def decide(self, is_live: Callable[[int], bool]) -> bool:
        """Set `error` if the outcome is known; return whether it is."""
        if self.error is None:
            if self.partition.log.is_offline:
                self.error = ErrorCode.KAFKA_STORAGE_ERROR
            elif not self.partition.is_leader:
                self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif (low_watermark := self.partition.low_watermark(is_live)) >= self.offset:
                self.error, self.low_watermark = ErrorCode.NONE, low_watermark
        return self.error is not None


class DelayedDeleteRecords(DelayedOperation):
    """Completes when each deletion is decided; undecided deletions time out at the deadline."""

    __slots__ = ("_deletions", "_is_live", "_on_decided")

    def __init__(
        self, deletions: list[AwaitedDeletion], is_live: Callable[[int], bool], on_decided: Callable[[], None]
    ) -> None:
        """`is_live(broker_id)` returns whether to wait for a broker.

        `on_decided` is called once, when every deletion has its `error`.
        """
        super().__init__()
        self._deletions = deletions
        self._is_live = is_live
        self._on_decided = on_decided

    def is_satisfied(self) -> bool:
        return all(deletion.decide(self._is_live) for deletion in self._deletions)

    def on_complete(self) -> None:
        for deletion in self._deletions:
            if not deletion.decide(self._is_live):
                deletion.error = ErrorCode.REQUEST_TIMED_OUT
        self._on_decided()

    def release(self) -> None:
        self._deletions = []
        self._on_decided = nothing
