"""A DeleteRecords request that waits until every live replica has raised its log's start.

Owns when it is done, a partition at a time. Must not know the answer's layout or what wakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.loop.purgatory import DelayedOperation
from broker.replica.partition import Partition
from protocol.errors import ErrorCode


@dataclass(slots=True)
class AwaitedDeletion:
    """One partition whose records below `offset` are to be gone from all live replicas."""

    partition: Partition
    offset: int
    error: ErrorCode | None = None
    """None while undecided."""
    low_watermark: int = -1
    """Where all live replicas begin; known without error only."""

    def decide(self, is_live: Callable[[int], bool]) -> bool:
        """Take over the outcome if there is one; True when decided."""
        if self.error is None:
            if self.partition.log.is_offline:
                self.error = ErrorCode.KAFKA_STORAGE_ERROR
            elif not self.partition.is_leader:
                self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif (low_watermark := self.partition.low_watermark(is_live)) >= self.offset:
                self.error, self.low_watermark = ErrorCode.NONE, low_watermark
        return self.error is not None


class DelayedDeleteRecords(DelayedOperation):
    """Completes when each deletion is decided; what is undecided at the deadline timed out."""

    __slots__ = ("_deletions", "_is_live", "_on_decided")

    def __init__(
        self, deletions: list[AwaitedDeletion], is_live: Callable[[int], bool], on_decided: Callable[[], None]
    ) -> None:
        """`is_live` says of a broker whether to wait for it.

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
