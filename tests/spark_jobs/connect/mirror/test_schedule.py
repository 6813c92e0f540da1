"""Repeated work of a connector."""

from __future__ import annotations

import threading

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.mirror import schedule
from spark_jobs.connect.mirror.schedule import Schedule
from tests.spark_jobs.connect.mirror.flows import DEADLINE_S

CALLS = 3
"""After so many calls, work has reached what a test waits for."""


class Work:
    """Counts its calls; the first ones fail."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.calls = 0
        self.threads: set[str] = set()
        self.reached = threading.Event()
        self._failures = failures
        self._error = error or ConnectError("the cluster is down")

    def __call__(self) -> None:
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        if self.calls == CALLS:
            self.reached.set()
        if self.calls <= self._failures:
            raise self._error


def test_work_is_done_at_once_and_then_repeated_in_one_thread() -> None:
    first, second = Work(), Work()
    found = Schedule("mirror")
    found.add(first, 0.01, "first")
    found.add(second, 0.01, "second")
    assert (first.calls, second.calls) == (1, 1)
    found.start()
    assert first.reached.wait(DEADLINE_S)
    assert second.reached.wait(DEADLINE_S)
    found.stop()
    assert first.threads == second.threads == {threading.current_thread().name, "mirror"}


@pytest.mark.parametrize("error", [ConnectError("the cluster is down"), ValueError("a defect")])
def test_work_without_interval_is_repeated_until_it_succeeds(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule, "RETRY_S", 0.01)
    work = Work(failures=2, error=error)
    found = Schedule("mirror")
    found.add(work, None, "the search")
    found.start()
    assert work.reached.wait(DEADLINE_S)
    found.stop()
    assert work.calls == 3
    assert caplog.text.count("mirror: the search failed, and is tried again") == 2


def test_a_schedule_without_work_starts_no_thread() -> None:
    found = Schedule("mirror without work")
    found.add(Work(), None, "once")
    found.start()
    assert "mirror without work" not in {thread.name for thread in threading.enumerate()}
    found.stop()
