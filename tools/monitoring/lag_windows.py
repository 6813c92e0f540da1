"""Whether consumers keep up, decided from their last commits alone, without thresholds.

Owns the rules. Must not know how commits and offsets are read. Pure: times are arguments, in milliseconds since the
epoch.

A partition is fine if its lag was 0 at any commit of the window. Otherwise, in this order: an offset that went back, no
commit for longer than the window (for 10 minutes if it has one commit alone), commits of one and the same offset, a lag
that grew at every commit.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

WINDOW_SIZE: Final = 10
"""The number of last commits to which the rules apply."""
ONE_COMMIT_AGE_MAX_MS: Final = 600_000
"""Age from which a commit without others is a STOP: a window of one has no length to compare with."""
ENDS_MAX: Final = 1000
"""Observed end offsets that are kept for each partition."""


class Status(IntEnum):
    """The state of a partition or a group; greater is worse."""

    OK = 1
    WARN = 2
    """The lag grows."""
    ERR = 3
    """The worst partition of the group is stalled or stopped, or has gone back."""
    STOP = 4
    """No commits any more."""
    STALL = 5
    """Every commit has the same offset."""
    REWIND = 6
    """The offset has gone back."""


class Commit(NamedTuple):
    """One commit, and the lag at that time."""

    offset: int
    time_ms: int
    lag: int


class Window:
    """The last commits of one group for one partition."""

    __slots__ = ("commits",)

    def __init__(self, size: int = WINDOW_SIZE) -> None:
        self.commits: deque[Commit] = deque(maxlen=size)

    def add(self, commit: Commit) -> None:
        """Add a commit that is newer than all others; one of the same time replaces the last."""
        if self.commits and commit.time_ms <= self.commits[-1].time_ms:
            return
        self.commits.append(commit)

    def status(self, now_ms: int, lag: int) -> Status:
        """Return the status at `now_ms`, when the lag is `lag`."""
        commits = self.commits
        if not commits or not lag or any(not commit.lag for commit in commits):
            return Status.OK
        offsets = [commit.offset for commit in commits]
        if any(later < earlier for earlier, later in itertools.pairwise(offsets)):
            return Status.REWIND
        length_ms = commits[-1].time_ms - commits[0].time_ms if len(commits) > 1 else ONE_COMMIT_AGE_MAX_MS
        if now_ms - commits[-1].time_ms > length_ms:
            return Status.STOP
        if len(commits) < 2:
            return Status.OK
        if offsets[0] == offsets[-1]:
            return Status.STALL
        lags = [commit.lag for commit in commits]
        if all(later > earlier for earlier, later in itertools.pairwise(lags)):
            return Status.WARN
        return Status.OK

    @property
    def completeness(self) -> float:
        """How full the window is, from 0 to 1."""
        return len(self.commits) / (self.commits.maxlen or 1)


def group_status(statuses: Iterable[Status]) -> Status:
    """Return the status of a group: that of its worst partition, where anything worse than WARN is ERR."""
    worst = max(statuses, default=Status.OK)
    return min(worst, Status.ERR)


class Ends:
    """The end offsets of one partition over time, which date records without reading them."""

    __slots__ = ("_offsets", "_times_ms")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times_ms: list[int] = []

    def add(self, offset: int, now_ms: int) -> None:
        """Note the end offset at `now_ms`."""
        if self._offsets and offset < self._offsets[-1]:
            self._offsets.clear()  # the topic was created anew
            self._times_ms.clear()
        if self._offsets and offset == self._offsets[-1]:
            if len(self._offsets) == 1 or self._offsets[-2] != offset:
                self._offsets.append(offset)
                self._times_ms.append(now_ms)
            else:
                self._times_ms[-1] = now_ms
            return
        self._offsets.append(offset)
        self._times_ms.append(now_ms)
        if len(self._offsets) > ENDS_MAX:
            # Every second one is enough for the older half.
            half = len(self._offsets) // 2
            self._offsets[:half] = self._offsets[:half:2]
            self._times_ms[:half] = self._times_ms[:half:2]

    def at(self, time_ms: int) -> int:
        """Return the end offset at `time_ms`, interpolated between the observations before and after it.

        Before the first observation it is the first end offset, after the last one the last. There must be one.
        """
        index = bisect_right(self._times_ms, time_ms)
        if index in (0, len(self._times_ms)):
            return self._offsets[min(index, len(self._offsets) - 1)]
        (before_ms, after_ms), (before, after) = (
            self._times_ms[index - 1 : index + 1],
            self._offsets[index - 1 : index + 1],
        )
        return before + (after - before) * (time_ms - before_ms) // (after_ms - before_ms)

    def lag_ms(self, committed: int, now_ms: int) -> int:
        """Return how long the first record at or after `committed` has been waiting; 0 if there is none.

        The record was appended before the end offset was first seen to exceed `committed`. It may be older, by at most
        one interval between two observations, or by any time if it is older than the first one.
        """
        index = bisect_right(self._offsets, committed)
        return max(now_ms - self._times_ms[index], 0) if index < len(self._offsets) else 0
