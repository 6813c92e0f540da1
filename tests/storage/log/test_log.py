"""A log as its callers see it: results, rejections, rolls, idempotence, transactions, bounds, deletion, failures."""

import contextlib
import errno
import itertools
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from base.file_slice import FileSlice
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Record, batches, read_header, set_timestamps
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from protocol.records.legacy import build_message_set
from storage.batches.validation import AppendOrigin, PreparedAppend, TooCostlyError
from storage.disk import names
from storage.disk.checkpoints import EpochStart
from storage.disk.files import Buffer, OpenFile, failure
from storage.disk.shortages import OutOfResourcesError
from storage.log import log as log_module
from storage.log import log_state
from storage.log.log import Log
from storage.log.log_appends import AppendResult
from storage.log.segment_reader import SLICE_SIZE_MIN, Wanted
from storage.producers.producer_snapshots import encode
from storage.segments import leader_epochs
from storage.segments.leader_epochs import EpochEnd
from tests.storage.builders import (
    NOW_MS,
    Damage,
    QuickFiles,
    append,
    append_marker,
    batch,
    create_log,
    delete_expired,
    load_log,
    log_config,
    log_options,
    marker,
    read_all,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import broken, stated

DAY_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return create_log(tmp_path)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments.all()]


def code_of(call: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()  # type: ignore[operator]
    return raised.value.code


# Appending


def test_append_assigns_offsets_and_records_the_epoch(log: Log) -> None:
    assert append(log, batch(3), leader_epoch=4) == AppendResult(0, 2, -1, 0)
    assert append(log, batch(1), leader_epoch=4) == AppendResult(3, 3, -1, 0)
    assert append(log, batch(2), leader_epoch=6).first_offset == 4
    headers = [read_header(content) for _, content in read_all(log)]
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 4), (3, 4), (4, 6)]
    assert list(log.leader_epochs.entries) == [(4, 0), (6, 4)]


def test_begun_epoch_is_known_before_its_first_record(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    checkpoint = log.directory / names.LEADER_EPOCH_CHECKPOINT
    append(log, batch(3), leader_epoch=4)
    log.appends.assign_epoch(6)
    log.appends.assign_epoch(5)
    assert list(log.leader_epochs.entries) == [(4, 0), (6, 3)]
    assert log.leader_epochs.end_offset_for(4, log.log_end_offset) == (4, 3)
    assert list(load_log(tmp_path).leader_epochs.entries) == [(4, 0)]
    log.appends.assign_epoch(7)
    append(log, batch(1), leader_epoch=7)
    append(log, batch(1), leader_epoch=7)
    assert checkpoint.read_text() == "0\n2\n4 0\n7 3\n"


def test_truncation_to_the_end_removes_an_epoch_without_records(log: Log) -> None:
    """Its leader wrote nothing in it, and the next leader has other records there."""
    append(log, batch(3), leader_epoch=4)
    log.appends.assign_epoch(6)
    assert not log.truncation.truncate_to(3, now_ms=NOW_MS)
    assert list(log.leader_epochs.entries) == [(4, 0)]


def test_begin_epoch_on_an_offline_log_is_rejected(log: Log) -> None:
    log.take_offline()
    assert code_of(lambda: log.appends.assign_epoch(1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(log.leader_epochs.entries) == []


def test_log_append_time_sets_the_time_of_the_broker(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(message_timestamp_type="LogAppendTime"))
    assert append(log, batch(2), now_ms=NOW_MS + 5).log_append_time_ms == NOW_MS + 5


def test_rejected_records_leave_the_log_unchanged(log: Log) -> None:
    append(log, batch(1))
    damaged = batch(1)
    damaged[-1] ^= 1
    assert code_of(lambda: append(log, damaged)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: append(log, batch(1, size=2_000_000))) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 1
    assert append(log, batch(1)).first_offset == 1


def test_follower_appends_the_bytes_of_the_leader_unchanged(tmp_path: Path, log: Log) -> None:
    append(log, batch(2), leader_epoch=3)
    append(log, batch(1, producer_id=5, sequence=0), leader_epoch=7)
    sent = b"".join(content for _, content in read_all(log))
    follower = create_log(tmp_path / "follower")
    result = follower.appends.append_as_follower(memoryview(bytearray(sent + sent[:30])), now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset) == (0, 2)
    assert list(read_all(follower)) == list(read_all(log))
    assert list(follower.leader_epochs.entries) == [(3, 0), (7, 2)]
    assert follower.producer_state.producers[5].last_sequence == 0


def test_follower_rejects_damaged_batches_and_decreasing_offsets(tmp_path: Path, log: Log) -> None:
    append(log, batch(2))
    ((_, sent),) = read_all(log)
    follower = create_log(tmp_path / "follower")
    damaged = memoryview(bytearray(sent))
    damaged[-1] ^= 1
    assert code_of(lambda: follower.appends.append_as_follower(damaged, now_ms=NOW_MS)) is ErrorCode.CORRUPT_MESSAGE
    follower.appends.append_as_follower(memoryview(bytearray(sent)), now_ms=NOW_MS)
    again = memoryview(bytearray(sent))
    assert code_of(lambda: follower.appends.append_as_follower(again, now_ms=NOW_MS)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.appends.append_as_follower(memoryview(b""), now_ms=NOW_MS).first_offset == -1


@pytest.mark.parametrize(
    ("epochs", "present", "code"),
    [
        ((3, 7), 7, None),
        ((3, 7), 9, None),
        ((3, 7), 6, ErrorCode.CORRUPT_MESSAGE),
        ((7, 3), 7, ErrorCode.CORRUPT_MESSAGE),
        ((1, 7), 7, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["rising", "of earlier leaders", "newer than the leader", "falling", "older than the follower's log"],
)
def test_follower_rejects_batches_of_impossible_epochs(
    tmp_path: Path, epochs: tuple[int, int], present: int, code: ErrorCode | None
) -> None:
    sent = b""
    for number, epoch in enumerate(epochs):
        leader = create_log(tmp_path / f"leader {number}")
        leader.truncation.truncate_fully_and_start_at(2 + number, now_ms=NOW_MS)
        append(leader, batch(1), leader_epoch=epoch)
        sent += b"".join(content for _, content in read_all(leader))
    follower = create_log(tmp_path / "follower")
    append(follower, batch(2), leader_epoch=2)

    def fetched() -> AppendResult:
        return follower.appends.append_as_follower(memoryview(bytearray(sent)), now_ms=NOW_MS, leader_epoch=present)

    if code is None:
        assert fetched().last_offset == 3
    else:
        assert code_of(fetched) is code
        assert follower.log_end_offset == 2


def test_follower_appends_the_rest_of_several_epochs_after_a_shortage(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (4, 5, 6):
        append(log, batch(1), leader_epoch=epoch)
    first, *others = [content for _, content in read_all(log)]
    follower = create_log(tmp_path / "follower")

    def fetched(*contents: bytes) -> AppendResult:
        return follower.appends.append_as_follower(
            memoryview(bytearray(b"".join(contents))), now_ms=NOW_MS, leader_epoch=6
        )

    fetched(first)
    refused: list[bytes] = []

    def write(file: OpenFile, content: Buffer, position: int) -> int:
        if any(each in bytes(content) for each in refused):
            raise failure(OSError(errno.ENOMEM, "Cannot allocate memory"), "write", "log")
        return QuickFiles.write(follower.files, file, content, position)

    monkeypatch.setattr(follower.files, "write", write)
    for number in range(2):
        refused[:] = [others[number]]
        with pytest.raises(OutOfResourcesError):
            fetched(*others)
        assert follower.log_end_offset == 1 + number
        follower.check()
    refused.clear()
    fetched(others[1])
    assert list(read_all(follower)) == list(read_all(log))
    assert follower.leader_epochs.entries == log.leader_epochs.entries


def test_reserved_log_is_changed_by_its_thread_alone(log: Log) -> None:
    append(log, batch(2))
    append(log, batch(2), leader_epoch=1)
    log.advance_high_watermark(1)
    called: list[int] = []
    log.planned.reserve()
    for change in (
        log.planned.reserve,
        lambda: log.appends.roll(NOW_MS),
        lambda: log.delete_records_before(1),
        lambda: log.disposal.expire(NOW_MS),
        lambda: log.expire_producers(NOW_MS, 0),
    ):
        assert code_of(change) is ErrorCode.KAFKA_STORAGE_ERROR
    log.planned.between_writes(lambda: called.append(log.log_end_offset))
    assert not called
    log.truncation.truncate_to(4, now_ms=NOW_MS)
    assert log.truncation.truncate_to_epoch_end(EpochEnd(0, 5), now_ms=NOW_MS)
    log.planned.release()
    assert called == [2]
    log.appends.roll(NOW_MS)


def test_log_is_truncated_to_the_end_of_the_epoch_that_it_shares_with_its_leader(log: Log) -> None:
    for epoch in (0, 1, 3):
        append(log, batch(2), leader_epoch=epoch)
    assert not log.truncation.truncate_to_epoch_end(EpochEnd(2, 3), now_ms=NOW_MS)
    assert (log.log_end_offset, log.leader_epochs.latest) == (4, 1)
    assert log.truncation.truncate_to_epoch_end(EpochEnd(0, 1), now_ms=NOW_MS)
    assert (log.log_end_offset, log.leader_epochs.latest) == (0, -1)


# Idempotence and transactions


def test_duplicate_batch_returns_the_result_of_the_first_append(log: Log) -> None:
    for number in range(6):
        append(log, batch(2, producer_id=1, sequence=2 * number))
    assert append(log, batch(2, producer_id=1, sequence=8)) == AppendResult(8, 9, -1, 0, is_duplicate=True)
    assert code_of(lambda: append(log, batch(2, producer_id=1, sequence=0))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_an_id_below_that_of_no_producer_is_none(tmp_path: Path, log: Log) -> None:
    """As in Kafka: such batches are kept, but are no duplicates, and open no transaction that nobody ends."""
    for _ in range(2):
        append(log, batch(1, producer_id=-5, sequence=-1, is_transactional=True))
    assert (log.log_end_offset, len(log.producer_state.producers)) == (2, 0)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2
    log.close(NOW_MS)
    assert not load_log(tmp_path, is_clean=False).producer_state.producers


def test_duplicates_are_known_after_a_restart(tmp_path: Path, log: Log) -> None:
    for number in range(3):
        append(log, batch(1, producer_id=1, sequence=number))
    killed = load_log(tmp_path)
    assert append(killed, batch(1, producer_id=1, sequence=0)).first_offset == 0
    killed.close(NOW_MS)
    closed = load_log(tmp_path, is_clean=True)
    # A snapshot holds the last batch only; the others are read from the log.
    assert append(closed, batch(1, producer_id=1, sequence=2)).is_duplicate
    assert append(closed, batch(1, producer_id=1, sequence=0)).first_offset == 0


def test_last_stable_offset_rises_with_markers_and_high_watermark(log: Log) -> None:
    append(log, batch(1))
    append(log, batch(2, producer_id=1, sequence=0, is_transactional=True))
    append(log, batch(1))
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 1
    append_marker(log, marker(ControlType.ABORT, 1))
    assert log.last_stable_offset == 1
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.reader.aborted_transactions(0, 5) == [(1, 1, 4, 5)]
    assert log.reader.aborted_transactions(0, 1) == []
    path = log.directory / names.segment_file(0, names.TRANSACTION_INDEX)
    assert path.stat().st_size == 34


def test_open_transaction_survives_restart_and_truncation(tmp_path: Path, log: Log) -> None:
    append(log, batch(2, producer_id=1, sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 1))
    log.appends.roll(NOW_MS)
    append(log, batch(1, producer_id=1, sequence=2, is_transactional=True))
    reopened = load_log(tmp_path, high_watermark=4)
    assert reopened.last_stable_offset == 3
    reopened.truncation.truncate_to(2, now_ms=NOW_MS)
    assert reopened.reader.aborted_transactions(0, 9) == []
    assert reopened.last_stable_offset == 0
    append_marker(reopened, marker(ControlType.COMMIT, 1))
    reopened.advance_high_watermark(3)
    assert reopened.last_stable_offset == 3


# Rolling


def test_segment_rolls_by_size(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_bytes=2 * len(batch(1))))
    for _ in range(5):
        append(log, batch(1))
    assert bases(log) == [0, 2, 4]


def test_segment_rolls_by_the_timestamps_of_its_batches(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_ms=1000))
    for step_ms in (0, 1000, 1001, 2001, 2002):
        append(log, batch(1, timestamp_ms=NOW_MS + step_ms), now_ms=NOW_MS + 10**9)
    assert bases(log) == [0, 2, 4]


@pytest.mark.parametrize("max_timestamp_ms", [-1, -(2**63)])
def test_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path, max_timestamp_ms: int) -> None:
    log = create_log(tmp_path, log_config(segment_ms=1000))
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
        records = batch(1, timestamp_ms=-1)
        set_timestamps(records, 0, 0, max_timestamp_ms)
        append(log, records, now_ms=now_ms)
    assert bases(log) == [0, 2]


def test_compacted_log_rolls_at_max_compaction_lag(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000))
    for step_ms in (0, 1001):
        append(log, batch(1, timestamp_ms=NOW_MS + step_ms))
    assert bases(log) == [0, 1]


def test_changed_configuration_applies_to_the_active_segment(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_ms=10_000))
    for step_ms in (0, 5000, 6000):
        append(log, batch(1, timestamp_ms=NOW_MS + step_ms))
    log.reconfigure(log_config(segment_ms=5000))
    append(log, batch(1, timestamp_ms=NOW_MS + 6000))
    assert bases(log) == [0, 3]
    log.reconfigure(log_config(segment_bytes=log.segments.active.size))
    append(log, batch(1, timestamp_ms=NOW_MS + 6000))
    assert bases(log) == [0, 3, 4]


def test_reactivated_segment_uses_the_current_configuration(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_ms=5000))
    for step_ms in (0, 1000, 6000):
        append(log, batch(1, timestamp_ms=NOW_MS + step_ms))
    assert bases(log) == [0, 2]
    log.reconfigure(log_config(segment_ms=10_000))
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    append(log, batch(1, timestamp_ms=NOW_MS + 9000))
    assert bases(log) == [0]
    append(log, batch(1, timestamp_ms=NOW_MS + 10_001))
    assert bases(log) == [0, 2]


def test_age_of_a_truncated_segment_begins_with_its_new_first_batch(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_ms=5000))
    for step_ms in (0, 1000):
        append(log, batch(1, timestamp_ms=NOW_MS + step_ms))
    log.truncation.truncate_to(0, now_ms=NOW_MS)
    for step_ms in (4000, 9000):
        append(log, batch(1, timestamp_ms=NOW_MS + step_ms))
    assert bases(log) == [0]
    append(log, batch(1, timestamp_ms=NOW_MS + 9001))
    assert bases(log) == [0, 2]


def test_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(index_interval_bytes=0, segment_index_bytes=24))
    for number in range(6):
        append(log, batch(1, timestamp_ms=NOW_MS + number))
    assert bases(log) == [0, 3]


def test_segment_rolls_before_a_relative_offset_overflows(tmp_path: Path, log: Log) -> None:
    append(log, batch(1))
    ((_, sent),) = read_all(log)
    follower = create_log(tmp_path / "follower")
    follower.appends.append_as_follower(memoryview(bytearray(sent)), now_ms=NOW_MS)
    far = memoryview(bytearray(sent))
    far[0:8] = (2**31).to_bytes(8, "big")
    follower.appends.append_as_follower(far, now_ms=NOW_MS)
    assert bases(follower) == [0, 1]
    assert [offset for offset, _ in read_all(follower)] == [0, 2**31]


def test_follower_appends_batches_too_far_apart_for_one_segment_in_two_appends(tmp_path: Path, log: Log) -> None:
    append(log, batch(1))
    ((_, sent),) = read_all(log)
    far = bytearray(sent)
    far[0:8] = (2**31 + 5).to_bytes(8, "big")
    follower = create_log(tmp_path / "follower")
    assert follower.appends.append_as_follower(memoryview(bytearray(sent + far)), now_ms=NOW_MS).last_offset == 0
    assert follower.log_end_offset == 1
    assert follower.appends.append_as_follower(memoryview(far), now_ms=NOW_MS).last_offset == 2**31 + 5
    assert bases(follower) == [0, 2**31 + 5]
    assert [offset for offset, _ in read_all(follower)] == [0, 2**31 + 5]


def test_old_message_far_above_the_end_begins_a_segment_with_a_valid_base_offset(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(1))
    old = bytearray(build_message_set([Record(0, NOW_MS, b"key", b"v", [])], magic=1, compression=Compression.NONE))
    last_offset = 2**31 + 5
    old[0:8] = last_offset.to_bytes(8, "big")
    log.appends.append_as_follower(memoryview(old), now_ms=NOW_MS)
    assert bases(log) == [0, last_offset - (2**31 - 1)]
    assert log.log_end_offset == last_offset + 1
    assert [extent.last_offset for segment in log.segments.all() for extent in segment.walk(0)] == [0, last_offset]


def test_full_segment_rolls_even_if_its_first_batch_is_damaged(tmp_path: Path) -> None:
    config = log_config(segment_bytes=300)
    log = create_log(tmp_path, config)
    for _ in range(3):
        append(log, batch(1))
    log.close(NOW_MS)
    log = load_log(tmp_path, config, recovery_point=log.durability.recovery_point)
    path = Path(log.segments.active.path)
    damaged = bytearray(path.read_bytes())
    damaged[8:12] = bytes(4)
    path.write_bytes(damaged)
    assert append(log, batch(1, size=200)).first_offset == 3
    assert log.segment_count == 2


def test_empty_active_segment_does_not_roll(log: Log) -> None:
    log.appends.roll(NOW_MS)
    append(log, batch(1))
    log.appends.roll(NOW_MS)
    log.appends.roll(NOW_MS)
    assert bases(log) == [0, 1]


def test_roll_truncates_the_files_and_writes_a_snapshot(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(preallocate=True, segment_bytes=1000, index_interval_bytes=50))
    append(log, batch(1, producer_id=1, sequence=0))
    append(log, batch(1))
    assert (log.directory / f"{0:020d}.log").stat().st_size == 1000
    log.appends.roll(NOW_MS)
    sizes = {path.name: path.stat().st_size for path in log.directory.iterdir()}
    assert sizes[f"{0:020d}.log"] == log.size
    assert sizes[f"{0:020d}.index"] == 8
    assert sizes[f"{0:020d}.timeindex"] == 12
    assert sizes[f"{2:020d}.snapshot"] == 56
    assert sizes[f"{2:020d}.log"] == 1000


# Reading


def test_read_respects_its_bounds_and_size_limit(log: Log) -> None:
    for count in (1, 3, 2):
        append(log, batch(count))
    size = len(batch(1))

    def offsets(offset: int, max_bytes: int, bound: int, *, min_one_batch: bool = True) -> list[int]:
        fetched = log.reader.read(offset, max_bytes, upper_bound_offset=bound, min_one_batch=min_one_batch, nowait=True)
        assert fetched is not None
        return [header.base_offset for _, header in batches(fetched.records)]

    assert offsets(0, 10_000, 6) == [0, 1, 4]
    assert offsets(2, 10_000, 6) == [1, 4]
    assert offsets(0, 10_000, 4) == [0, 1]
    assert offsets(0, 10_000, 3) == [0]  # the bound lies inside a batch: it is left out
    assert offsets(1, 1, 6) == [1]
    assert offsets(1, 1, 6, min_one_batch=False) == []
    assert offsets(0, size, 6) == [0]
    assert offsets(6, 10_000, 6) == []
    assert offsets(4, 10_000, 2) == []
    assert code_of(lambda: offsets(7, 1, 6)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_slice_and_copy_have_the_same_bytes(tmp_path: Path) -> None:
    """At every offset, in large and small pieces, up to bounds within and at the end, over several segments."""
    log = create_log(tmp_path, config=log_config(segment_bytes=1 << 20))
    for number in range(24):
        append(log, batch(3, size=70_000 if number % 3 else 1000))
    end, sliced = log.log_end_offset, 0
    assert len(bases(log)) > 2
    for offset, bound, max_bytes, whole in itertools.product(
        range(end + 1), (end, end - 4, 30), (0, 1, 60_000, 70_000, 300_000, 1 << 30), (True, False)
    ):
        arguments: dict[str, Any] = {"upper_bound_offset": bound, "min_one_batch": whole, "nowait": True}
        copy = log.reader.read(offset, max_bytes, **arguments)
        everything = log.reader.read(offset, 1 << 30, **arguments)
        slice_or_copy = log.reader.read_or_slice(Wanted(offset, max_bytes, bound, whole, False, False, True, False))
        assert copy is not None
        assert everything is not None
        assert slice_or_copy is not None
        assert slice_or_copy[1:] == copy[1:]
        records = slice_or_copy.records
        if not isinstance(records, FileSlice):
            assert records == copy.records
            assert len(records) < SLICE_SIZE_MIN
            continue
        sliced += 1
        assert len(records) >= SLICE_SIZE_MIN
        first_size = read_header(everything.records).size
        assert records.read() == everything.records[: max(max_bytes, first_size if whole else 0)]
    assert sliced > 1000
    waited = log.reader.read_or_slice(Wanted(0, 1 << 20, end, True, False, True, True, False))
    assert waited is not None
    assert isinstance(waited.records, memoryview), "what may come from the disk is brought into memory"


def test_wrong_index_entry_loses_no_record(tmp_path: Path) -> None:
    config = log_config(segment_bytes=1000, index_interval_bytes=100)
    log = create_log(tmp_path, config)
    for _ in range(20):
        append(log, batch(1, size=40))
    log.close(NOW_MS)
    expected = list(read_all(log))
    index = log.directory / f"{0:020d}.index"
    content = bytearray(index.read_bytes())
    content[4:8], content[12:16] = content[12:16], content[4:8]
    index.write_bytes(content)
    damage = Damage()
    reopened = load_log(tmp_path, config, log_options(on_damage=damage.on_damage), is_clean=True)
    for offset, stored in reversed(expected):  # forwards each read would begin where the last has ended
        fetched = reopened.reader.read(offset, 1, upper_bound_offset=20, min_one_batch=True)
        assert fetched is not None
        assert bytes(fetched.records) == stored
    assert any(str(index) in text for text in damage.texts)


def test_damage_in_a_sealed_segment_is_logged_once_with_its_position(tmp_path: Path) -> None:
    damage = Damage()
    log = create_log(tmp_path, log_config(segment_bytes=1000), log_options(on_damage=damage.on_damage))
    for _ in range(20):
        append(log, batch(1, size=40))
    path = log.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    size = len(batch(1, size=40))
    content[2 * size + 16] = 9  # the magic of the third batch
    path.write_bytes(content)
    assert [header.base_offset for _, header in batches(_read(log, 0, size))] == [0]
    for _ in range(3):
        with pytest.raises(KafkaError, match=f"{path} at position {2 * size}") as raised:
            _read(log, 2, size)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert [text for text in damage.texts if f"{path} at position {2 * size}" in text] == damage.texts[:1]
    assert _read(log, 15, size)


def test_batches_behind_damage_in_a_sealed_segment_are_readable(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_bytes=2000, index_interval_bytes=100))
    size = len(batch(1, size=40))
    for _ in range(30):
        append(log, batch(1, size=40))
    assert bases(log)[1] > 12
    path = log.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[2 * size + 16] = 9
    path.write_bytes(content)
    for offset in (2, 1, 2):
        with contextlib.suppress(KafkaError):
            _read(log, offset, size)
    # The index leads past the damage, so it must not have gone with it.
    for offset in range(6, 30):
        assert [header.base_offset for _, header in batches(_read(log, offset, size))] == [offset]


def test_damaged_transaction_index_is_rebuilt_and_never_counts_as_empty(tmp_path: Path) -> None:
    config = log_config(segment_bytes=500)
    log = create_log(tmp_path, config)
    for number in range(4):
        append(log, batch(1, producer_id=8, sequence=number, is_transactional=True))
        append_marker(log, marker(ControlType.ABORT, 8))
    log.advance_high_watermark(log.log_end_offset)
    expected = log.reader.aborted_transactions(0, 8)
    assert len(expected) == 4
    first = log.directory / f"{0:020d}.txnindex"
    log.close(NOW_MS)
    first.write_bytes(first.read_bytes()[:-1])
    unchecked = load_log(tmp_path, config, is_clean=True)
    assert unchecked.reader.aborted_transactions(0, 8) == expected
    for segment in unchecked.segments.all():
        segment.transaction_index.release()
    first.write_bytes(b"garbage")
    assert code_of(lambda: unchecked.reader.aborted_transactions(0, 8)) is ErrorCode.CORRUPT_MESSAGE


def _read(log: Log, offset: int, max_bytes: int) -> memoryview:
    fetched = log.reader.read(offset, max_bytes, upper_bound_offset=log.log_end_offset, min_one_batch=True)
    assert fetched is not None
    return fetched.records


# Deleting


def test_deletion_of_records_makes_no_file_call(tmp_path: Path) -> None:
    """It is done on the event loop. The file of the epochs follows at the stop, and a start after a kill needs none."""
    files = FaultyFiles()
    log = create_log(tmp_path, options=log_options(files))
    for epoch in (1, 2, 3):
        append(log, batch(2), leader_epoch=epoch)
    log.advance_high_watermark(6)
    calls = list(files.calls)
    log.delete_records_before(3)
    assert files.calls == calls
    expected = [(2, 3), (3, 4)]
    assert list(log.leader_epochs.entries) == expected
    log.durability.flush(NOW_MS)
    killed = load_log(tmp_path, log_start_offset=3, recovery_point=6)
    assert list(killed.leader_epochs.entries) == expected
    checkpoint = log.directory / names.LEADER_EPOCH_CHECKPOINT
    assert checkpoint.read_text() == "0\n3\n1 0\n2 2\n3 4\n"
    log.close(NOW_MS)
    assert checkpoint.read_text() == "0\n2\n2 3\n3 4\n"


def test_delete_records_raises_the_log_start_up_to_the_high_watermark(tmp_path: Path) -> None:
    config = log_config(segment_bytes=2 * len(batch(1)), file_delete_delay_ms=100)
    log = create_log(tmp_path, config)
    for _ in range(5):
        append(log, batch(1))
    log.advance_high_watermark(4)
    assert code_of(lambda: log.delete_records_before(5)) is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records_before(3)
    assert code_of(lambda: _read(log, 2, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_expired(log, NOW_MS) == 1
    assert bases(log) == [2, 4]
    assert list(log.directory.glob("*.log.deleted"))
    assert log.disposal.remove_deleted(NOW_MS + 99) == 0
    assert log.disposal.remove_deleted(NOW_MS + 100) == 3
    assert not list(log.directory.glob("*.deleted"))
    assert load_log(tmp_path, config, log_start_offset=3).log_start_offset == 3


def test_expired_active_segment_rolls_and_is_deleted(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=1000))
    append(log, batch(3))
    assert delete_expired(log, NOW_MS + 5000) == 0  # not below the high watermark
    log.advance_high_watermark(3)
    assert delete_expired(log, NOW_MS + 5000) == 1
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (3, 3, [3])
    assert append(log, batch(1)).first_offset == 3


def test_reader_can_finish_after_a_deletion(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=1000))
    append(log, batch(3))
    segment = log.segments.first
    segment.release()
    log.advance_high_watermark(3)
    delete_expired(log, NOW_MS + 5000)
    assert len(segment.read(0, segment.size)) == segment.size


def test_retention_does_not_apply_to_a_compacted_log(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(retention_ms=1000, cleanup_policy=frozenset({"compact"})))
    append(log, batch(3))
    log.advance_high_watermark(3)
    assert delete_expired(log, NOW_MS + DAY_MS) == 0


# Durability and failure


def test_flush_is_due_by_messages_and_by_time(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(flush_messages=3, flush_ms=1000))
    append(log, batch(2))
    assert not log.durability.needs_flush
    append(log, batch(1))
    assert log.durability.needs_flush
    assert not log.durability.is_flush_due(NOW_MS + 999)
    assert log.durability.is_flush_due(NOW_MS + 1000)
    log.durability.flush(NOW_MS + 1000)
    assert (log.durability.recovery_point, log.durability.needs_flush, log.durability.is_flush_due(NOW_MS + 9999)) == (
        3,
        False,
        False,
    )


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_failed_write_takes_the_log_offline(tmp_path: Path, error: int) -> None:
    files, reported = FaultyFiles(), []
    log = create_log(tmp_path, options=log_options(files, on_io_error=reported.append))
    append(log, batch(1))
    files.fail_call(len(files.calls), error)
    with pytest.raises(KafkaError, match=errno.errorcode[error]) as raised:
        append(log, batch(1))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [failure.errno for failure in reported] == [error]
    assert log.log_end_offset == 1
    assert code_of(lambda: append(log, batch(1))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(lambda: _read(log, 0, 10)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert load_log(tmp_path).log_end_offset == 1


def test_failed_sync_is_not_repeated(tmp_path: Path) -> None:
    files = FaultyFiles()
    reported: list[OSError] = []
    log = create_log(tmp_path, options=log_options(files, on_io_error=reported.append))
    append(log, batch(1))
    files.fail_call(len(files.calls), errno.EIO)
    assert code_of(lambda: log.durability.flush(NOW_MS)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.is_offline, log.durability.recovery_point) == (True, 0)
    calls = len(files.calls)
    assert code_of(lambda: append(log, batch(1))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(files.calls) == calls
    assert [failure.errno for failure in reported] == [errno.EIO]


def test_flush_that_waited_for_a_failed_sync_does_not_sync(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = create_log(tmp_path, options=log_options(files))
    append(log, batch(1))
    files.fail_call(len(files.calls), errno.EIO)
    with pytest.raises(KafkaError, match="EIO"):
        log.durability.flush(NOW_MS)
    for flush_again in (lambda: log.durability.flush(NOW_MS), log.durability.flush_sealed):
        assert code_of(flush_again) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.durability.recovery_point == 0


def test_sync_concurrent_with_a_failed_write_does_not_raise_the_recovery_point(tmp_path: Path) -> None:
    class Files(QuickFiles):
        def sync(self, file: OpenFile) -> None:
            log.take_offline()

    log = create_log(tmp_path, options=log_options(Files()))
    append(log, batch(1))
    assert code_of(lambda: log.durability.flush(NOW_MS)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.durability.recovery_point == 0


class BusyLock:
    """A lock held by the flush of another thread, which ends as soon as a caller waits for it."""

    def __init__(self, end_flush: Callable[[], object]) -> None:
        self.end_flush = end_flush

    def __enter__(self) -> None:
        self.end_flush()

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.parametrize(("covered", "synced"), [(2, False), (1, True)])
def test_waiting_flushes_share_one_sync(tmp_path: Path, covered: int, synced: bool) -> None:
    files = FaultyFiles()
    log = create_log(tmp_path, options=log_options(files))
    append(log, batch(1))
    append(log, batch(1))
    log.durability._flushing = BusyLock(lambda: setattr(log.durability, "recovery_point", covered))  # type: ignore[assignment]
    done = len(files.calls)
    log.durability.flush(NOW_MS)
    assert log.durability.recovery_point == 2
    assert any(call.startswith("sync") for call in files.calls[done:]) is synced


def test_failed_truncation_takes_the_log_offline(tmp_path: Path) -> None:
    reported: list[OSError] = []
    log = create_log(tmp_path, options=log_options(on_io_error=reported.append))
    for _ in range(3):
        append(log, batch(1))
    path = Path(log.segments.active.path)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(KafkaError, match="cannot be truncated") as raised:
        log.truncation.truncate_to(1, now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.is_offline, reported) == (True, [])


def test_idle_logs_have_no_open_files(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(index_interval_bytes=10))
    for _ in range(3):
        append(log, batch(1))
    segment = log.segments.active

    def is_released() -> bool:
        waiting = log.durability.release_idle()
        log.durability.finish_writeback(waiting)
        log.durability.release_written(waiting)
        return segment._file is None

    assert not is_released()
    assert is_released()
    append(log, batch(1))
    assert len(list(read_all(log))) == 4
    assert not is_released()
    append(log, batch(1))
    assert not is_released(), "to be written is to be in use"
    log.durability.flush(NOW_MS)
    assert not log.durability.release_idle(), "what is synced has nothing to wait for"
    assert segment._file is None


class LossyFiles(QuickFiles):
    """A kernel that fails to write back, and says so only to descriptors that are open at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.is_lost = False

    def finish_writeback(self, file: OpenFile) -> None:
        if self.is_lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)


def test_failed_writeback_of_an_idle_log_is_reported_before_its_file_is_closed(tmp_path: Path) -> None:
    files, reported = LossyFiles(), []
    log = create_log(tmp_path, options=log_options(files, on_io_error=reported.append))
    append(log, batch(1))
    log.durability.release_idle()
    files.is_lost = True
    waiting = log.durability.release_idle()
    assert log.segments.active._file is not None, "closed before its records were written out"
    with pytest.raises(KafkaError, match="Input/output error"):
        log.durability.finish_writeback(waiting)
    assert (log.is_offline, len(reported)) == (True, 1)


def test_segment_used_during_a_writeback_stays_open(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(1))
    log.durability.release_idle()
    waiting = log.durability.release_idle()
    append(log, batch(1))
    log.durability.release_written(waiting)
    assert log.segments.active._file is not None


def test_append_does_not_change_the_high_watermark(log: Log) -> None:
    append(log, batch(3))
    append(log, batch(2, producer_id=7, sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.COMMIT, 7))
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (6, 0, 0)
    for high_watermark, last_stable_offset in ((3, 3), (4, 3), (5, 3), (6, 6)):
        assert log.advance_high_watermark(high_watermark)
        assert (log.high_watermark, log.last_stable_offset) == (high_watermark, last_stable_offset)


def state_of(log: Log) -> object:
    """What a failed append must not change."""
    return (
        log.log_end_offset,
        log.next_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.size,
        log.leader_epochs.entries,
        encode(log.producer_state.producers.values()),
        list(read_all(log)),
    )


@pytest.mark.parametrize("may_take_long", [True, False])
def test_a_rejected_append_changes_nothing(log: Log, may_take_long: bool) -> None:
    append(log, batch(1, producer_id=7, sequence=0))
    broken = batch(1)
    broken[-1] ^= 1
    broken_gzip = batch(1, compression=Compression.GZIP)
    broken_gzip[-1] ^= 1
    before = state_of(log)
    for records, code in (
        (broken, ErrorCode.CORRUPT_MESSAGE),
        (broken_gzip, ErrorCode.CORRUPT_MESSAGE),
        (batch(1, producer_id=7, sequence=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(1, producer_id=7, sequence=5, compression=Compression.GZIP), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        as_sent = bytes(records)
        with pytest.raises(KafkaError) as rejected:
            log.appends.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, may_take_long=may_take_long)
        assert rejected.value.code is code
        assert state_of(log) == before
        if code is ErrorCode.CORRUPT_MESSAGE:
            assert records == as_sent, "validation rejects records before it writes into them"


@pytest.mark.parametrize("may_take_long", [True, False])
def test_duplicate_batch_returns_its_first_offset_and_changes_nothing(log: Log, may_take_long: bool) -> None:
    for compression in (Compression.NONE, Compression.GZIP):
        sequence = int(compression)
        first = append(log, batch(1, producer_id=7, sequence=sequence, compression=compression))
        before = state_of(log)
        again = log.appends.append_as_leader(
            batch(1, producer_id=7, sequence=sequence, compression=compression),
            leader_epoch=0,
            now_ms=NOW_MS,
            may_take_long=may_take_long,
        )
        assert again == first._replace(is_duplicate=True)
        assert state_of(log) == before


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_costly_append_changes_nothing_and_succeeds_after_prepare(log: Log, compression: Compression) -> None:
    append(log, batch(1, producer_id=7, sequence=0))
    before = state_of(log)
    records = batch(4096, size=1, producer_id=7, sequence=1, compression=compression)
    as_sent = bytes(records)
    with pytest.raises(TooCostlyError):
        log.appends.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, may_take_long=False)
    assert records == as_sent
    assert state_of(log) == before
    prepared = log.appends.prepare(records, now_ms=NOW_MS, origin=AppendOrigin.CLIENT)
    assert isinstance(prepared, PreparedAppend)
    assert state_of(log) == before
    result = log.appends.append_as_leader(prepared, leader_epoch=0, now_ms=NOW_MS, may_take_long=False)
    assert (result.first_offset, result.last_offset) == (1, 4096)
    ((_, _), (base_offset, stored)) = read_all(log, max_bytes=1 << 20)
    assert base_offset == 1
    assert stored[16:] == as_sent[16:]


def test_topic_id_survives_a_restart(tmp_path: Path, log: Log) -> None:
    topic_id = uuid.uuid4()
    log.assign_topic_id(topic_id)
    assert load_log(tmp_path).topic_id == topic_id


def test_unused_log_has_two_small_files_until_it_closes(log: Log) -> None:
    assert [path.name for path in log.directory.iterdir()] == [f"{0:020d}.log"]
    log.close(NOW_MS)
    assert {path.suffix: path.stat().st_size for path in log.directory.iterdir()} == {
        ".log": 0,
        ".index": 0,
        ".timeindex": 0,
    }


def test_segments_below_the_recovery_point_have_index_files(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    log.durability.flush(NOW_MS)
    assert not list(log.directory.glob("*index"))
    append(log, batch(1))
    log.durability.flush(NOW_MS)
    assert log.durability.recovery_point == 1
    assert sorted(path.name for path in log.directory.glob("*index")) == [f"{0:020d}.index", f"{0:020d}.timeindex"]
    for _ in range(200):
        append(log, batch(1, size=200))
    assert log.segments.active.offset_index.count
    log.durability.flush(NOW_MS)
    assert list(load_log(tmp_path, recovery_point=log.durability.recovery_point).segments.active.offset_index) == list(
        log.segments.active.offset_index
    )


def test_segment_begins_at_or_below_the_first_inner_message_of_an_old_wrapper(tmp_path: Path) -> None:
    config = log_config(segment_bytes=220, cleanup_policy=frozenset({"compact"}))
    log = create_log(tmp_path, config)
    append(log, batch(3, size=40))
    old = [Record(3 + number, NOW_MS, b"key", b"v", []) for number in range(5)]
    wrapped = build_message_set(old, magic=1, compression=Compression.GZIP)
    log.appends.append_as_follower(memoryview(bytearray(wrapped)), now_ms=NOW_MS)
    assert bases(log) == [0, 3]
    # What a cleaning leaves of it has a lower last offset, and a start must not take that for damage.
    fewer = build_message_set(old[:2], magic=1, compression=Compression.GZIP)
    Path(log.segments.active.path).write_bytes(fewer)
    assert load_log(tmp_path, config).log_end_offset == 5


def test_late_reader_of_a_replaced_segment_does_not_open_its_successor(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(1, size=40))
    append(log, batch(1, size=40))
    segment = log.segments.first
    before = bytes(segment.read(0, segment.size))
    segment.on_disk.mark_deleted()
    segment.release()
    Path(segment.path).write_bytes(b"cleaned" * 100)
    assert bytes(segment.read(0, segment.size)) == before


def damage_in_the_middle(path: Path, batch_size: int) -> None:
    """Makes the length of the second batch impossible."""
    content = bytearray(path.read_bytes())
    content[batch_size : batch_size + 40] = b"\xff" * 40
    path.write_bytes(content)


@pytest.mark.parametrize("limit", [{"retention_ms": 1000}, {"retention_bytes": 100}])
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_index_damaged", [False, True])
def test_a_damaged_segment_does_not_stop_retention(
    tmp_path: Path, limit: dict[str, int], is_restarted: bool, is_index_damaged: bool
) -> None:
    reports: list[str] = []
    size = len(batch(1, size=100))
    config = log_config(segment_bytes=4 * size, **limit)
    log = create_log(tmp_path, config, log_options(on_damage=reports.append))
    for _ in range(16):
        append(log, batch(1, size=100))
    log.durability.flush(NOW_MS)
    if is_restarted:
        log.close(NOW_MS)
    bases = [segment.base_offset for segment in log.segments.all()]
    path = log.directory / f"{bases[1]:020d}.log"
    damage_in_the_middle(path, size)
    os.utime(path, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))
    if is_index_damaged:
        (log.directory / f"{bases[1]:020d}.timeindex").write_bytes(b"\xff" * 36)
    if is_restarted:
        options = log_options(on_damage=reports.append)
        log = load_log(tmp_path, config, options, is_clean=True, recovery_point=16, high_watermark=16)
    else:
        log.release()
        for segment in log.segments.all()[:-1]:
            segment._forget_timestamps()
    log.advance_high_watermark(16)
    assert delete_expired(log, NOW_MS + 500) == (0 if "retention_ms" in limit else 3)
    delete_expired(log, NOW_MS + 2000)
    assert log.log_start_offset >= bases[2]
    delete_expired(log, NOW_MS + 2000)
    assert len([text for text in reports if "retention goes by" in text]) <= 1
    if not is_index_damaged and "retention_ms" in limit:
        assert any("retention goes by" in text for text in reports)


# Invariants


def set_entries(log: Log, entries: Sequence[EpochStart]) -> None:
    log.leader_epochs._entries = tuple(entries)


BREAKS: dict[str, Callable[[Log], object]] = {
    "log start <= last stable offset <= high watermark <= log end": lambda log: setattr(
        log, "high_watermark", log.log_end_offset + 1
    ),
    "The first segment begins at or below the log start": lambda log: setattr(log, "log_start_offset", 0),
    "The active segment begins at or below the log end": lambda log: setattr(
        log.segments.active, "base_offset", log.log_end_offset + 1
    ),
    "The end up to which readers look is the log end": lambda log: setattr(
        log.segment_reader, "end", (0, log.segments.active, 0)
    ),
    "recovery point <= log end <= next offset": lambda log: setattr(
        log.durability, "recovery_point", log.log_end_offset + 1
    ),
    "No leader epoch begins above the next offset": lambda log: log.leader_epochs.begin(9, log.log_end_offset + 1),
    "Epochs rise strictly from entry to entry": lambda log: set_entries(log, log.leader_epochs.entries[::-1]),
    "Start offsets rise strictly from entry to entry": lambda log: set_entries(
        log, [EpochStart(1, 2), EpochStart(2, 2)]
    ),
    "`latest` is the epoch of the last entry": lambda log: setattr(log.leader_epochs, "latest", 9),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(log_state) + stated(log_module) + stated(leader_epochs)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(log: Log, invariant: str) -> None:
    for epoch in range(3):
        append(log, batch(2), leader_epoch=epoch)
        log.appends.roll(NOW_MS)
    log.advance_high_watermark(4)
    log.delete_records_before(2)
    delete_expired(log, NOW_MS)
    assert broken(log.check) is None
    BREAKS[invariant](log)
    assert broken(log.check) == invariant


def test_log_out_of_service_is_not_checked(log: Log) -> None:
    """A step that failed has stopped in the middle of a change."""
    log.high_watermark = 1
    log.truncation_count = 1
    assert broken(log.check) is None
    log.truncation_count = 2
    assert broken(log.check) is not None
    log.take_offline()
    assert broken(log.check) is None
