"""What the performance tools share: their figures, the table of client metrics, and the client's own CPU time.

Owns the forms of lines and numbers, which are Kafka's. Must not know producers or consumers. Times are arguments.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tools.base.command_line import StopRequest
from tools.client import client_library as library

MIB: Final = 1 << 20
SAMPLES_MAX: Final = 500_000
"""How many latencies are kept for the percentiles."""
PROGRESS_WIDTH: Final = 30


def percentiles(latencies_ms: Sequence[int], *shares: float) -> list[int]:
    """Return the latencies below which the shares of all latencies lie, as Kafka selects them; 0 for none."""
    if not latencies_ms:
        return [0] * len(shares)
    ordered = sorted(latencies_ms)
    return [ordered[int(share * len(ordered))] for share in shares]


class Latencies:
    """Counts, bytes and latencies of the records that were acknowledged: of the whole run and of a window."""

    def __init__(self, record_count: int, started_s: float) -> None:
        """`record_count` is how many records the run will have at most; it determines which latencies are kept."""
        self.count = self.size = 0
        self._every = max(1, record_count // min(record_count, SAMPLES_MAX))
        self._sample_ms: list[int] = []
        self._started_s = self._window_started_s = started_s
        self._total_ms = self._max_ms = 0
        self._window_count = self._window_size = self._window_total_ms = self._window_max_ms = 0

    def add(self, latencies_ms: Sequence[int], size: int) -> None:
        """Count acknowledged records with their latencies; `size` is that of all of them in bytes."""
        if not latencies_ms:
            return
        total_ms, largest_ms = sum(latencies_ms), max(latencies_ms)
        self._sample_ms += latencies_ms[-self.count % self._every :: self._every]
        self.count += len(latencies_ms)
        self.size += size
        self._total_ms += total_ms
        self._max_ms = max(self._max_ms, largest_ms)
        self._window_count += len(latencies_ms)
        self._window_size += size
        self._window_total_ms += total_ms
        self._window_max_ms = max(self._window_max_ms, largest_ms)

    def window_seconds(self, now_s: float) -> float:
        return now_s - self._window_started_s

    def window_line(self, now_s: float) -> str:
        """Return the line about the present window, and begin the next one."""
        seconds = max(now_s - self._window_started_s, 1e-9)
        count = self._window_count
        rate = f"{count / seconds:.1f} records/sec ({self._window_size / seconds / MIB:.2f} MB/sec)"
        line = (
            f"{count} records sent, {rate}, "
            f"{self._window_total_ms / max(count, 1):.1f} ms avg latency, {self._window_max_ms:.1f} ms max latency."
        )
        self._window_started_s = now_s
        self._window_count = self._window_size = self._window_total_ms = self._window_max_ms = 0
        return line

    def total_line(self, now_s: float) -> str:
        """Return the line about the whole run."""
        seconds = max(now_s - self._started_s, 1e-9)
        median, most, nearly_all, all_but_few = percentiles(self._sample_ms, 0.5, 0.95, 0.99, 0.999)
        rate = f"{self.count / seconds:f} records/sec ({self.size / seconds / MIB:.2f} MB/sec)"
        return (
            f"{self.count} records sent, {rate}, "
            f"{self._total_ms / max(self.count, 1):.2f} ms avg latency, {self._max_ms:.2f} ms max latency, "
            f"{median} ms 50th, {most} ms 95th, {nearly_all} ms 99th, {all_but_few} ms 99.9th."
        )


def cpu_line(cpu_s: float, seconds: float) -> str:
    """Return the line that says whether the tool itself, rather than the broker, may have been the limit."""
    share = cpu_s / max(seconds, 1e-9)
    return f"This client used {share:.2f} of a core ({cpu_s:.1f} s of CPU time in {seconds:.1f} s)."


def run_measured(run: Callable[[StopRequest], object]) -> bool:
    """Return whether `run` succeeded; print the line about the CPU time, or the error of the client library."""
    cpu_s, started_s = time.process_time(), time.monotonic()
    with StopRequest() as stop:
        try:
            run(stop)
        except library.KafkaException as error:
            print(f"Error: {error.args[0].str()}", file=sys.stderr)
            return False
    print(cpu_line(time.process_time() - cpu_s, time.monotonic() - started_s), file=sys.stderr)
    return True


def metrics_table(statistics: Mapping[str, Any], kind: str, client_id: str) -> str:
    """Return the table of `--print-metrics`: the numbers in the statistics of librdkafka, under their own names."""
    rows = [(f"{kind}-metrics:{name}:{{client-id={client_id}}}", value) for name, value in sorted(_numbers(statistics))]
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"\n{'Metric Name':<{width}}   Value", *(f"{name:<{width}} : {value:.3f}" for name, value in rows)]
    return "\n".join(lines)


def _numbers(statistics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in statistics.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}-")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


class Statistics:
    """Keeps the last statistics of a client of librdkafka."""

    INTERVAL_MS: Final = 500
    TIMEOUT_S: Final = 2.0

    def __init__(self) -> None:
        self.last: Mapping[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """Return the settings of a client that reports its statistics here."""
        return {"stats_cb": self._keep, "statistics.interval.ms": self.INTERVAL_MS}

    def wait(self, poll: Callable[[float], object]) -> Mapping[str, Any]:
        """Return the next statistics of a client, which reports them from its `poll`."""
        before, deadline_s = self.last, time.monotonic() + self.TIMEOUT_S
        while self.last is before and time.monotonic() < deadline_s:
            poll(0.05)
        return self.last

    def _keep(self, text: str) -> None:
        self.last = json.loads(text)


class Progress:
    """A bar on stderr if that is a terminal. The lines of the tool go to stdout."""

    INTERVAL_S: Final = 0.2

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._is_shown = sys.stderr.isatty()
        self._next_s = 0.0

    def show(self, done: int) -> None:
        """Draw the bar anew, a few times a second."""
        now_s = time.monotonic()
        if self._is_shown and now_s >= self._next_s:
            self._next_s = now_s + self.INTERVAL_S
            filled = min(PROGRESS_WIDTH, PROGRESS_WIDTH * done // self._total)
            bar = "#" * filled + "-" * (PROGRESS_WIDTH - filled)
            print(f"\r[{bar}] {done:,} of {self._total:,}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the bar, before a line is printed."""
        if self._is_shown and self._next_s:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._next_s = 0.0
