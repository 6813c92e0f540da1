"""File descriptors: how many this process may open, and how many of them are reserved for files.

Owns the limit of the process and the arithmetic of the reserve. Must not know sockets or files. Pure except for
`raise_limit`, `soft_limit` and `open_count`; times are seconds of a monotonic clock.

Files have priority: a client that is refused can connect again, while a segment that cannot be opened fails the
requests of all clients. So connections are refused while fewer descriptors are free than the reserve. When files have
used up half of the reserve, the connections that are idle longest are closed. A broker whose files alone take nearly
all descriptors still serves some clients: below a fixed number of connections the reserve does not apply.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Callable
from typing import Final

from base.system_calls import PROC_DESCRIPTORS, SYSTEM_CALLS

logger = logging.getLogger("kafka.network.descriptors")

RESERVE_MIN: Final = 128
RESERVE_SHARE: Final = 8
"""The reserve is the limit divided by this."""
CONNECTIONS_SHARE: Final = 8
"""The limit divided by this is the number of connections to which the reserve does not apply."""
LAST_FREE: Final = 16
"""Connections never take these last free descriptors."""
OPEN_MAX_OF_MACOS: Final = 10_240
"""The highest soft limit that macOS accepts, whose hard limit is infinite."""
MEASURED_EVERY_S: Final = 1.0
MEASURED_SELDOM_EVERY_S: Final = 10.0
"""The interval while more than half of the limit is free."""
FEW: Final = 10_000
"""A limit below it is logged at the start, because it explains why connections are refused later."""


def raise_limit() -> None:
    """Raise this process's soft limit of file descriptors to the hard limit, and log both if few are left.

    Call once, before the broker opens files or sockets.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            _raise_limit(soft, hard)
        except (OSError, ValueError) as error:
            logger.warning("the limit of %d file descriptors cannot be raised to %d: %s", soft, hard, error)
    limit = soft_limit()
    logger.log(
        logging.INFO if limit < FEW else logging.DEBUG,
        "limit of file descriptors: %d (was %d), of which connections leave at least %d to files",
        limit,
        soft,
        DescriptorBudget(limit).reserve,
    )


def _raise_limit(soft: int, hard: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except ValueError:
        if soft >= OPEN_MAX_OF_MACOS:
            raise
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_MAX_OF_MACOS, hard))


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_count() -> int:
    """Return how many descriptors this process has open.

    Raises:
        OSError: No descriptor is free to list them.
    """
    # Since Linux 6.2 the size of this directory is the number of descriptors; before, it is 0.
    folder = SYSTEM_CALLS.descriptor_folder
    count = os.stat(folder).st_size if folder == PROC_DESCRIPTORS else 0
    return count or len(os.listdir(folder))


class DescriptorBudget:
    """Decides whether the free descriptors allow one more connection. Other descriptors are counted periodically."""

    def __init__(self, limit: int, count: Callable[[], int] = open_count) -> None:
        self._count = count
        self._others = 0
        self._measured_again_s = float("-inf")
        self.limit = limit
        self.reserve = min(max(limit // RESERVE_SHARE, RESERVE_MIN), limit // 2)

    def has_room(self, connections: int, now_s: float, *, is_protected: bool = False) -> bool:
        """Return whether to accept one more connection when `connections` are open.

        A protected connection may use half of the reserve.
        """
        free = self._free(connections, now_s)
        if connections < self.limit // CONNECTIONS_SHARE:
            return free > LAST_FREE
        return free > (self.reserve // 2 if is_protected else self.reserve)

    def excess(self, connections: int, now_s: float) -> int:
        """Return how many connections to close so that the reserve is free again; 0 while half of it is free."""
        free = self._free(connections, now_s)
        if free > self.reserve // 2:
            return 0
        return max(0, min(self.reserve - free, connections - self.limit // CONNECTIONS_SHARE))

    def _free(self, connections: int, now_s: float) -> int:
        if now_s >= self._measured_again_s:
            with contextlib.suppress(OSError):  # no /proc, or no free descriptor to list it: use the last count
                self._others = self._count() - connections
            is_ample = self._others + connections < self.limit // 2
            self._measured_again_s = now_s + (MEASURED_SELDOM_EVERY_S if is_ample else MEASURED_EVERY_S)
        return self.limit - self._others - connections
