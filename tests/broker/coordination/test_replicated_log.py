"""Appends of a coordinator to a log with `flush.messages`: durable first, and in the order of the log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.coordination.coordinator_log import append_now
from broker.coordination.replicated_log import ReplicatedLog
from broker.replica.partition import Leadership, Partition
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import Marker
from protocol.errors import ErrorCode
from protocol.records.builder import RecordData, build_batch
from tests.broker.transactions.leading import BROKER, Leading

TOPIC = "__consumer_offsets"
TIMEOUT_MS = 1000
BATCH = build_batch([RecordData(1, b"k", b"v")])


class Coordinating(Leading):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = ReplicatedLog(
            TOPIC,
            self.replica_manager,
            self.own_appends,
            cast(MetadataCache, None),
            self.clock,
            cast(Any, None),
            connect=cast(Any, None),
        )
        self.finished: list[tuple[str, ErrorCode]] = []

    def host(self, flush_messages: int, isr: tuple[int, ...] = (BROKER,)) -> Partition:
        return self.lead(TOPIC, 0, isr, {"flush.messages": str(flush_messages)})

    def append(self, name: str, *, needs_isr: bool = True) -> None:
        def finish(error: ErrorCode) -> None:
            self.finished.append((name, error))

        append_now(self.log, 0, BATCH, TIMEOUT_MS, finish, needs_isr=needs_isr)

    @property
    def successes(self) -> list[str]:
        assert not [error for _, error in self.finished if error]
        return [name for name, _ in self.finished]


@pytest.fixture
def here(tmp_path: Path) -> Coordinating:
    return Coordinating(tmp_path)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_append_has_its_outcome_after_its_sync(here: Coordinating) -> None:
    partition = here.host(1)
    here.append("a")
    await turns()
    assert here.successes == []
    await here.end_sync()
    assert here.successes == ["a"]
    assert partition.log.durability.recovery_point == 1


async def test_append_without_flush_messages_has_its_outcome_in_the_same_step(here: Coordinating) -> None:
    here.lead(TOPIC, 0)
    here.append("a")
    assert here.successes == ["a"]


async def test_one_sync_serves_all_appends_before_its_start_in_the_order_of_the_log(here: Coordinating) -> None:
    here.host(1)
    for name in "abc":
        here.append(name)
    await turns()
    ((sync, done),) = here.syncs
    here.syncs.clear()
    sync()
    here.append("d")
    here.append("e")
    await turns()
    assert here.successes == []
    done.set_result(None)
    await turns()
    assert here.successes == ["a", "b", "c"]
    await here.end_sync()
    assert not here.syncs
    assert here.successes == ["a", "b", "c", "d", "e"]


async def test_append_that_needs_no_sync_waits_for_an_earlier_one_that_does(here: Coordinating) -> None:
    here.host(2)
    here.append("a")
    assert here.successes == ["a"]
    here.append("b")
    await turns()
    sync, done = here.syncs.pop()
    sync()  # in its thread: the loop does not know yet that it has ended
    here.append("c")
    await turns()
    assert here.successes == ["a"]
    done.set_result(None)
    await turns()
    assert here.successes == ["a", "b", "c"]
    here.append("d")
    await turns()
    await here.end_sync()
    assert here.successes == ["a", "b", "c", "d"]


async def test_failed_sync_fails_the_appends_that_wait_for_it(here: Coordinating) -> None:
    partition = here.host(1)
    here.append("a")
    here.append("b")
    await turns()

    ((_, done),) = here.syncs
    here.syncs.clear()
    done.set_exception(partition.log.storage_error(OSError("scripted")))
    await turns()
    while here.syncs:
        await here.end_sync()
    assert here.finished == [("a", ErrorCode.KAFKA_STORAGE_ERROR), ("b", ErrorCode.KAFKA_STORAGE_ERROR)]


async def test_append_waits_for_replicas_and_its_sync(here: Coordinating) -> None:
    partition = here.host(1, (BROKER, BROKER + 1))
    here.append("a")
    await turns()
    await here.end_sync()
    assert here.successes == [], "the follower does not have it yet"
    partition.lead(Leadership(1, BROKER, 1, (BROKER,), 1, (BROKER, BROKER + 1)), 0)
    here.replica_manager.produce_purgatory.check_and_complete((TOPIC, 0))
    await turns()
    assert here.successes == ["a"]


async def test_append_that_needs_no_isr_is_complete_once_it_is_written(here: Coordinating) -> None:
    partition = here.lead(TOPIC, 0, (BROKER, BROKER + 1), {"min.insync.replicas": "2"})
    partition.lead(Leadership(1, BROKER, 1, (BROKER,), 1, (BROKER, BROKER + 1)), 0)
    here.append("refused")
    here.append("written", needs_isr=False)
    await turns()
    assert here.finished == [("refused", ErrorCode.NOT_ENOUGH_REPLICAS), ("written", ErrorCode.NONE)]
    assert partition.log.log_end_offset == 1


async def test_marker_is_synced_and_follows_earlier_appends(here: Coordinating) -> None:
    here.host(1)
    reported: list[str] = []
    guards = cast(Any, type("NoGuards", (), {"cancel": lambda *_: None})())
    writer = MarkerWriter(
        here.replica_manager,
        here.own_appends,
        guards,
        here.clock,
        TIMEOUT_MS,
        lambda *_: reported.append("marker"),
    )
    here.append("a")
    await turns()
    sync, done = here.syncs.pop()
    sync()
    writing = asyncio.ensure_future(cast(Any, writer.write(Marker(7, 0, True, 0), [(TOPIC, 0)])))
    await turns()
    assert (here.successes, reported) == ([], [])
    done.set_result(None)
    await turns()
    assert (here.successes, reported) == (["a"], [])
    await here.end_sync()
    assert reported == ["marker"]
    assert await writing == {(TOPIC, 0): ErrorCode.NONE}
