"""A share fetch that waits for records.

Owns when it completes: records of one of its partitions can be acquired, or a partition has to be loaded again. Must
not know the layout of the response or what wakes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from broker.loop.purgatory import DelayedOperation, nothing
from broker.replica.partition import FetchIsolation
from broker.share.machine.deliveries import DeliveryLimits
from broker.share.shared_partition import SharedPartition


def end_of(shared: SharedPartition, *, read_committed: bool) -> int:
    """Return the offset up to which a group may read a partition."""
    isolation = FetchIsolation.LAST_STABLE_OFFSET if read_committed else FetchIsolation.HIGH_WATERMARK
    return shared.partition.readable_end_offset(isolation)


class DelayedShareFetch(DelayedOperation):
    """Waits under two keys of each partition: that of its log, and that of its deliveries to the group."""

    __slots__ = ("_by_key", "_limits", "_on_ready", "_read_committed")

    def __init__(self, limits: DeliveryLimits, on_ready: Callable[[], None], *, read_committed: bool) -> None:
        """`on_ready` is called once."""
        super().__init__()
        self._by_key: dict[Hashable, SharedPartition] = {}
        self._limits = limits
        self._on_ready = on_ready
        self._read_committed = read_committed

    def await_also(self, shared: SharedPartition) -> Iterable[Hashable]:
        """Add a partition; return its keys in the purgatory."""
        keys = shared.key, (shared.partition.topic, shared.partition.partition)
        for key in keys:
            self._by_key[key] = shared
        return keys

    def is_satisfied(self) -> bool:
        return any(map(self._is_ready, self._by_key.values()))

    def is_satisfied_after(self, key: Hashable) -> bool:
        return self._is_ready(self._by_key[key])

    def _is_ready(self, shared: SharedPartition) -> bool:
        if not shared.is_current:
            return shared.awaits_load
        offset = shared.deliveries.next_offset(self._limits)
        return offset is not None and offset < end_of(shared, read_committed=self._read_committed)

    def on_complete(self) -> None:
        self._on_ready()

    def release(self) -> None:
        self._by_key = {}
        self._on_ready = nothing
