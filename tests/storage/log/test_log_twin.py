"""A log against the dumbest thing that behaves like one, a list of batches: random operations, compared after each.

The real one has segments of a few hundred bytes and an index entry for nearly every batch, so that every look-up
crosses what it can cross. Reopening, after a clean close or a kill, must change nothing that a reader can see.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import HEADER_SIZE, read_header
from storage.log.log import Log
from storage.log.segment_reader import Wanted
from tests.storage.builders import NOW_MS, append, batch, create_log, delete_expired, load_log, log_config, read_all

CONFIG = log_config(
    segment_bytes=700, index_interval_bytes=100, segment_index_bytes=240, retention_ms=50, retention_bytes=2000
)


class TwinBatch:
    def __init__(self, base_offset: int, content: bytes, timestamps: list[int]) -> None:
        self.base_offset = base_offset
        self.content = content
        self.timestamps = timestamps

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps)


class LogAndTwin(RuleBasedStateMachine):
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.batches: list[TwinBatch] = []
        self.start = self.end = 0
        self.epoch = 0
        self.clock_ms = NOW_MS

    @initialize()
    def create(self) -> None:
        self.log = create_log(self.directory, CONFIG)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @rule(count=st.integers(1, 4), size=st.integers(0, 140), step_ms=st.integers(-20, 20))
    def append(self, count: int, size: int, step_ms: int) -> None:
        self.clock_ms += step_ms
        sent = batch(count, size=size, timestamp_ms=self.clock_ms)
        result = append(self.log, sent, leader_epoch=self.epoch, now_ms=self.clock_ms)
        assert (result.first_offset, result.last_offset) == (self.end, self.end + count - 1)
        timestamps = [self.clock_ms + number for number in range(count)]
        self.batches.append(TwinBatch(self.end, bytes(sent), timestamps))
        self.end += count

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.appends.roll(self.clock_ms)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncation.truncate_to(offset, now_ms=self.clock_ms)
        removed = [twin for twin in self.batches if twin.next_offset > offset]
        self.batches = [twin for twin in self.batches if twin.next_offset <= offset]
        # A batch that holds the offset goes as a whole.
        self.end = min([offset, *(twin.base_offset for twin in removed)])
        self.start = min(self.start, self.end)

    @rule(offset=st.integers(0, 300))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncation.truncate_fully_and_start_at(offset, now_ms=self.clock_ms)
        self.batches = []
        self.start = self.end = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.advance_high_watermark(self.end)
        offset = data.draw(st.integers(self.start, self.end))
        self.log.delete_records_before(offset)
        self.start = max(self.start, offset)

    @rule()
    def apply_retention(self) -> None:
        self.log.advance_high_watermark(self.end)
        delete_expired(self.log, self.clock_ms)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset  # which segments go is for the tables of test_retention
        self.log.disposal.remove_deleted(self.clock_ms + CONFIG.file_delete_delay_ms)

    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        self.log.durability.flush(self.clock_ms)
        assert self.log.durability.recovery_point == self.end

    @rule()
    def release(self) -> None:
        self.log.release()

    @rule(is_clean=st.booleans(), knows_recovery_point=st.booleans())
    def reopen(self, is_clean: bool, knows_recovery_point: bool) -> None:
        recovery_point = self.log.durability.recovery_point if knows_recovery_point else 0
        if is_clean:
            self.log.close(self.clock_ms)
        self.log = load_log(
            self.directory,
            CONFIG,
            is_clean=is_clean,
            log_start_offset=self.start,
            recovery_point=recovery_point,
            high_watermark=self.end,
        )

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def offsets_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        self.log.check()

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def readers_see_the_same(self) -> None:
        expected = [(twin.base_offset, twin.content) for twin in self.batches if twin.next_offset > self.start]
        assert list(read_all(self.log)) == expected

    @precondition(lambda self: self.end > 0)
    @rule(data=st.data())
    def read_at_any_offset(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        bound = data.draw(st.integers(self.start, self.end))
        max_bytes = data.draw(st.integers(0, 1500))
        min_one_batch, may_cut_first = data.draw(st.booleans()), data.draw(st.booleans())
        fetched = self.log.reader.read_or_slice(
            Wanted(offset, max_bytes, bound, min_one_batch, may_cut_first, True, False, False)
        )
        assert fetched is not None
        readable = (
            [t for t in self.batches if t.next_offset > offset and t.next_offset <= bound] if offset < bound else []
        )
        content = b"".join(twin.content for twin in readable)
        size = len(readable[0].content) if readable else 0
        size_max = max(max_bytes, size) if min_one_batch else max_bytes
        assert isinstance(fetched.records, memoryview)
        got = bytes(fetched.records)
        assert content.startswith(got)
        assert len(got) <= size_max
        if may_cut_first or size <= size_max:
            assert len(got) >= min(size, size_max)
        else:
            assert got == b""
        if len(got) >= HEADER_SIZE:
            assert read_header(got).base_offset == readable[0].base_offset

    @rule(timestamp_ms=st.integers(NOW_MS - 60, NOW_MS + 60))
    def look_up_by_time(self, timestamp_ms: int) -> None:
        records = [
            (time_ms, twin.base_offset + number)
            for twin in self.batches
            for number, time_ms in enumerate(twin.timestamps)
            if twin.base_offset + number >= self.start
        ]
        expected = next(((time_ms, offset) for time_ms, offset in records if time_ms >= timestamp_ms), None)
        found = self.log.lookups.offset_for_timestamp(timestamp_ms, upper_bound_offset=self.end)
        assert (found and found[:2]) == expected

    @rule()
    def find_the_greatest_timestamp(self) -> None:
        # Whole batches count: the log's start may lie inside the first one.
        records = [
            (time_ms, twin.base_offset + number)
            for twin in self.batches
            if twin.next_offset > self.start
            for number, time_ms in enumerate(twin.timestamps)
        ]
        found = self.log.lookups.max_timestamp(upper_bound_offset=self.end)
        greatest = max((time_ms for time_ms, _ in records), default=None)
        if found is None:
            assert greatest is None
            return
        assert greatest is None or found.timestamp_ms >= greatest
        if found.offset >= self.start:
            assert found[:2] == next(record for record in records if record[0] == found.timestamp_ms)

    @rule(offset=st.integers(-5, 400))
    def read_out_of_range(self, offset: int) -> None:
        if self.start <= offset <= self.end:
            return
        with pytest.raises(KafkaError) as raised:
            self.log.reader.read(offset, 100, upper_bound_offset=self.end, min_one_batch=True)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


TestLogAndTwin = LogAndTwin.TestCase
TestLogAndTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
