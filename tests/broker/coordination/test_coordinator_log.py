"""Appends and replay: the outcome is reported exactly once, and every record is read in order."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordination.coordinator_log import append_now, replay
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import BatchHeader, Record
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
    monkeypatch.setattr(log, "append", lambda *_: None)
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
    monkeypatch.setattr(log, "append", lambda *_: done)
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


async def values_of(log: FakeLog, buffer_size: int = 1 << 20) -> list[bytes | None]:
    values: list[bytes | None] = []

    def take(header: BatchHeader, record: Record) -> None:
        values.append(record.value)

    await replay(log, 0, buffer_size, take)
    return values


@pytest.mark.parametrize("buffer_size", [1, 200, 1 << 20])
async def test_every_record_is_read_with_any_buffer_size(buffer_size: int) -> None:
    log = FakeLog()
    numbers = [b"%d" % number for number in range(1_200)]
    for start in range(0, len(numbers), 400):
        log.write(0, build_batch([RecordData(0, b"k", value) for value in numbers[start : start + 400]]))
    assert await values_of(log, buffer_size) == numbers


async def test_a_log_that_cannot_be_read_is_not_served() -> None:
    log = FakeLog()
    log.write(0, BATCH)
    log.read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError):
        await values_of(log)


async def test_a_read_without_a_whole_batch_raises_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog()
    log.write(0, BATCH)

    async def part(partition: int, offset: int, max_bytes: int) -> bytes:
        return BATCH[:-1]

    monkeypatch.setattr(log, "read", part)
    with pytest.raises(Malformed, match="no whole batch"):
        await values_of(log)
