"""The lines of the verifiable clients: one JSON object each, for programs that start them.

Owns the form of a line, and what both tools do without arguments. Must not know producers or consumers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tools.base.java_names import json_text

Emit = Callable[[str, dict[str, object]], None]
"""Reports an event: its name and its values."""


def printing() -> Emit:
    """Return a function that prints events on standard output, from any thread."""
    lock = threading.Lock()

    def emit(name: str, values: dict[str, object]) -> None:
        line = json_text({"timestamp": time.time_ns() // 1_000_000, "name": name, **values})
        with lock:
            print(line, flush=True)

    return emit
