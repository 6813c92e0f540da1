"""Shows the progress of loading the logs, with an estimate of the time left.

Owns: the text, the estimate and how often it is shown. Must not know: how logs are loaded.

On a terminal it is a bar, which is removed at the end. Otherwise it is a line in the log every `LINE_INTERVAL_MS`, the
first one after that time, so that a short start logs none.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from base.clock import Clock
from storage.manager.log_startup import LoadStatus

logger = logging.getLogger("kafka.log.LogManager")

LINE_INTERVAL_MS = 5_000
MEGABYTE = 1_000_000


def share_done(status: LoadStatus) -> float:
    """Return the share that is done, from 0 to 1: of the bytes to scan, or of the partitions if nothing is scanned."""
    if status.bytes_total:
        return min(1.0, status.bytes_done / status.bytes_total)
    return status.logs_done / status.logs_total if status.logs_total else 1.0


def seconds_left(status: LoadStatus, elapsed_ms: int) -> float | None:
    """Return the estimated seconds that are left; None while nothing is done."""
    share = share_done(status)
    return elapsed_ms / 1000 * (1 - share) / share if share else None


def progress_text(status: LoadStatus, elapsed_ms: int) -> str:
    """Return one line: partitions, bytes if some are scanned, time left."""
    parts = [f"{status.logs_done:,} of {status.logs_total:,} partitions"]
    if status.bytes_total:
        parts.append(f"{status.bytes_done // MEGABYTE:,} of {status.bytes_total // MEGABYTE:,} MB scanned")
    left = seconds_left(status, elapsed_ms)
    if left is not None:
        minutes, seconds = divmod(round(left), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return ", ".join(parts)


class LoadLines:
    """Log lines at intervals: a pure machine that `write` gets the text from."""

    def __init__(self, write: Callable[[str], None], started_ms: int) -> None:
        self._write = write
        self._started_ms = started_ms
        self._due_ms = started_ms + LINE_INTERVAL_MS

    def show(self, status: LoadStatus, now_ms: int) -> None:
        if now_ms >= self._due_ms and status.logs_done < status.logs_total:
            self._due_ms = now_ms + LINE_INTERVAL_MS
            self._write(f"loading logs: {progress_text(status, now_ms - self._started_ms)}")


@contextmanager
def load_display(clock: Clock) -> Iterator[Callable[[LoadStatus], None]]:
    """What `LogStartup.load` is to call with its status, in any thread."""
    started_ms = clock.monotonic_ms()
    if sys.stderr.isatty():
        with _bar(clock, started_ms) as show:
            yield show
    else:
        lines = LoadLines(logger.info, started_ms)
        yield lambda status: lines.show(status, clock.monotonic_ms())


@contextmanager
def _bar(clock: Clock, started_ms: int) -> Iterator[Callable[[LoadStatus], None]]:
    # Imported here: it takes a tenth of the time of a start, and most brokers have no terminal.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("loading logs"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=1.0)

        def show(status: LoadStatus) -> None:
            text = progress_text(status, clock.monotonic_ms() - started_ms)
            bar.update(task, description=text, completed=share_done(status), refresh=True)

        yield show
