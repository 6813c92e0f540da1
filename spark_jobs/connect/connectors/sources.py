"""What several sources have in common: settings, and the wait until something is due.

Owns these. Must not know a single source.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from spark_jobs.connect.base.definitions import REQUIRED, Importance, Kind, Setting, not_empty

TOPIC: Final = Setting("topic", Kind.STRING, REQUIRED, Importance.HIGH, "The topic of the records.", not_empty)
LISTEN_HOST: Final = Setting(
    "listen.host", Kind.STRING, "127.0.0.1", Importance.HIGH, "The address to bind; 0.0.0.0 is all."
)


def wait_until_due(due_s: float, stopped: threading.Event, wait_s: float) -> bool:
    """Return whether a time of the monotonic clock has come, and no stop was requested; wait for it up to `wait_s`.

    A poll that waits longer than about a second would hold back the worker's other work.
    """
    remaining_s = due_s - time.monotonic()
    return not stopped.wait(max(0.0, min(remaining_s, wait_s))) and remaining_s <= wait_s
