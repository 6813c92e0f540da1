"""File descriptors: how many this process may have, and how many of them connections must leave to files.

Owns the limit of the process and the arithmetic of the reserve. Must not know sockets or files. Pure but for
`raise_limit`, `soft_limit` and `open_count`; times are in seconds of any clock that only rises.

Files come first: a connection that is refused can be tried again elsewhere, while a segment that cannot be opened fails
the requests of everybody. So connections are refused while fewer descriptors than the reserve are free, and those that
are idle longest are closed when files have used up half of it. A broker whose files alone take nearly all descriptors
still serves some clients: below a fixed share the reserve does not hold.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("kafka.network.descriptors")

RESERVE_MIN: Final = 128
RESERVE_SHARE: Final = 8
"""The reserve is this part of the limit."""
CONNECTIONS_SHARE: Final = 8
"""As many connections as this part of the limit are accepted whatever files need."""
LAST_FREE: Final = 16
"""So few free descriptors are left to files in any case."""
MEASURED_EVERY_S: Final = 1.0
MEASURED_SELDOM_EVERY_S: Final = 10.0
"""While more than half of the limit is free."""


def raise_limit() -> None:
    """Raise the soft limit of this process to the hard one, and log both. Call once, before anything is opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of %d file descriptors cannot be raised to %d: %s", soft, hard, error)
    limit = soft_limit()
    logger.info(
        "limit of file descriptors: %d (was %d), of which connections leave at least %d to files",
        limit,
        soft,
        DescriptorBudget(limit).reserve,
    )


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_count() -> int:
    """How many descriptors this process has open. Raises OSError."""
    # Since Linux 6.2 the size of the directory is the answer; before, it is 0.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


class DescriptorBudget:
    """Tells whether one more connection leaves enough. What is no connection is counted now and then only."""

    def __init__(self, limit: int, count: Callable[[], int] = open_count) -> None:
        self._count = count
        self._others = 0
        self._measured_again_s = float("-inf")
        self.limit = limit
        self.reserve = min(max(limit // RESERVE_SHARE, RESERVE_MIN), limit // 2)

    def has_room(self, connections: int, now_s: float, *, is_protected: bool = False) -> bool:
        """Whether to accept one more connection beside `connections`. A protected one may use half the reserve."""
        free = self._free(connections, now_s)
        if connections < self.limit // CONNECTIONS_SHARE:
            return free > LAST_FREE
        return free > (self.reserve // 2 if is_protected else self.reserve)

    def excess(self, connections: int, now_s: float) -> int:
        """How many connections to close, so that files have their reserve again; 0 while half of it is free."""
        free = self._free(connections, now_s)
        if free > self.reserve // 2:
            return 0
        return max(0, min(self.reserve - free, connections - self.limit // CONNECTIONS_SHARE))

    def _free(self, connections: int, now_s: float) -> int:
        if now_s >= self._measured_again_s:
            with contextlib.suppress(OSError):  # no /proc, or no descriptor to read it with: the last count has to do
                self._others = self._count() - connections
            is_ample = self._others + connections < self.limit // 2
            self._measured_again_s = now_s + (MEASURED_SELDOM_EVERY_S if is_ample else MEASURED_EVERY_S)
        return self.limit - self._others - connections
