"""Decisions about in-sync replicas, as pure functions of plain values.

Owns: how far a follower is, when it counts as caught up, the high and low watermark, and which change of the ISR a
leader wants. Must not know: partitions, logs, clocks or requests; times are monotonic milliseconds.

The *committed* ISR is the one that the metadata holds. While a change of it is requested, the larger of both sets
counts for the high watermark (the *maximal* ISR): the leader cannot know whether the controller has applied the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from base.dataclass import dataclass

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
NEVER_MS: Final = -(2**62)
"""Before every monotonic time, also that of a clock which starts at 0."""


@dataclass(slots=True, eq=False)
class FollowerProgress:
    """How far one follower is, as its fetches prove: a fetch at offset N proves that it has all records below N."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    """The last time at which the follower had everything that the leader had."""
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """The latest registration with which the broker has fetched."""
    _leader_end_offset: int = UNKNOWN_OFFSET  # at the last fetch
    _fetched_ms: int = NEVER_MS  # the last fetch

    def fetched(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Note a fetch at `fetch_offset`, while the leader's log ends at `leader_end_offset`.

        A follower that always fetches what the leader had at the fetch before is caught up as of that fetch, even if
        producers are so fast that it never reaches the end.
        """
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._leader_end_offset = max(self._leader_end_offset, leader_end_offset)
        self._fetched_ms = now_ms
        # A follower that does not name its epoch any more has restarted with an older protocol.
        is_unknown = broker_epoch == UNKNOWN_BROKER_EPOCH
        self.broker_epoch = UNKNOWN_BROKER_EPOCH if is_unknown else max(self.broker_epoch, broker_epoch)

    def confirm(self, fetched_ms: int) -> None:
        """Note a fetch that did not name the partition, because nothing had changed since the follower caught up.

        It proves nothing before the follower has caught up in the present leader epoch, by a fetch in that.
        """
        if self.caught_up_ms != NEVER_MS and self.log_end_offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, fetched_ms)
            self._fetched_ms = max(self._fetched_ms, fetched_ms)

    def leader_elected_again(self, leader_end_offset: int, now_ms: int, *, is_in_sync: bool) -> None:
        """Note a new epoch of the same leader: an in-sync follower counts as caught up now, another one never yet."""
        self._leader_end_offset = leader_end_offset
        self.caught_up_ms = self._fetched_ms = now_ms if is_in_sync else NEVER_MS

    @property
    def has_fetched(self) -> bool:
        """Whether it has fetched in the present leader epoch, or was in sync when that began."""
        return self._fetched_ms != NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """Return whether the follower has everything, or had everything within the last `lag_ms_max`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A change of the ISR that is requested from the controller. Two changes are equal only if they are the same."""

    committed: tuple[int, ...]
    proposed: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    """The partition epoch of the committed ISR; the controller refuses the change if it has a newer one."""
    broker_epochs: Mapping[int, int]
    """With which registration each proposed follower had fetched when this was decided. One that has restarted since
    may have lost what it had."""
    lags: Mapping[int, str]
    """Why each removed replica is removed, in words; empty for an expansion."""

    @property
    def is_shrink(self) -> bool:
        return len(self.proposed) < len(self.committed)

    @property
    def maximal(self) -> tuple[int, ...]:
        """The larger set, which counts until the response of the controller arrives."""
        return self.committed if self.is_shrink else self.proposed


def committed_offset(
    leader_end_offset: int,
    followers: Mapping[int, FollowerProgress],
    maximal_isr: Sequence[int],
    *,
    is_alive: Callable[[int], bool],
    now_ms: int,
    lag_ms_max: int,
) -> int:
    """Return the offset below which all required replicas have all records; UNKNOWN_OFFSET if one is unknown.

    Required are the maximal ISR, and each live replica that is caught up: it is about to join the ISR, and would never
    reach a high watermark that runs ahead of it.
    """
    offset = leader_end_offset
    for replica, follower in followers.items():
        if follower.log_end_offset < offset and (
            replica in maximal_isr
            or (follower.is_caught_up(leader_end_offset, now_ms, lag_ms_max) and is_alive(replica))
        ):
            offset = follower.log_end_offset
    return offset


def may_join(follower: FollowerProgress, *, high_watermark: int, epoch_start_offset: int | None) -> bool:
    """Return whether a live follower may join the ISR.

    It needs every committed record. The high watermark of a new leader may lag behind what is committed, but each
    committed record lies below the start of the leader's epoch.
    """
    return (
        epoch_start_offset is not None
        and follower.log_end_offset >= epoch_start_offset
        and follower.log_end_offset >= high_watermark
    )


def out_of_sync(
    isr: Iterable[int],
    followers: Mapping[int, FollowerProgress],
    *,
    leader_end_offset: int,
    now_ms: int,
    lag_ms_max: int,
) -> dict[int, str]:
    """Return the followers that have not been caught up for longer than `lag_ms_max`, each with its lag in words."""
    return {
        replica: _lag(follower, leader_end_offset, now_ms)
        for replica in isr
        if (follower := followers.get(replica)) is not None
        and not follower.is_caught_up(leader_end_offset, now_ms, lag_ms_max)
    }


def _lag(follower: FollowerProgress, leader_end_offset: int, now_ms: int) -> str:
    end = "unknown" if follower.log_end_offset == UNKNOWN_OFFSET else str(follower.log_end_offset)
    caught_up = "never" if follower.caught_up_ms == NEVER_MS else f"{now_ms - follower.caught_up_ms} ms ago"
    return f"end offset {end}, leader {leader_end_offset}; last caught up {caught_up}"


def low_watermark(replicas: Iterable[int], log_start_offset_by_replica: Mapping[int, int]) -> int:
    """Return the offset below which no replica has records; UNKNOWN_OFFSET while a replica's start is unknown."""
    return min(
        (log_start_offset_by_replica.get(replica, UNKNOWN_OFFSET) for replica in replicas), default=UNKNOWN_OFFSET
    )
