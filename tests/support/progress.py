"""What `bin/test` prints while it runs: how far it is, how long it will take, each failure at once, the slowest files.

Owns: the lines about progress, and how long each file took last time, which pytest's cache keeps if there is one. Must
not know how the tests are spread over workers.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence

import pytest

LINE_INTERVAL_S = 20.0
"""Between two lines if the output is no terminal."""
REDRAW_INTERVAL_S = 0.2
SLOWEST = 10
SECONDS_KEY = "milena/seconds"

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]
"""Category, letter and word of a report, as pytest's hook returns them."""


class Estimate:
    """How much of a run is left, from how long each file took last time."""

    def __init__(self, seconds: Mapping[str, float], cases: Mapping[str, int]) -> None:
        """`seconds`: by file, of the last run. A file that is missing there counts as an average one, but if most of
        the cases are new, nothing is estimated: the slow files run first.
        """
        known = {file: seconds[file] / count for file, count in cases.items() if file in seconds}
        average = sum(known.values()) / len(known) if known else 1.0
        self._of_case = {file: known.get(file, average) for file in cases}
        self._whole = sum(self._of_case[file] * count for file, count in cases.items())
        self._is_known = 2 * sum(cases[file] for file in known) > sum(cases.values())
        self._done = 0.0

    def finish(self, file: str) -> None:
        """Count one case of a file as done."""
        self._done += self._of_case.get(file, 0.0)

    def left_s(self, passed_s: float) -> float | None:
        """Return the seconds that are left after `passed_s`; None while too little is known."""
        if not self._is_known or self._done < self._whole / 50:
            return None
        return passed_s / self._done * (self._whole - self._done)


class Progress:
    """The state of a run, and its text. Knows no terminal."""

    def __init__(self, cases: Mapping[str, int], seconds_before: Mapping[str, float]) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._estimate = Estimate(seconds_before, cases)
        self._total = sum(cases.values())
        self._running: dict[str, None] = {}

    def begin(self, nodeid: str) -> None:
        self._running[nodeid] = None

    def add(self, report: pytest.TestReport) -> None:
        """Count a report of a phase of a test."""
        file = file_of(report.nodeid)
        self.seconds[file] += report.duration
        if report.when == "teardown":
            self._running.pop(report.nodeid, None)
            self._estimate.finish(file)
            self.counts["done"] += 1
        if report.failed:
            self.counts["failed"] += 1

    def line(self, passed_s: float) -> str:
        """Return how far the run is: for a terminal, and for a log."""
        left_s = self._estimate.left_s(passed_s)
        time_text = minutes(passed_s) + (f", about {minutes(left_s)} left" if left_s is not None else "")
        failed = f", {self.counts['failed']} failed" if self.counts["failed"] else ""
        files = " ".join(dict.fromkeys(map(file_of, self._running)))
        return f"{time_text}: {self.counts['done']:,} of {self._total:,} tests{failed}  {files}".rstrip()

    def slowest(self) -> Sequence[tuple[str, float]]:
        """Return the files that took longest, with their seconds."""
        return sorted(self.seconds.items(), key=lambda item: -item[1])[:SLOWEST]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def one_line(report: pytest.TestReport) -> str:
    """Return what failed and why, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = str(crash.message if crash is not None else report.longrepr or "").strip().partition("\n")[0]
    phase = "" if report.when == "call" else f" ({report.when})"
    return f"FAILED {report.nodeid}{phase} - {reason}"


class Reporter:
    """Prints the progress in place of pytest's dots; pytest prints the details of failures and its summary."""

    def __init__(self, config: pytest.Config, now_s: Callable[[], float] = time.monotonic) -> None:
        self._cache: pytest.Cache | None = getattr(config, "cache", None)  # `-p no:cacheprovider` leaves it out
        self._now_s = now_s
        self._started_s = self._printed_s = now_s()
        self._progress: Progress | None = None
        self._writer = config.get_terminal_writer()
        self._is_terminal = self._writer.hasmarkup
        self._has_line = False

    def begin(self, nodeids: Sequence[str]) -> None:
        self._progress = Progress(Counter(map(file_of, nodeids)), self._seconds_before())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.begin([item.nodeid for item in session.items])

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        if self._progress is None:
            self.begin(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._progress is not None:
            self._progress.begin(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        """Count a test as pytest does, and print no letter for it."""
        category, _, word = yield
        return category, "", "" if category == "passed" else word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._progress is None:
            return
        self._progress.add(report)
        if report.failed:
            self._clear()
            self._writer.line(one_line(report), red=True)
        now_s = self._now_s()
        if now_s - self._printed_s < (REDRAW_INTERVAL_S if self._is_terminal else LINE_INTERVAL_S):
            return
        self._printed_s = now_s
        line = self._progress.line(now_s - self._started_s)
        if self._is_terminal:
            width = self._writer.fullwidth - 1
            self._writer.write(f"\r{line[:width]:<{width}}", flush=True)
            self._has_line = True
        else:
            self._writer.line(line, flush=True)

    def pytest_terminal_summary(self) -> None:
        if self._progress is None or not self._progress.counts["done"]:
            return
        self._clear()
        self._writer.line("slowest files:")
        for file, seconds in self._progress.slowest():
            self._writer.line(f"{seconds:8.1f} s  {file}")
        if self._cache is not None:
            self._cache.set(SECONDS_KEY, {**self._seconds_before(), **self._progress.seconds})

    def _seconds_before(self) -> Mapping[str, float]:
        """Return how long each file took when it was run last."""
        found: Mapping[str, float] = {} if self._cache is None else self._cache.get(SECONDS_KEY, {})
        return found

    def _clear(self) -> None:
        if self._has_line:
            self._writer.write("\r" + " " * (self._writer.fullwidth - 1) + "\r")
            self._has_line = False
