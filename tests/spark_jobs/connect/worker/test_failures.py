"""What happens to records that fail: tolerance, repetition and the log."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from spark_jobs.connect.base.connector_settings import SINK_SETTINGS
from spark_jobs.connect.base.errors import ConnectError, DataError, RetriableError
from spark_jobs.connect.worker import failures
from spark_jobs.connect.worker.failures import Failure, Failures, Origin, dead_letter_headers
from spark_jobs.connect.worker.task import StoppedError

FAILURE = Failure("TRANSFORMATION", "Mask", DataError("bad value"), Origin("t", 1, 42))


class Clock(threading.Event):
    """Time that passes only while someone waits."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waits_ms: list[int] = []

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_ms.append(round((timeout or 0) * 1000))
        self.now_s += timeout or 0
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(failures, "time", found)
    return found


def failing(clock: threading.Event | None = None, **settings: str) -> tuple[Failures, list[Failure]]:
    """Return the handler of a task, and what it reports."""
    given = {"name": "c", "connector.class": "x", **{key.replace("_", "."): value for key, value in settings.items()}}
    reported: list[Failure] = []
    stopping = clock or threading.Event()
    found = Failures(SINK_SETTINGS.parse(given), connector="c", task=2, stopping=stopping, report=reported.append)
    return found, reported


def test_a_failure_ends_the_task_and_is_no_dead_letter() -> None:
    found, reported = failing()
    with pytest.raises(ConnectError, match="Tolerance exceeded in error handler: TRANSFORMATION in Mask: bad value"):
        found.handle(FAILURE)
    assert (reported, found.count) == ([], 0)


@pytest.mark.parametrize("tolerance", ["all", "ALL"])
def test_a_tolerated_failure_is_reported_and_counted(tolerance: str) -> None:
    found, reported = failing(errors_tolerance=tolerance)
    found.handle(FAILURE)
    assert (reported, found.count) == ([FAILURE], 1)


@pytest.mark.parametrize(
    ("enabled", "with_place", "expected"), [("false", "true", 0), ("true", "false", 1), ("true", "true", 1)]
)
def test_failures_are_logged_only_on_request_and_without_values(
    enabled: str, with_place: str, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    found, _ = failing(errors_tolerance="all", errors_log_enable=enabled, errors_log_include_messages=with_place)
    with caplog.at_level(logging.ERROR):
        found.handle(FAILURE)
    assert len(caplog.records) == expected
    if expected:
        assert "task c-2 failed at stage TRANSFORMATION in Mask" in caplog.text
        assert ("offset=42" in caplog.text) is (with_place == "true")


def raising(*errors: Exception) -> Any:
    """Return a step that raises these errors, then returns `done`."""
    waiting = list(errors)

    def step() -> str:
        if waiting:
            raise waiting.pop(0)
        return "done"

    return step


def test_without_a_timeout_nothing_is_repeated(clock: Clock) -> None:
    with pytest.raises(RetriableError):
        failing(clock)[0].retried(raising(RetriableError("later")))
    assert clock.waits_ms == []


def test_a_step_is_repeated_with_longer_and_longer_pauses(clock: Clock) -> None:
    found, _ = failing(clock, errors_retry_timeout="-1", errors_retry_delay_max_ms="1000")
    assert found.retried(raising(*[RetriableError("later")] * 5)) == "done"
    assert clock.waits_ms == [300, 600, 1000, 1000, 1000]


def test_repetition_ends_with_its_time(clock: Clock) -> None:
    found, _ = failing(clock, errors_retry_timeout="1000")
    with pytest.raises(RetriableError):
        found.retried(raising(*[RetriableError("later")] * 9))
    assert clock.waits_ms == [300, 600, 100]


def test_other_errors_are_not_repeated(clock: Clock) -> None:
    found, _ = failing(clock, errors_retry_timeout="-1")
    with pytest.raises(DataError):
        found.retried(raising(DataError("never")))


def test_repetition_ends_when_the_task_ends(clock: Clock) -> None:
    found, _ = failing(clock, errors_retry_timeout="-1")
    clock.set()
    with pytest.raises(StoppedError):
        found.retried(raising(*[RetriableError("later")] * 9))
    assert clock.waits_ms == [300]


def test_a_dead_letter_without_an_origin_has_empty_places() -> None:
    found = dict(dead_letter_headers(FAILURE._replace(origin=None), "c", 0))
    assert found["__connect.errors.topic"] == found["__connect.errors.offset"] == b""
