"""A compacted log against a list of everything that was ever written: random operations, what readers are promised.

Appends, rolls, passes, deletions of records, and reopening after a clean stop or a kill, in any order. After each the
newest record of every key exists, every record was written, and the dirty part is whole.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.log.log import Log
from tests.storage.builders import NOW_MS, append, delete_expired
from tests.storage.compacted import CONFIG, Broker, Kept, commit_and_roll, kept_in, keyed

PAIRS = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.text("v", max_size=60)), min_size=1, max_size=5)
SMALL_MAP = 24 * 4


class CompactedLogAndTwin(RuleBasedStateMachine):
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.written: Kept = []
        self.clock_ms = NOW_MS
        self.deleted_ms: dict[int, int] = {}  # tombstone -> when a pass has stamped it, at the earliest
        self.start = self.first_dirty = 0

    @initialize(memory=st.sampled_from([SMALL_MAP, 1 << 20]))
    def create(self, memory: int) -> None:
        self.memory = memory
        self.broker = Broker(self.directory, memory=memory)
        self.log = self.broker.log()

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.manager.directories.unlock()
        shutil.rmtree(self.directory)

    @rule(pairs=PAIRS)
    def append(self, pairs: list[tuple[str, str | None]]) -> None:
        first = append(self.log, keyed(*pairs)).first_offset
        for offset, (key, value) in enumerate(pairs, first):
            self.written.append((offset, key.encode(), None if value is None else value.encode()))
        self.log.advance_high_watermark(self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        commit_and_roll(self.log)

    @rule()
    def clean(self) -> None:
        """Until nothing is due; a pass whose map is too small leaves the rest to the next."""
        for offset, _, value in self.written:
            if value is None and offset < self.log.segments.active.base_offset:
                self.deleted_ms.setdefault(offset, self.clock_ms + CONFIG.delete_retention_ms)
        while self.broker.clean(self.clock_ms):
            self.first_dirty = self.log.segments.active.base_offset

    @rule(days=st.floats(0.1, 1.5))
    def wait(self, days: float) -> None:
        self.clock_ms += int(days * CONFIG.delete_retention_ms)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.log.high_watermark))
        self.log.delete_records_before(offset)
        delete_expired(self.log, self.clock_ms)
        self.start = offset

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        self.broker.manager.checkpoint_log_starts()
        self.broker.manager.checkpoint_high_watermarks()
        if is_clean:
            self.broker.manager.close(self.clock_ms)
        else:
            self.broker.manager.directories.unlock()
        self.broker = Broker(self.directory, memory=self.memory)
        self.log = self.broker.log()

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def readers_find_what_they_are_promised(self) -> None:
        written = [item for item in self.written if item[0] >= self.start]
        found = [item for item in kept_in(self.log) if item[0] >= self.start]
        assert found == [item for item in written if item in found]
        newest = {key: (offset, value) for offset, key, value in written}
        there = {offset for offset, _, _ in found}
        for offset, value in newest.values():
            is_expired = value is None and self.deleted_ms.get(offset, self.clock_ms + 1) <= self.clock_ms
            assert offset in there or is_expired, offset
        assert all(offset in there for offset, _, _ in written if offset >= self.first_dirty)

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def offsets_stay(self) -> None:
        end = len(self.written)
        assert (self.log.log_start_offset, self.log.high_watermark, self.log.log_end_offset) == (self.start, end, end)
        for offset in range(self.start, end):
            assert self.log.reader.read(offset, 1, upper_bound_offset=end, min_one_batch=True) is not None


TestCompactedLogAndTwin = CompactedLogAndTwin.TestCase
TestCompactedLogAndTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
