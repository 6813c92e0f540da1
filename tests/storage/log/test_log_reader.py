"""Reads that bring the aborted transactions along: of what is returned, from the segments it was read from."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from base.file_slice import FileSlice
from protocol.errors import KafkaError
from protocol.records.batch import batches
from protocol.records.control import ControlType
from storage.log import segment_reader
from storage.log.log import Log
from storage.log.segment_reader import FetchedRecords, SegmentReader, Wanted
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import Segment
from storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from tests.storage.builders import (
    NOW_MS,
    append,
    append_marker,
    batch,
    create_log,
    delete_expired,
    load_log,
    log_config,
    marker,
)
from tests.storage.compacted import Broker, commit_and_roll, keyed

CONFIG = log_config(segment_bytes=2000, index_interval_bytes=300)


class Transactions:
    """Writes records of several producers and knows which transactions were aborted."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.random = Random(seed)
        self.open: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first and last offset

    def write(self, count: int) -> None:
        for _ in range(count):
            producer_id = self.random.randrange(5)
            if producer_id == 4:
                append(self.log, batch(self.random.randint(1, 3), size=self.random.randrange(60)))
            elif producer_id in self.open and self.random.random() < (0.02 if producer_id == 0 else 0.3):
                self.end(producer_id)
            else:
                self.open.setdefault(producer_id, self.log.log_end_offset)
                sequence = self.sequences.get(producer_id, 0)
                self.sequences[producer_id] = sequence + 1
                append(self.log, batch(1, producer_id=producer_id, sequence=sequence, is_transactional=True))

    def end(self, producer_id: int) -> None:
        is_aborted = self.random.random() < 0.7
        first_offset = self.open.pop(producer_id)
        if is_aborted:
            self.aborted.append((producer_id, first_offset, self.log.log_end_offset))
        append_marker(self.log, marker(ControlType.ABORT if is_aborted else ControlType.COMMIT, producer_id))
        self.log.advance_high_watermark(self.log.log_end_offset)

    def end_all(self) -> None:
        for producer_id in list(self.open):
            self.end(producer_id)

    def overlapping(self, start_offset: int, end_offset: int) -> list[tuple[int, int, int]]:
        return [each for each in self.aborted if each[2] >= start_offset and each[1] < end_offset]


def committed(log: Log, offset: int, max_bytes: int, **options: bool) -> FetchedRecords[memoryview]:
    fetched = log.reader.read(
        offset, max_bytes, upper_bound_offset=log.last_stable_offset, min_one_batch=True, with_aborted=True, **options
    )
    assert fetched is not None
    return fetched


def aborted_in(fetched: FetchedRecords[memoryview]) -> list[tuple[int, int, int]]:
    assert fetched.aborted_transactions is not None
    return [each[:3] for each in fetched.aborted_transactions]


@pytest.mark.parametrize("seed", range(3))
def test_read_returns_exactly_the_aborted_transactions_that_overlap_its_records(tmp_path: Path, seed: int) -> None:
    log = create_log(tmp_path, CONFIG)
    transactions = Transactions(log, seed)
    transactions.write(400)
    transactions.end_all()
    assert log.segment_count > 5
    log.close(NOW_MS)
    for one in (log, load_log(tmp_path, CONFIG, is_clean=True, high_watermark=log.log_end_offset)):
        for _ in range(300):
            offset = transactions.random.randrange(one.log_end_offset + 1)
            fetched = committed(one, offset, transactions.random.choice((1, 150, 700, 5000)))
            whole = [
                header
                for position, header in batches(fetched.records)
                if position + header.size <= len(fetched.records)
            ]
            end_offset = whole[-1].next_offset if whole else offset
            assert fetched.end_offset == end_offset
            assert aborted_in(fetched) == (transactions.overlapping(offset, end_offset) if whole else [])


def test_slice_and_copy_have_the_same_end_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "SLICE_SIZE_MIN", 400)
    log = create_log(tmp_path, log_config(index_interval_bytes=300))
    transactions = Transactions(log, 8)
    transactions.write(200)
    transactions.end_all()
    slices = 0
    for offset in range(0, log.log_end_offset, 3):
        copy = committed(log, offset, 1500)
        sliced = log.reader.read_or_slice(Wanted(offset, 1500, log.last_stable_offset, True, False, False, True, True))
        assert sliced is not None
        slices += isinstance(sliced.records, FileSlice)
        assert sliced[1:] == copy[1:]
    assert slices > 20


def test_read_without_with_aborted_searches_no_aborted_transactions(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(2))
    fetched = log.reader.read(0, 1000, upper_bound_offset=2, min_one_batch=True)
    assert fetched is not None
    assert (fetched.end_offset, fetched.aborted_transactions) == (None, None)


def test_read_at_the_log_end_has_no_aborted_transactions(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(1, producer_id=7, sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 7))
    log.advance_high_watermark(2)
    fetched = committed(log, 2, 1000)
    assert (len(fetched.records), fetched.end_offset, aborted_in(fetched)) == (0, 2, [])


def after_records_were_read(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs `action` once, as another thread would, between the two parts of the next committed read."""
    original = SegmentReader.aborted_transactions

    def interrupted(self: SegmentReader, *arguments: object) -> list[AbortedTransaction]:
        monkeypatch.undo()
        action()
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentReader, "aborted_transactions", interrupted)


def test_retention_during_a_read_committed_read_loses_no_aborted_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_log(tmp_path, log_config(retention_ms=1000, file_delete_delay_ms=0))
    append(log, batch(1, producer_id=7, sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 7))
    log.appends.roll(NOW_MS)
    append(log, batch(1, timestamp_ms=NOW_MS + 5000))
    log.advance_high_watermark(log.log_end_offset)

    def expire() -> None:
        assert delete_expired(log, NOW_MS + 3000) == 1
        log.disposal.remove_deleted(NOW_MS + 3000)

    after_records_were_read(monkeypatch, expire)
    assert aborted_in(committed(log, 0, 1000)) == [(7, 0, 1)]
    assert log.log_start_offset == 2


def test_cleaning_during_a_read_committed_read_loses_no_aborted_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    append(log, keyed(("a", "x"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 7))
    append(log, keyed(("b", "x")))
    commit_and_roll(log)
    append(log, keyed(("c", "y")))
    commit_and_roll(log)
    after_records_were_read(monkeypatch, broker.clean)
    assert aborted_in(committed(log, 0, 1000)) == [(7, 0, 1)]


def test_cached_position_in_a_replaced_segment_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader takes the known positions, a cleaning replaces the segment, the reader takes the segments."""
    broker = Broker(tmp_path)
    log = broker.log()
    append(log, keyed(("b", "x")))
    append(log, keyed(("a", "x"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 7))
    commit_and_roll(log)
    append(log, keyed(("c", "y")))
    commit_and_roll(log)
    assert committed(log, 0, 1).end_offset == 1  # notes where offset 1 lies
    slot = SegmentReader.__dict__["positions"]

    def look(reader: SegmentReader) -> object:
        value = slot.__get__(reader)
        monkeypatch.undo()
        assert broker.clean()
        return value

    monkeypatch.setattr(SegmentReader, "positions", property(look, slot.__set__))
    fetched = committed(log, 1, 1000)
    aborted_data = [h for _, h in batches(fetched.records) if h.producer_id == 7 and not h.is_control]
    assert bool(aborted_data) == bool(aborted_in(fetched))


def test_wrong_end_in_an_index_loses_no_aborted_transaction(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(index_interval_bytes=100))
    transactions = Transactions(log, 5)
    transactions.write(60)
    transactions.end_all()
    expected = committed(log, 0, 2000)
    log.close(NOW_MS)
    index = log.directory / f"{0:020d}.index"
    entries = bytearray(index.read_bytes())
    for number in range(1, len(entries) // 8):
        entries[number * 8 + 7] ^= 1
    index.write_bytes(entries)
    log = load_log(tmp_path, log_config(index_interval_bytes=100), is_clean=True, high_watermark=log.log_end_offset)
    fetched = committed(log, 0, 2000)
    assert (fetched.end_offset, aborted_in(fetched)) == (expected.end_offset, aborted_in(expected))


def test_only_segments_that_may_have_an_overlapping_transaction_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_log(tmp_path, log_config())
    for number in range(40):
        append(log, batch(1, producer_id=7, sequence=number, is_transactional=True))
        append_marker(log, marker(ControlType.ABORT, 7))
        log.appends.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    searched: list[str] = []
    original = TransactionIndex.overlapping

    def noted(self: TransactionIndex, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        searched.append(self.path)
        return original(self, start_offset, end_offset)

    monkeypatch.setattr(TransactionIndex, "overlapping", noted)
    assert aborted_in(committed(log, 4, 1)) == [(7, 4, 5)]
    assert len(searched) == 2  # its own segment and the active one


def test_valid_offset_is_read_from_the_new_segment_after_the_old_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    for number in range(3):
        append(log, keyed((f"k{number}", "v")))
        commit_and_roll(log)
    append(log, keyed(("z", "z")))
    log.advance_high_watermark(log.log_end_offset)
    for action in (
        lambda: log.reader.read(1, 1000, upper_bound_offset=4, min_one_batch=True),
        lambda: log.lookups.offset_for_timestamp(NOW_MS, upper_bound_offset=4),
    ):
        assert clean_before_open(log, broker, monkeypatch, action) is not None


def clean_before_open(
    log: Log, broker: Broker, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]
) -> object:
    """`action`, before whose first opened segment the cleaner merges the sealed ones and their files go."""
    append(log, keyed(("y", "z")))
    commit_and_roll(log)
    log.release()
    original = Segment._open

    def slow(segment: Segment) -> object:
        monkeypatch.undo()
        assert broker.clean()
        broker.manager.remove_deleted(NOW_MS)
        return original(segment)

    monkeypatch.setattr(Segment, "_open", slow)
    try:
        return action()
    except KafkaError as error:
        pytest.fail(f"{error.code.name}: {error}")


def test_marker_that_meets_a_damaged_index_loses_no_entry(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(1, producer_id=7, sequence=0, is_transactional=True))
    (log.directory / f"{0:020d}.txnindex").write_bytes(b"garbage")
    try:
        append_marker(log, marker(ControlType.ABORT, 7))
    except CorruptIndexError as error:
        pytest.fail(f"raised after the marker was written: {error}")
    log.advance_high_watermark(2)
    assert aborted_in(committed(log, 0, 1000)) == [(7, 0, 1)]
