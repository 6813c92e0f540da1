"""One thread changes a log while others read, search and flush: their results are correct or a documented error."""

import contextlib
import threading
from itertools import count
from pathlib import Path
from random import Random

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import batches, read_header
from storage.log.log import Log
from storage.log.segment_reader import SegmentReader
from storage.segments.segment import Segment
from tests.storage.builders import (
    NOW_MS,
    QuickFiles,
    append,
    batch,
    create_log,
    delete_expired,
    log_config,
    log_options,
)

CONFIG = log_config(
    segment_bytes=3000,
    index_interval_bytes=200,
    segment_index_bytes=240,
    retention_bytes=20_000,
    file_delete_delay_ms=0,
)
APPENDS = 1500
# Where the reader was when what it asked for went away.
EXPECTED_ERRORS = {ErrorCode.OFFSET_OUT_OF_RANGE}


class Worker(threading.Thread):
    """Repeats one action until it is stopped; keeps its errors."""

    def __init__(self, log: Log, seed: int, done: threading.Event) -> None:
        super().__init__()
        self.log = log
        self.random = Random(seed)
        self.done = done
        self.failure: BaseException | None = None
        self.rounds = 0

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self.act()
                self.rounds += 1
        except BaseException as failure:
            self.failure = failure

    def act(self) -> None:
        raise NotImplementedError


class Reader(Worker):
    def act(self) -> None:
        log = self.log
        offset = self.random.randint(log.log_start_offset, max(log.log_start_offset, log.log_end_offset))
        bound = log.log_end_offset
        nowait = self.random.random() < 0.5
        try:
            fetched = log.reader.read(offset, 2000, upper_bound_offset=bound, min_one_batch=True, nowait=nowait)
        except KafkaError as error:
            if error.code in EXPECTED_ERRORS:
                return
            raise
        if fetched is None:
            return
        expected = None
        for _, header in batches(fetched.records):
            assert header.last_offset >= offset if expected is None else header.base_offset == expected
            assert header.last_offset < bound
            assert header.max_timestamp - NOW_MS == header.base_offset
            expected = header.next_offset


class Seeker(Worker):
    def act(self) -> None:
        found = self.log.lookups.offset_for_timestamp(
            NOW_MS + self.random.randrange(APPENDS), upper_bound_offset=self.log.log_end_offset
        )
        assert found is None or found.timestamp_ms - NOW_MS == found.offset


class Flusher(Worker):
    def act(self) -> None:
        self.log.durability.flush(NOW_MS)
        self.log.durability.start_writeback()
        self.log.disposal.remove_deleted(NOW_MS)


@pytest.mark.parametrize("truncates", [False, True])
def test_concurrent_readers_and_flushers_see_a_consistent_log(memory_path: Path, truncates: bool) -> None:
    log = create_log(memory_path, CONFIG, log_options(QuickFiles()))
    random, done = Random(7), threading.Event()
    workers: list[Worker] = [Reader(log, 1, done), Reader(log, 2, done), Flusher(log, 3, done)]
    if not truncates:
        workers.append(Seeker(log, 4, done))
    for worker in workers:
        worker.start()
    try:
        for _ in range(APPENDS):
            append(log, batch(1, size=random.randrange(120), timestamp_ms=NOW_MS + log.log_end_offset))
            if random.random() < 0.02:
                log.advance_high_watermark(log.log_end_offset)
                delete_expired(log, NOW_MS)
            if truncates and random.random() < 0.01:
                log.truncation.truncate_to(random.randint(log.log_start_offset, log.log_end_offset), now_ms=NOW_MS)
            if random.random() < 0.02:
                log.durability.release_idle()
    finally:
        done.set()
        for worker in workers:
            worker.join()
    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
    assert all(worker.rounds for worker in workers)
    assert not log.is_offline


@pytest.mark.parametrize(("attribute", "looks_before"), [("end", 0), ("end", 1), ("positions", 0)])
def test_read_during_a_truncation_caches_no_wrong_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str, looks_before: int
) -> None:
    """Interrupts a read between two accesses to the reader's cache."""
    log = create_log(tmp_path)
    for _ in range(10):
        append(log, batch(1, size=100))
    slot = SegmentReader.__dict__[attribute]
    looks = count()

    def look(reader: SegmentReader) -> object:
        value = slot.__get__(reader)
        if next(looks) == looks_before:
            log.truncation.truncate_to(5, now_ms=NOW_MS)
            for _ in range(3):
                append(log, batch(2, size=160))
        return value

    monkeypatch.setattr(SegmentReader, attribute, property(look, slot.__set__))
    with contextlib.suppress(KafkaError):
        log.reader.read(4, 100_000, upper_bound_offset=log.log_end_offset, min_one_batch=True)
    monkeypatch.undo()
    assert next(looks) > looks_before
    for offset in range(log.log_end_offset):
        fetched = log.reader.read(offset, 1, upper_bound_offset=log.log_end_offset, min_one_batch=True, nowait=True)
        assert fetched is not None
        assert read_header(fetched.records).base_offset <= offset <= read_header(fetched.records).last_offset


def test_file_that_is_released_during_a_writeback_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes the idle file between two accesses to it."""
    log = create_log(tmp_path)
    append(log, batch(1))
    segment = log.segments.active
    slot = Segment.__dict__["_file"]

    def look(one: Segment) -> object:
        file = slot.__get__(one)
        slot.__set__(one, None)
        return file

    monkeypatch.setattr(Segment, "_file", property(look, slot.__set__))
    segment.start_writeback()
    assert segment._writeback_position == segment.size
