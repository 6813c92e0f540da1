"""A fetch that waits for enough bytes.

Owns when it completes: enough readable bytes, changed leadership, or a changed offset. Must not know the layout of the
response or what wakes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum

from base.dataclass import dataclass
from broker.loop.purgatory import DelayedOperation, nothing
from broker.replica.partition import FetchIsolation, Partition

WAIT_PARTS = 128
LATER_MS_MAX = 250


@dataclass(slots=True)
class AwaitedPartition:
    """One partition that a parked fetch reads."""

    partition: Partition
    leader_epoch: int
    fetch_offset: int
    bytes_max: int
    isolation: FetchIsolation
    known_high_watermark: int | None = None
    """The high watermark that the follower knows: a higher one completes the fetch. None for consumers."""
    withholds: Callable[[Partition], bool] | None = None
    """Returns whether a throttle withholds the partition from a follower now."""
    reads_followers: bool = False
    """Whether the reader may read from a follower, which this broker may be."""

    @property
    def key(self) -> Hashable:
        """The key in the purgatory."""
        return self.partition.topic, self.partition.partition

    def bytes_available(self, bytes_wanted: int) -> int | None:
        """Return the bytes that the reader may read now; None if the wait is over.

        It is over if the leadership or an offset has changed, or the log is offline.

        The result is exact only below `bytes_wanted`: for a reader that wants one byte, no index is searched.
        """
        partition = self.partition
        if partition.leader_epoch != self.leader_epoch:
            return None
        if not partition.is_leader and not (self.reads_followers and partition.is_follower):
            return None
        log = partition.log
        if self.fetch_offset < log.log_start_offset or log.is_offline:
            return None
        if self.known_high_watermark is not None and self.known_high_watermark < log.high_watermark:
            return None
        end_offset = partition.readable_end_offset(self.isolation)
        if end_offset <= self.fetch_offset or (self.withholds is not None and self.withholds(partition)):
            return 0
        if bytes_wanted <= 1:
            return 1
        size = log.reader.size_between(self.fetch_offset, end_offset)
        return None if size is None else min(self.bytes_max, size)


def end_of_wait_ms(now_ms: int, wait_ms_max: int) -> int:
    """Return the end of a wait that begins at `now_ms`, rounded up so that equally long waits end together.

    A wait is extended by at most 1/128 of `wait_ms_max`, and by at most a quarter of a second. So the waits of ten
    thousand idle consumers end a few dozen at a time, with one wake-up of the process for each group.
    """
    step_ms = min(max(1, wait_ms_max // WAIT_PARTS), LATER_MS_MAX)
    return -(-(now_ms + wait_ms_max) // step_ms) * step_ms


class FetcherType(StrEnum):
    """Whether a follower or a consumer fetches, in Kafka's words."""

    CONSUMER = "consumer"
    FOLLOWER = "follower"


class DelayedFetch(DelayedOperation):
    """Completes when its partitions hold `bytes_min` readable bytes, or one of them has an error to report.

    An event of one partition checks only that partition: the available bytes of each partition are kept, and their sum.
    """

    __slots__ = ("_by_key", "_bytes_min", "_gathered", "_kind", "_on_ready", "_partitions", "_sizes")

    def __init__(
        self,
        partitions: Sequence[AwaitedPartition],
        bytes_min: int,
        on_ready: Callable[[], None],
        *,
        may_grow: bool = False,
        kind: FetcherType = FetcherType.CONSUMER,
    ) -> None:
        """`on_ready` is called once; it reads and responds with what is available. `may_grow`: see `await_also`."""
        super().__init__()
        self._kind = kind
        self._partitions = partitions
        self._bytes_min = bytes_min
        self._on_ready = on_ready
        self._gathered = 0
        # A fetch of one partition needs no dictionaries; thousands of consumers may wait like this.
        self._by_key: dict[Hashable, AwaitedPartition] | None = None
        self._sizes: dict[Hashable, int] | None = None  # bytes last found, by key, if not 0
        if may_grow or len(partitions) != 1:
            self._by_key = {it.key: it for it in partitions}

    def expired_subjects(self) -> Iterable[Hashable]:
        """Return who has waited, a follower or a consumer."""
        return (self._kind,)

    @property
    def keys(self) -> Iterable[Hashable]:
        """The keys in the purgatory."""
        if self._by_key is not None:
            return self._by_key.keys()
        return [it.key for it in self._partitions]

    def await_also(self, awaited: AwaitedPartition) -> None:
        """Add a partition, or replace what is awaited of one. Only for a fetch that `may_grow`."""
        assert self._by_key is not None
        self._by_key[awaited.key] = awaited

    def is_satisfied(self) -> bool:
        if self._by_key is None:
            available = self._partitions[0].bytes_available(self._bytes_min)
            return available is None or available >= self._bytes_min
        self._gathered = 0
        sizes = self._sizes = {}
        for key, awaited in self._by_key.items():
            before = self._gathered
            if self._is_enough_with(awaited):
                return True
            if self._gathered != before:
                sizes[key] = self._gathered - before
        return False

    def is_satisfied_after(self, key: Hashable) -> bool:
        if self._by_key is None or self._sizes is None:
            return self.is_satisfied()
        self._gathered -= self._sizes.get(key, 0)
        before = self._gathered
        if self._is_enough_with(self._by_key[key]):
            return True
        self._sizes[key] = self._gathered - before
        return False

    def _is_enough_with(self, awaited: AwaitedPartition) -> bool:
        """Add the bytes of one more partition and return whether the fetch is satisfied."""
        available = awaited.bytes_available(self._bytes_min - self._gathered)
        if available is None:
            return True
        self._gathered += available
        return self._gathered >= self._bytes_min

    def on_complete(self) -> None:
        self._on_ready()

    def release(self) -> None:
        self._partitions = ()
        self._by_key = self._sizes = None
        self._on_ready = nothing
