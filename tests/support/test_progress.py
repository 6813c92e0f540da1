"""The progress of a run says how far it is, what failed and what is slow."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.progress import Estimate, Progress, one_line

Phase = Literal["setup", "call", "teardown"]


def report(nodeid: str, when: Phase = "call", seconds: float = 1.0, failure: str | None = None) -> pytest.TestReport:
    outcome: Literal["passed", "failed"] = "failed" if failure else "passed"
    return pytest.TestReport(nodeid, ("", 0, ""), {}, outcome, failure, when, duration=seconds)


def run(progress: Progress, nodeid: str, seconds: float, failure: str | None = None) -> None:
    progress.begin(nodeid)
    progress.add(report(nodeid, "call", seconds, failure))
    progress.add(report(nodeid, "teardown", 0.0))


def test_the_line_counts_tests_and_failures_and_names_the_files_that_run() -> None:
    progress = Progress({"a.py": 2, "b.py": 1200}, {})
    run(progress, "a.py::x", 1.0)
    run(progress, "a.py::y", 1.0, "AssertionError: no")
    progress.begin("b.py::x")
    progress.begin("b.py::y")
    assert progress.line(61.5) == "1:01: 2 of 1,202 tests, 1 failed  b.py"


def test_the_time_that_is_left_follows_from_the_last_run() -> None:
    progress = Progress({"slow.py": 1, "fast.py": 10}, {"slow.py": 90.0, "fast.py": 10.0})
    run(progress, "slow.py::x", 180.0)
    assert progress.line(180.0) == "3:00, about 0:20 left: 1 of 11 tests"


def test_a_run_whose_files_are_mostly_new_is_not_estimated() -> None:
    estimate = Estimate({"old.py": 1.0}, {"old.py": 1, "new.py": 5})
    estimate.finish("old.py")
    assert estimate.left_s(1.0) is None


def test_the_slowest_files_come_first_and_setup_counts() -> None:
    progress = Progress({"a.py": 1, "b.py": 1}, {})
    progress.add(report("a.py::x", "setup", 5.0))
    run(progress, "a.py::x", 1.0)
    run(progress, "b.py::x", 2.0)
    assert progress.slowest() == [("a.py", 6.0), ("b.py", 2.0)]


def test_a_failure_is_one_line() -> None:
    assert one_line(report("a.py::x", "setup", failure="OSError: no\nmore")) == "FAILED a.py::x (setup) - OSError: no"
