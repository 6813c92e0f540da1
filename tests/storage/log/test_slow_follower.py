"""What a follower appends to a slow log directory: planned, stored by its thread, and equal to direct appends."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import batches
from protocol.records.control import ControlType
from storage.batches.validation import AppendOrigin
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from tests.storage.builders import NOW_MS, append, batch, create_log, log_options, marker
from tests.storage.disk.test_directory_writer import CONFIG, Slow, offsets_in

PRODUCER_ID = 9


def from_leader(directory: Path) -> list[bytes]:
    """Return what a leader has sent: several epochs and segments, an aborted transaction, and a gap."""
    leader = create_log(directory, CONFIG, log_options())
    append(leader, batch(2, producer_id=PRODUCER_ID, sequence=0, is_transactional=True), leader_epoch=1)
    append(leader, batch(3), leader_epoch=1)
    leader.appends.append_as_leader(marker(ControlType.ABORT, PRODUCER_ID), 3, NOW_MS, AppendOrigin.COORDINATOR)
    for number in range(12):
        append(leader, batch(1 + number % 3, size=40, timestamp_ms=NOW_MS + number % 5), leader_epoch=3 + number // 6)
    parts: list[bytes] = []
    offset = 0
    while offset < leader.log_end_offset:
        found = leader.reader.read(offset, 1, upper_bound_offset=leader.log_end_offset, min_one_batch=True)
        assert found is not None
        parts.append(bytes(found.records))
        offset = max(header.next_offset for _, header in batches(found.records))
    del parts[4]  # as if compaction had removed it
    return parts


def follow(log: Log, records: bytes, *, leader_epoch: int = 9) -> None:
    log.appends.append_as_follower(
        memoryview(bytearray(records)), now_ms=NOW_MS, leader_epoch=leader_epoch, may_plan=True
    )


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".log", ".txnindex")}


def facts_of(log: Log) -> Sequence[object]:
    producers = {number: entry.last_sequence for number, entry in log.producer_state.producers.items()}
    return log.log_end_offset, list(log.leader_epochs.entries), producers, log.last_stable_offset


@pytest.mark.parametrize("together", [1, 3, 100])
def test_planned_appends_equal_direct_ones(tmp_path: Path, together: int) -> None:
    parts = from_leader(tmp_path / "leader-0")
    pieces = [b"".join(parts[start : start + together]) for start in range(0, len(parts), together)]
    direct = create_log(tmp_path / "direct-0", CONFIG, log_options())
    slow = Slow(tmp_path / "slow-0")
    for piece in pieces:
        follow(direct, piece)
        before = slow.log.log_end_offset
        follow(slow.log, piece)
        assert slow.log.log_end_offset == before, "nothing counts before it is stored"
        slow.thread.run()
    assert facts_of(slow.log) == facts_of(direct)
    assert files_of(tmp_path / "slow-0") == files_of(tmp_path / "direct-0")
    assert facts_of(slow.reload())[:2] == facts_of(direct)[:2]


def test_next_append_is_refused_until_the_planned_one_is_stored(tmp_path: Path) -> None:
    one, other, *_ = from_leader(tmp_path / "leader-0")
    slow = Slow(tmp_path / "slow-0")
    follow(slow.log, one)
    for change in (lambda: follow(slow.log, other), lambda: slow.log.truncation.truncate_to(0, now_ms=NOW_MS)):
        with pytest.raises(TryLaterError):
            change()
    stored: list[int] = []
    slow.log.planned.when_stored(lambda: stored.append(slow.log.log_end_offset))
    assert not stored
    slow.thread.run()
    assert stored == [2]
    follow(slow.log, other)
    slow.thread.run()
    assert slow.log.log_end_offset == 5


def test_high_watermark_follows_only_what_is_stored(tmp_path: Path) -> None:
    one, *_ = from_leader(tmp_path / "leader-0")
    slow = Slow(tmp_path / "slow-0")
    follow(slow.log, one)
    slow.log.advance_high_watermark(2)
    assert slow.log.high_watermark == 0
    slow.thread.run()
    slow.log.advance_high_watermark(2)
    assert slow.log.high_watermark == 2


def test_failed_write_takes_the_log_offline(tmp_path: Path) -> None:
    one, *_ = from_leader(tmp_path / "leader-0")
    slow = Slow(tmp_path / "slow-0")
    slow.disk.errors.append(5)
    follow(slow.log, one)
    slow.thread.run()
    assert slow.log.is_offline
    assert slow.log.log_end_offset == 0
    with pytest.raises(KafkaError) as raised:
        follow(slow.log, one)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_follower_that_becomes_leader_keeps_both_epochs(tmp_path: Path) -> None:
    """Its epoch begins behind what is still planned, and storing that does not remove the entry."""
    one, other, *_ = from_leader(tmp_path / "leader-0")
    slow = Slow(tmp_path / "slow-0")
    blocker = create_log(tmp_path / "blocker-0", CONFIG, slow.options)
    append(blocker, batch(1))  # so that the writes of the log wait
    follow(slow.log, one + other)
    slow.log.appends.assign_epoch(7)
    slow.thread.run()
    assert [tuple(entry) for entry in slow.log.leader_epochs.entries] == [(1, 0), (7, 5)]
    append(slow.log, batch(1), leader_epoch=7)
    slow.thread.run()
    reloaded = slow.reload()
    assert [tuple(entry) for entry in reloaded.leader_epochs.entries] == [(1, 0), (7, 5)]
    assert offsets_in(reloaded) == [0, 2, 5], "the first offsets of the batches"


def test_leader_keeps_the_epoch_that_begins_behind_its_planned_records(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "slow-0")
    blocker = create_log(tmp_path / "blocker-0", CONFIG, slow.options)
    append(blocker, batch(1))
    slow.log.appends.assign_epoch(5)
    append(slow.log, batch(2), leader_epoch=5)
    slow.log.appends.assign_epoch(6)
    slow.thread.run()
    assert [tuple(entry) for entry in slow.log.leader_epochs.entries] == [(5, 0), (6, 2)]
