"""Waiting, in a test that blocks, until a server, a process or another thread has done something.

Must not know what is waited for. In an event loop a test waits as its own kind of cluster does
(`tests.support.in_process_cluster`), and a `Cluster` of processes forgives servers that do not respond.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], object],
    what: str = "what the test waits for",
    *,
    timeout_s: float = 60.0,
    interval_s: float = 0.02,
) -> None:
    """Return when a condition is true; fail, naming `what` was expected, when it was not for so long."""
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, f"not in {timeout_s:g} s: {what}"
        time.sleep(interval_s)
