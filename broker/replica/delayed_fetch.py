"""A fetch that waits for enough bytes.

Owns when it is done: bytes up to the bound of this reader, leadership, an offset that moved. Must not know the answer's
layout or what wakes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from broker.loop.purgatory import DelayedOperation
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
    """What the follower that reads knows: a higher one completes its fetch without any bytes. None for consumers."""

    @property
    def key(self) -> Hashable:
        """What it is watched under."""
        return self.partition.topic, self.partition.partition

    def bytes_available(self, bytes_wanted: int) -> int | None:
        """Bytes the reader may see now, or None when it must be answered at once: leadership or offset changed.

        Counting stops to matter at `bytes_wanted`: whoever wants one byte is not made to look anything up.
        """
        partition = self.partition
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            return None
        log = partition.log
        if self.fetch_offset < log.log_start_offset:
            return None
        if self.known_high_watermark is not None and self.known_high_watermark < log.high_watermark:
            return None
        end_offset = partition.readable_end_offset(self.isolation)
        if end_offset <= self.fetch_offset:
            return 0
        if bytes_wanted <= 1:
            return 1
        size = log.size_between(self.fetch_offset, end_offset)
        return None if size is None else min(self.bytes_max, size)


def end_of_wait_ms(now_ms: int, wait_ms_max: int) -> int:
    """When a wait that begins at `now_ms` ends: at most 1/128 or a quarter of a second later, with others as long.

    Ten thousand idle consumers whose waits end together, a few dozen at a time, are answered and ask again with one
    wake-up of the process instead of one each.
    """
    step_ms = min(max(1, wait_ms_max // WAIT_PARTS), LATER_MS_MAX)
    return -(-(now_ms + wait_ms_max) // step_ms) * step_ms


class DelayedFetch(DelayedOperation):
    """Completes when its partitions hold `bytes_min` readable bytes, or one of them has an error to tell.

    At an event of one partition, only that one is looked at: the bytes found in each are kept, and their sum.
    """

    __slots__ = ("_by_key", "_bytes_min", "_gathered", "_on_ready", "_partitions", "_sizes")

    def __init__(
        self,
        partitions: Sequence[AwaitedPartition],
        bytes_min: int,
        on_ready: Callable[[], None],
        *,
        may_grow: bool = False,
    ) -> None:
        """`on_ready` is called once; it reads again, and answers with what there is. See `await_also`."""
        super().__init__()
        self._partitions = partitions
        self._bytes_min = bytes_min
        self._on_ready = on_ready
        self._gathered = 0
        # Of one partition there is nothing to remember, and thousands of consumers may wait like this.
        self._by_key: dict[Hashable, AwaitedPartition] | None = None
        self._sizes: dict[Hashable, int] | None = None  # bytes last found, by key, where there were any
        if may_grow or len(partitions) != 1:
            self._by_key = {it.key: it for it in partitions}

    @property
    def keys(self) -> Iterable[Hashable]:
        """What to watch it under."""
        if self._by_key is not None:
            return self._by_key.keys()
        return [it.key for it in self._partitions]

    def await_also(self, awaited: AwaitedPartition) -> None:
        """Wait for one more partition, or for something else of one of them. Only for a fetch that `may_grow`."""
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
        """Whether it is satisfied, once the bytes of one more partition are gathered."""
        available = awaited.bytes_available(self._bytes_min - self._gathered)
        if available is None:
            return True
        self._gathered += available
        return self._gathered >= self._bytes_min

    def on_complete(self) -> None:
        on_ready = self._on_ready
        self._let_go()
        on_ready()

    def abandon(self) -> None:
        super().abandon()
        self._let_go()

    def _let_go(self) -> None:
        # It stays listed under its other partitions until they are looked at, and the answer must not stay with it.
        self._partitions = ()
        self._by_key = self._sizes = None
        self._on_ready = _nothing


def _nothing() -> None:
    """What is left to do of one that is completed."""
