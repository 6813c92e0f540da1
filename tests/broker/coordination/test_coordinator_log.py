"""Appends: the outcome is reported exactly once."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordination.coordinator_log import append_now
from protocol.errors import ErrorCode
from protocol.records.builder import RecordData, build_batch
from tests.broker.groups.fakes import FakeLog

BATCH = build_batch([RecordData(0, b"k", b"v")])


async def test_synchronous_append_is_reported_before_the_call_returns() -> None:
    log, outcomes = FakeLog(), list[ErrorCode]()
    append_now(log, 0, BATCH, 1_000, outcomes.append)
    assert outcomes == [ErrorCode.NONE]
    log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    append_now(log, 0, BATCH, 1_000, outcomes.append)
    assert outcomes == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]


def test_an_append_without_an_awaitable_needs_no_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    log, outcomes = FakeLog(), list[ErrorCode]()
    monkeypatch.setattr(log, "append", lambda *_, **__: None)
    append_now(log, 0, BATCH, 1_000, outcomes.append)
    assert outcomes == [ErrorCode.NONE]


@pytest.mark.parametrize("error", [None, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_future_that_is_done_is_reported_before_the_call_returns(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode | None
) -> None:
    log, outcomes = FakeLog(), list[ErrorCode]()
    log.holds = True
    done = log.append(0, bytearray(BATCH), 1_000)
    log.release(error=error)
    monkeypatch.setattr(log, "append", lambda *_, **__: done)
    append_now(log, 0, BATCH, 1_000, outcomes.append)
    assert outcomes == [error or ErrorCode.NONE]


@pytest.mark.parametrize("error", [None, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_slow_append_is_reported_when_it_ends(error: ErrorCode | None) -> None:
    log, outcomes = FakeLog(), list[ErrorCode]()
    log.holds = True
    append_now(log, 0, BATCH, 1_000, outcomes.append)
    assert outcomes == []
    log.release(error=error)
    await asyncio.sleep(0)
    assert outcomes == [error or ErrorCode.NONE]


async def test_a_cancelled_append_and_an_unexpected_failure_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, outcomes = FakeLog(), list[ErrorCode]()
    log.holds = True
    for _ in range(2):
        append_now(log, 0, BATCH, 1_000, outcomes.append)
    log.held[0].done.cancel()
    log.held[1].done.set_exception(ZeroDivisionError("a bug"))
    await asyncio.sleep(0)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "a bug" in caplog.text
