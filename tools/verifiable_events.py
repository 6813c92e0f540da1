"""The lines of the verifiable clients: one JSON object each, for programs that start them.

Owns the form of a line, and what both tools do without arguments. Must not know producers or consumers.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence

from tools.command_line import CommandLine
from tools.java_names import json_text

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


def prints_help_alone(line: CommandLine, arguments: Sequence[str] | None) -> bool:
    """Print the usage if there is no argument, or `--help`; these tools exit with 0 then."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and not {"-h", "--help"}.intersection(given):
        return False
    line.print_help()
    return True
