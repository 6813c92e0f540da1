"""Markers in real logs: what they end, when they count, and which are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from base.topic_partition import TopicPartition
from broker.replica.partition import Leadership
from broker.replica.transaction_verification import Guards
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import Codes, Marker
from protocol.errors import ErrorCode
from protocol.records.batch import read_header, records
from protocol.records.compression import Compression
from protocol.records.control import ControlType, TransactionMarker, read_marker
from storage.producers.producer_state import Producer
from tests.broker.transactions.leading import BROKER, Leading

T0, T1, GONE = ("t", 0), ("t", 1), ("gone", 0)
TIMEOUT_MS = 30_000


class Writing(Leading):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.guards = Guards(lambda: 86_400_000, lambda partition: 0)
        self.reported: list[tuple[str, int, Marker]] = []
        self.writer = MarkerWriter(
            self.replica_manager,
            self.own_appends,
            self.guards,
            self.clock,
            TIMEOUT_MS,
            lambda *each: self.reported.append(each),
        )

    async def write(self, marker: Marker, partitions: list[TopicPartition]) -> Codes:
        codes = self.writer.write(marker, partitions)
        return codes if isinstance(codes, Mapping) else await codes


@pytest.fixture
def here(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


def marker(epoch: int = 0, *, is_committed: bool = True, coordinator_epoch: int = 0) -> Marker:
    return Marker(7, epoch, is_committed, coordinator_epoch)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_marker_ends_the_transaction(here: Writing, is_committed: bool) -> None:
    first, second = here.lead("t", 0), here.lead("t", 1)
    for partition in (first, second):
        here.produce(partition, 7, 0, 0)
        assert partition.log.last_stable_offset == 0
    ended = marker(is_committed=is_committed)
    assert await here.write(ended, [T0, T1]) == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert [first.log.last_stable_offset, second.log.last_stable_offset] == [2, 2]
    assert len(first.log.reader.aborted_transactions(0, 2)) == (0 if is_committed else 1)
    assert here.reported == [("t", 0, ended), ("t", 1, ended)]


async def test_a_marker_ends_the_transaction_once_it_is_replicated(here: Writing) -> None:
    partition = here.lead("t", 0, isr=(BROKER, 2))
    here.produce(partition, 7, 0, 0)
    writing = asyncio.ensure_future(here.write(marker(), [T0]))
    await asyncio.sleep(0)
    assert partition.log.log_end_offset == 2
    assert here.reported == []
    partition.log.advance_high_watermark(2)
    here.replica_manager.produce_purgatory.check_and_complete(T0)
    assert await writing == {T0: ErrorCode.NONE}
    assert here.reported == [("t", 0, marker())]


async def test_a_marker_that_is_not_replicated_in_time_is_not_reported(here: Writing) -> None:
    here.lead("t", 0, isr=(BROKER, 2))
    writing = asyncio.ensure_future(here.write(marker(), [T0]))
    await asyncio.sleep(0)
    here.clock.advance(TIMEOUT_MS)
    here.timer.advance(here.clock.monotonic_ms())
    assert await writing == {T0: ErrorCode.REQUEST_TIMED_OUT}
    assert here.reported == []


async def test_partitions_that_are_not_led_here_get_errors(here: Writing) -> None:
    here.lead("t", 0)
    here.lead("t", 1).follow(Leadership(1, 2, 1, (2,), 1, (2,)))
    assert await here.write(marker(), [GONE, T0, T1]) == {
        GONE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        T0: ErrorCode.NONE,
        T1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert await here.write(marker(), []) == {}


@pytest.mark.parametrize(
    ("late", "code"),
    [
        (marker(epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (marker(epoch=3, coordinator_epoch=4), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (marker(epoch=3, coordinator_epoch=5), ErrorCode.NONE),
        (marker(epoch=4, coordinator_epoch=6), ErrorCode.NONE),
    ],
)
async def test_markers_of_zombies_are_rejected(here: Writing, late: Marker, code: ErrorCode) -> None:
    here.lead("t", 0)
    assert await here.write(marker(epoch=3, coordinator_epoch=5), [T0]) == {T0: ErrorCode.NONE}
    assert await here.write(late, [T0]) == {T0: code}


async def test_a_marker_cancels_the_guard_of_its_producer(here: Writing) -> None:
    here.lead("t", 0)
    guard = here.guards.take(T0, Producer(7, 0), 0, here.clock.now_ms())
    other = here.guards.take(T0, Producer(8, 0), 0, here.clock.now_ms())
    await here.write(marker(), [T0])
    assert guard.is_cancelled
    assert not other.is_cancelled


async def test_a_rejected_marker_cancels_no_guard(here: Writing) -> None:
    here.lead("t", 0)
    await here.write(marker(epoch=3), [T0])
    guard = here.guards.take(T0, Producer(7, 3), 0, here.clock.now_ms())
    await here.write(marker(epoch=2), [T0])
    assert not guard.is_cancelled


@pytest.mark.parametrize(
    "overrides",
    [
        {"compression.type": "gzip"},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": "0"},
    ],
    ids=lambda overrides: next(iter(overrides)),
)
async def test_no_topic_config_rejects_a_marker(here: Writing, overrides: dict[str, str]) -> None:
    partition = here.lead("t", 0, overrides=overrides)
    assert await here.write(marker(), [T0]) == {T0: ErrorCode.NONE}
    fetched = partition.log.reader.read(0, 1000, upper_bound_offset=1, min_one_batch=True)
    assert fetched is not None
    header = read_header(fetched.records)
    assert (header.is_control, header.is_transactional, header.compression) == (True, True, Compression.NONE)
    (record,) = records(fetched.records, size_max=1000)
    assert read_marker(record) == TransactionMarker(ControlType.COMMIT, 0)
