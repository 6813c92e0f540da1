"""The throttles of replication: how much throttled partitions may take of the network between brokers (KIP-73).

Owns which partitions are throttled, and the bytes that they may still take. Must not know requests. A partition is
throttled in a direction if a list of its topic names it with the id of this broker. Replicas in sync are never held
back, because producers wait for them, and neither are the other partitions. What these take does not count either: else
a rate below that of the producers would stop a copy for good.

What was sent beyond the rate is made up for later, so the rate holds in the long run whatever the size of a batch. A
partition whose turn it is gets a whole batch, so any rate makes progress.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import ceil
from typing import Final, NamedTuple

from broker.loop.rates import THROTTLE_MS_MAX, SampledRate, TokenBucket
from broker.replica.partition import Partition
from config.log_config import LogConfig

UNLIMITED: Final = (1 << 63) - 1
_ALL: Final = "*"


class Direction(Enum):
    """The side of replication that this broker is on."""

    LEADER = "leader"
    FOLLOWER = "follower"


class Windows(NamedTuple):
    """`replication.quota.window.num` and `replication.quota.window.size.seconds`."""

    number: int
    size_ms: int


class Throttle:
    """The throttle of one direction."""

    def __init__(
        self,
        direction: Direction,
        broker_id: int,
        rate_max: Callable[[], int],
        windows: Windows,
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`rate_max()` is the setting of the rate in bytes a second, `UNLIMITED` without one."""
        self._direction = direction
        self._broker_id = broker_id
        self._rate_max = rate_max
        self._monotonic_ms = monotonic_ms
        self._bucket = TokenBucket(1, windows.size_ms)
        self._rate = SampledRate(windows.number, windows.size_ms)

    @property
    def is_limited(self) -> bool:
        return self._rate_max() != UNLIMITED

    def concerns(self, partition: Partition) -> bool:
        """Return whether the partition is throttled in this direction."""
        replicas = self._replicas(partition.log.config)
        return bool(replicas) and (_ALL in replicas or f"{partition.partition}:{self._broker_id}" in replicas)

    def holds_back(self, partition: Partition, replica_id: int) -> bool:
        """Return whether a leader throttles this replica, which is not in sync."""
        return replica_id not in partition.leadership.isr and self.concerns(partition)

    def left(self) -> int:
        """Return how many bytes throttled partitions may take now; below 1, they have to wait."""
        rate_max = self._rate_max()
        return UNLIMITED if rate_max == UNLIMITED else int(self._bucket.tokens(rate_max, self._monotonic_ms()))

    def wait_ms(self) -> int:
        """Return after how many milliseconds a byte is left, if no other takes it; at most `THROTTLE_MS_MAX`."""
        rate_max = self._rate_max()
        missing = 1 - self._bucket.tokens(rate_max, self._monotonic_ms())
        return THROTTLE_MS_MAX if rate_max <= 0 else min(max(ceil(missing * 1000 / rate_max), 1), THROTTLE_MS_MAX)

    def sent(self, partition: Partition, replica_id: int, size: int) -> None:
        """Count what a leader has sent to a follower, if it is throttled."""
        if self.holds_back(partition, replica_id):
            self.record(size)

    def record(self, size: int) -> None:
        """Count bytes of a throttled partition whose replica is not in sync."""
        now_ms = self._monotonic_ms()
        self._rate.record(size, now_ms)
        rate_max = self._rate_max()
        if rate_max != UNLIMITED:
            self._bucket.take(size, rate_max, now_ms)

    @property
    def byte_rate(self) -> float:
        """The bytes a second of throttled partitions, over the windows."""
        return self._rate.rate(self._monotonic_ms())

    def _replicas(self, config: LogConfig) -> frozenset[str]:
        if self._direction is Direction.LEADER:
            return config.leader_throttled_replicas
        return config.follower_throttled_replicas


class Throttles(NamedTuple):
    """The throttles of one broker."""

    leader: Throttle
    follower: Throttle


class FollowerBudget:
    """What throttled partitions may take of one response to a follower."""

    __slots__ = ("_left", "_replica_id", "_throttle")

    def __init__(self, throttle: Throttle, replica_id: int) -> None:
        self._throttle = throttle
        self._replica_id = replica_id
        self._left = throttle.left()

    def of(self, partition: Partition) -> int:
        """Return how many bytes of a partition may be sent."""
        return self._left if self._throttle.holds_back(partition, self._replica_id) else UNLIMITED

    def spend(self, partition: Partition, size: int) -> None:
        if self._throttle.holds_back(partition, self._replica_id):
            self._left -= size

    def withholds(self, partition: Partition) -> bool:
        """Return whether nothing of the partition may be sent."""
        return self._throttle.left() < 1 and self._throttle.holds_back(partition, self._replica_id)
