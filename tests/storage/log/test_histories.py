"""Random histories of one log, with kills and power cuts within any call, against a plain model (`log_model.py`).

    $ HISTORIES=20000 bin/test tests/storage/log/test_histories.py       # more of them
    $ HISTORY=4711 bin/test tests/storage/log/test_histories.py          # the one that has failed

An operation is planned on the model, then performed on the log. If a crash interrupts it, the log may hold what it held
before, what it should hold then, or what is in between: the beginning of `Plan.most`, down to `Plan.least_end`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import pytest

from config.log_config import LogConfig
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType
from storage.batches.validation import AppendOrigin
from storage.cleaning.cleaner import clean
from storage.cleaning.compaction import Transactions
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.directories.log_directory import LogDirectory
from storage.disk.meta_properties import MetaProperties
from storage.log.log import Log
from storage.log.log_durability import LogDurability
from storage.log.log_state import LogState
from storage.log.log_truncation import LogTruncation
from storage.manager.log_manager import LogManager
from storage.manager.log_moves import catch_up
from storage.manager.log_startup import LogManagerSettings
from storage.segments.leader_epochs import LeaderEpochs
from storage.segments.segment import Segment
from tests.sim.disk import DiskFiles, PowerCut, RandomCut, SimulatedDisk
from tests.sim.world import Crashed
from tests.storage.builders import NOW_MS, created, done, in_thread, log_config, marker, pause
from tests.storage.compacted import finish_pass
from tests.storage.log_model import NO_SEQUENCE, Batch, Branch, Entry, Left, Model, difference, outcome_of
from tests.support.same_thread import SameThread

NAME = ("topic", 0)
DIRECTORIES = ("/a", "/b")
KEYS = (b"a", b"b", b"c")
PLAIN, IDEMPOTENT, TRANSACTIONAL = (-1,), (1, 2), (3, 4)

OPERATIONS_MAX = 40
TESTS = 40
HISTORIES = int(os.environ.get("HISTORIES", "300"))
"""Seven of the nine `DEFECTS` are found by one of 30 histories, the other two by one of a thousand and more."""
HISTORIES_FOR_DEFECTS = 8_000


@dataclass
class Plan:
    """What an operation does. `after` is the model of a completed one; the other fields apply if it is interrupted."""

    run: Callable[[], object]
    after: Model
    most: Branch
    least_end: int
    start_max: int
    removes_all: bool = False
    """Whether it removes the whole log: in between, newer records of a key may be gone before older ones."""


class History:
    """One history: a machine with two log directories, one log, and the model of it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        policy = random.choice(("delete", "compact", "compact", "compact,delete"))
        self.is_compacted = policy != "delete"
        self.config: LogConfig = log_config(
            cleanup_policy=frozenset(policy.split(",")),
            segment_bytes=random.choice((250, 400, 800)),
            index_interval_bytes=random.choice((1, 100)),
            segment_index_bytes=random.choice((24, 4096)),
            retention_bytes=random.choice((-1, 600, 1500)),
            retention_ms=-1,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=random.choice((0, 300)),
            file_delete_delay_ms=random.choice((0, 400)),
        )
        self.trace = [f"{policy}, segments of {self.config.segment_bytes} bytes"]
        self.now_ms = NOW_MS
        self.epoch = 0
        self.number = 0
        self.model = Model()
        self.highest_start = 0
        self.is_over = False
        """Whether a part of a log is left that was being removed, or a cut that is not synced."""
        self.disk = SimulatedDisk()
        for directory in DIRECTORIES:
            self.disk.provide_directory(directory)
        self.start()

    def start(self, crash_after: int = -1) -> None:
        """Start the broker's storage; the log is created if the disk has none. With `crash_after` it may crash."""
        self.files = DiskFiles(self.disk, lambda: (self.now_ms - NOW_MS) * 1000, lambda us: None)
        if crash_after >= 0:
            self.files.crash_after(crash_after, self.files.die)
        self.manager = LogManager(
            list(DIRECTORIES),
            LogManagerSettings(),
            self.files,
            random=self.random,
            new_threads=SameThread,
            on_directory_failed=lambda *_: None,
        )
        startup = self.manager.startup
        startup.open()
        startup.claim(MetaProperties(1, "cluster"))
        startup.load(lambda topic: self.config, now_ms=self.now_ms)
        self.cleaning = LogCleaning(self.manager, self.files, CleanerSettings(dedupe_buffer_size=1 << 14))
        self.cleaning.load()
        self.log: Log = created(self.manager, *NAME, topic_id=None, config=self.config, now_ms=self.now_ms)
        self.files.never_crash()

    def run(self) -> None:
        for _ in range(self.random.randint(5, OPERATIONS_MAX)):
            self.now_ms += self.random.randint(0, 200)
            (operation,) = self.random.choices(list(OPERATIONS), list(OPERATIONS.values()))
            plan = None if self.is_over else operation(self)
            if plan is not None:
                self.trace.append(operation.__name__)
                self.perform(plan, crash_probability=0.35 if operation in OFTEN_INTERRUPTED else 0.12)
        self.trace.append("the end")
        if not self.is_over:
            self.check(self.model.branch, self.model.branch.end, 0, self.model.log_start)

    def perform(self, plan: Plan, crash_probability: float) -> None:
        """Perform an operation; sometimes crash in it, or after it, and start again."""
        random = self.random
        self.highest_start = max(self.highest_start, plan.start_max)
        if random.random() >= crash_probability:
            plan.run()
            self.log.check()
            self.model = plan.after
            return
        self.files.crash_after(random.randint(0, random.choice((2, 10, 40))), self.files.die)
        try:
            plan.run()
        except Crashed:
            self.crash(plan)
            return
        self.model = plan.after
        branch = plan.after.branch
        self.files.die()
        self.crash(Plan(lambda: None, plan.after, branch, branch.end, plan.after.log_start))

    def crash(self, plan: Plan) -> None:
        """Kill the process or cut the power; start again, perhaps after a crash of the start, and check the log."""
        before, is_power_cut = self.model, self.die()
        while self.random.random() < 0.2:
            try:
                self.start(self.random.randint(0, 30))
            except Crashed:
                self.trace.append("in the start")
            self.files.die()
            is_power_cut |= self.die()
        self.start()
        log = self.log
        self.trace.append(
            f"{log.log_start_offset} to {log.log_end_offset}, segments {[it.base_offset for it in log.segments.all()]}"
        )
        durable_start = min(before.durable_start, plan.after.durable_start)
        problems = []
        for branch, least_end, floor in self.possible(plan, is_power_cut=is_power_cut):
            problem = self.problem(branch, least_end, durable_start, plan.start_max, has_newest=not plan.removes_all)
            if problem is None:
                self.is_over = plan.removes_all and branch == plan.most
                # What a killed truncation has cut is not synced. After a power cut it may end where a later segment
                # begins; only a sync of each log at each start after a kill would prevent that.
                self.is_over |= not is_power_cut and log.log_end_offset < before.branch.end == plan.most.end
                split = min(log.log_end_offset, plan.least_end)
                left = () if is_power_cut else (*before.left, *plan.after.left, Left(plan.most, split))
                self.adopt(branch, floor, durable_start, left)
                return
            problems.append(problem)
        raise AssertionError("\n".join([*self.trace, *dict.fromkeys(problems)]))

    def die(self) -> bool:
        """End the process, or cut the power; return whether it was a power cut."""
        is_power_cut = self.random.random() < 0.5
        self.trace.append("POWER CUT" if is_power_cut else "KILL")
        if is_power_cut:
            self.disk.lose_power(self.random.choice((RandomCut(self.random), PowerCut())))
        else:
            self.disk.release_locks()
        return is_power_cut

    def possible(self, plan: Plan, *, is_power_cut: bool) -> Iterator[tuple[Branch, int, int]]:
        """Return the branches of which the log may hold the beginning, the least end of each, and what is synced."""
        before, after = self.model, plan.after
        floor = min(before.floor, after.floor, plan.least_end)
        yield plan.most, floor if is_power_cut else plan.least_end, floor
        if plan.most != after.branch:
            yield after.branch, min(floor, after.branch.end) if is_power_cut else after.branch.end, floor
        for branch, split in (*before.left, *after.left) if is_power_cut else ():
            yield branch, min(floor, split), min(floor, split)

    def problem(
        self, branch: Branch, least_end: int, start_min: int, start_max: int, *, has_newest: bool = True
    ) -> str | None:
        """Return why the log is not the beginning of `branch`; None if it is."""
        log = self.log
        log.check()
        least_end = min(least_end, branch.end_of_batches(least_end))
        if not least_end <= log.log_end_offset <= branch.end:
            return f"the log ends at {log.log_end_offset}, not between {least_end} and {branch.end}"
        if not min(start_min, log.log_end_offset) <= log.log_start_offset <= start_max:
            return f"the log starts at {log.log_start_offset}, not between {start_min} and {start_max}"
        return difference(
            log, branch, is_compacted=self.is_compacted, has_newest=has_newest, highest_start=self.highest_start
        )

    def adopt(self, branch: Branch, floor: int, durable_start: int, left: tuple[Left, ...]) -> None:
        """Continue with what the log holds; after a power cut, `left` is empty, and all of that is on the disk."""
        end, start = self.log.log_end_offset, self.log.log_start_offset
        kept = Branch(tuple(it for it in branch.batches if it.last_offset < end), end)
        self.model = Model(kept, end, start, min(durable_start, start), min(floor, end) if left else end, left)

    def check(self, branch: Branch, end: int, start_min: int, start_max: int) -> None:
        problem = self.problem(branch, end, start_min, start_max)
        if problem is not None:
            raise AssertionError("\n".join([*self.trace, problem]))

    # What operations need

    def plan(self, run: Callable[[], object], after: Model) -> Plan:
        """Plan an operation that leaves the batches as they are, or adds some."""
        before = self.model
        return Plan(run, after, after.branch, before.branch.end, max(before.log_start, after.log_start))

    def make(self, base_offset: int, producer_id: int = -1) -> tuple[Batch, bytearray]:
        """Return a batch of one to three records, as the model and the wire have it."""
        random = self.random
        is_transactional = producer_id in TRANSACTIONAL
        epoch, sequence = -1, NO_SEQUENCE
        if producer_id >= 0:
            known = outcome_of(self.model.branch, 0, self.model.branch.end).producers
            epoch, sequence = known.get(producer_id, (0, NO_SEQUENCE))
            entry = self.log.producer_state.producers.get(producer_id)
            if entry is not None:  # a start may have found nothing but its marker
                epoch, sequence = entry.epoch, entry.last_sequence
            if not is_transactional and random.random() < 0.1:
                epoch, sequence = epoch + 1, NO_SEQUENCE
        entries = []
        for number in range(random.randint(1, 3)):
            self.number += 1
            is_tombstone = self.is_compacted and random.random() < 0.25
            entries.append(
                Entry(
                    base_offset + number,
                    self.now_ms + random.randint(-300, 300),
                    random.choice(KEYS),
                    None if is_tombstone else b"%d" % self.number,
                )
            )
        built = bytearray(
            build_batch(
                [RecordData(it.timestamp_ms, it.key, it.value) for it in entries],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence + 1 if producer_id >= 0 else NO_SEQUENCE,
                is_transactional=is_transactional,
            )
        )
        last_sequence = sequence + len(entries) if producer_id >= 0 else NO_SEQUENCE
        batch = Batch(
            base_offset,
            entries[-1].offset,
            self.epoch,
            tuple(entries),
            producer_id,
            epoch,
            last_sequence,
            is_transactional,
        )
        return batch, built


# Operations


def append_as_leader(history: History) -> Plan:
    producer_id = history.random.choice((*PLAIN, *IDEMPOTENT, *TRANSACTIONAL))
    batch, content = history.make(history.log.log_end_offset, producer_id)
    after = history.model.copy()
    after.append(batch)

    def run() -> None:
        result = history.log.appends.append_as_leader(memoryview(content), history.epoch, history.now_ms)
        assert (result.first_offset, result.last_offset) == (batch.base_offset, batch.last_offset)

    return history.plan(run, after)


def append_as_follower(history: History) -> Plan:
    """One or two batches of a leader, whose log may have gaps if it is compacted."""
    after, content = history.model.copy(), bytearray()
    for _ in range(history.random.randint(1, 2)):
        gap = history.random.choice((0, 0, 1, 4)) if history.is_compacted else 0
        batch, built = history.make(after.branch.end + gap)
        struct.pack_into(">q", built, 0, batch.base_offset)
        struct.pack_into(">i", built, 12, history.epoch)
        after.append(batch)
        content += built
    return history.plan(
        lambda: history.log.appends.append_as_follower(
            memoryview(content), now_ms=history.now_ms, leader_epoch=history.epoch
        ),
        after,
    )


def end_transaction(history: History) -> Plan | None:
    branch = history.model.branch
    outcome = outcome_of(branch, 0, branch.end)
    if not outcome.open_transactions:
        return None
    producer_id = history.random.choice(sorted(outcome.open_transactions))
    control_type = history.random.choice((ControlType.COMMIT, ControlType.ABORT))
    epoch, _ = outcome.producers[producer_id]
    after = history.model.copy()
    after.append(
        Batch(branch.end, branch.end, history.epoch, (), producer_id, epoch, is_transactional=True, marker=control_type)
    )
    return history.plan(
        lambda: history.log.appends.append_as_leader(
            marker(control_type, producer_id, epoch=epoch), history.epoch, history.now_ms, AppendOrigin.COORDINATOR
        ),
        after,
    )


def begin_epoch(history: History) -> Plan:
    history.epoch += history.random.randint(1, 2)
    return history.plan(lambda: history.log.appends.assign_epoch(history.epoch), history.model.copy())


def roll(history: History) -> Plan:
    return history.plan(lambda: history.log.appends.roll(history.now_ms), history.model.copy())


def advance_high_watermark(history: History) -> Plan:
    after = history.model.copy()
    end = history.log.log_end_offset
    after.high_watermark = max(after.high_watermark, history.random.choice((end, end, history.random.randint(0, end))))
    return history.plan(lambda: history.log.advance_high_watermark(after.high_watermark), after)


def flush(history: History) -> Plan:
    after = history.model.copy()
    after.flushed()
    return history.plan(lambda: history.log.durability.flush(history.now_ms), after)


def flush_sealed(history: History) -> Plan:
    after = history.model.copy()
    after.synced(min(history.log.segments.active.base_offset, after.branch.end))
    return history.plan(history.log.durability.flush_sealed, after)


def write_checkpoints(history: History) -> Plan:
    after = history.model.copy()
    after.durable_start = after.log_start

    def run() -> None:
        history.manager.checkpoint_recovery_points()
        history.manager.checkpoint_log_starts()
        history.manager.checkpoint_high_watermarks()

    return history.plan(run, after)


def keep_house(history: History) -> Plan:
    def run() -> None:
        history.manager.remove_deleted(history.now_ms)
        done(history.manager.release_idle(pause, in_thread))
        history.manager.flush_due(history.now_ms)

    return history.plan(run, history.model.copy())


def delete_records(history: History) -> Plan | None:
    model = history.model
    if model.high_watermark <= model.log_start:
        return None
    after = model.copy()
    after.log_start = history.random.randint(model.log_start + 1, model.high_watermark)
    return history.plan(lambda: history.log.delete_records_before(after.log_start), after)


def apply_retention(history: History) -> Plan:
    after = history.model.copy()

    def run() -> None:
        done(history.manager.run_retention(history.now_ms, pause, in_thread))
        done(history.cleaning.delete_expired(history.now_ms, pause, in_thread))
        after.log_start = history.log.log_start_offset

    plan = history.plan(run, after)
    plan.start_max = max(history.model.log_start, history.model.high_watermark)
    return plan


def truncate(history: History) -> Plan | None:
    model = history.model
    lowest = max(model.high_watermark, model.log_start)
    if model.branch.end <= lowest:
        return None
    after = model.copy()
    offset = history.random.randint(lowest, model.branch.end - 1)
    after.truncate(offset)
    if after.branch.end < lowest:
        return None
    return Plan(
        lambda: history.log.truncation.truncate_to(offset, now_ms=history.now_ms),
        after,
        model.branch,
        after.branch.end,
        max(model.log_start, after.log_start),
    )


def start_anew(history: History) -> Plan | None:
    """A follower whose log has nothing in common with its leader's, or that is far behind."""
    if history.random.random() < 0.7:
        return None
    after = history.model.copy()
    offset = history.random.choice((history.random.randint(0, after.branch.end), after.branch.end + 100))
    after.start_anew(offset)
    return Plan(
        lambda: history.log.truncation.truncate_fully_and_start_at(offset, now_ms=history.now_ms),
        after,
        history.model.branch,
        0,
        max(offset, history.model.log_start),
        removes_all=True,
    )


def clean_log(history: History) -> Plan | None:
    if not history.is_compacted:
        return None

    def run() -> None:
        cleaning, now_ms = history.cleaning, history.now_ms
        picked = cleaning.pick(now_ms)
        if picked is not None:
            result = clean(picked.job, history.files)
            cleaning.make_durable(picked)
            assert finish_pass(cleaning, picked, result, now_ms=now_ms)
        cleaning.write_checkpoints()

    return history.plan(run, history.model.copy())


def move(history: History) -> Plan:
    """Move the log to the other directory, in the order in which the broker takes its steps."""
    after = history.model.copy()
    after.flushed()

    def run() -> None:
        manager, log, now_ms = history.manager, history.log, history.now_ms
        manager.drop_future(*NAME, now_ms=now_ms)
        source = manager.directory_of(*NAME)
        (target,) = (it for it in manager.directories if it is not source)
        assert source is not None
        copy = manager.create_future(log, target, now_ms=now_ms)

        def follow() -> None:
            while catch_up(log, copy, 300, now_ms=now_ms):
                pass

        follow()
        copy.durability.flush(now_ms)
        manager.move_markers.mark_whole(copy, log, now_ms=now_ms)
        follow()
        if copy.log_end_offset != log.log_end_offset:
            manager.drop_future(*NAME, now_ms=now_ms)  # the log ends with a gap: the move would wait for a record
            log.durability.flush(now_ms)
            return
        copy.take_over_state(log)
        history.log = manager.put_future_in_service(*NAME, now_ms=now_ms)
        manager.move_markers.finish(history.log, source, now_ms=now_ms)

    return history.plan(run, after)


def stop_cleanly(history: History) -> Plan:
    after = history.model.copy()
    if history.log.durability.unflushed_count:
        after.flushed()  # a stop does not sync logs without new data
    after.durable_start = after.log_start

    def run() -> None:
        history.manager.close(history.now_ms)
        history.files.die()
        history.disk.release_locks()
        history.start()
        end = history.log.log_end_offset  # without a gap at the end
        assert after.branch.end_of_batches(after.branch.end) <= end <= after.branch.end
        after.branch = Branch(after.branch.batches, end)
        after.floor, after.high_watermark = min(after.floor, end), min(after.high_watermark, end)

    return history.plan(run, after)


Operation: TypeAlias = Callable[[History], Plan | None]

OPERATIONS: dict[Operation, int] = {
    append_as_leader: 30,
    append_as_follower: 20,
    end_transaction: 10,
    begin_epoch: 4,
    roll: 4,
    advance_high_watermark: 12,
    flush: 4,
    flush_sealed: 3,
    write_checkpoints: 5,
    keep_house: 4,
    delete_records: 3,
    apply_retention: 3,
    truncate: 8,
    start_anew: 2,
    clean_log: 10,
    move: 2,
    stop_cleanly: 3,
}
"""The operations, and how often each is chosen."""


OFTEN_INTERRUPTED = (truncate, start_anew, clean_log, move, roll)


def failure_in(seeds: Iterable[int]) -> str | None:
    """Return the trace of the first history that does not lead to what the model says."""
    for seed in seeds:
        try:
            History(seed).run()
        except Exception as error:
            return f"history {seed}: {error!r}\n{error}"
    return None


@pytest.mark.parametrize("group", range(TESTS))
def test_every_history_leads_to_what_the_model_says(group: int) -> None:
    seeds = [int(os.environ["HISTORY"])] if "HISTORY" in os.environ else range(group, HISTORIES, TESTS)
    problem = failure_in(seeds)
    if problem is not None:
        pytest.fail(problem)


def _no_scan_of_epochs(self: LeaderEpochs, end_offset: int) -> None:
    """Keep all entries of the file."""


DEFECTS: dict[str, tuple[object, str, object]] = {
    "a segment begins behind a gap": (LogState, "end_of_batches", lambda self, end_offset: end_offset),
    "markers are not synced before a removal": (Transactions, "has_data_before_marker", False),
    "a cut is not synced": (Segment, "sync_cut", lambda self: None),
    "the recovery point stays above a cut": (LogDurability, "lower_recovery_point", lambda self, offset: None),
    "epochs stay after a truncation": (LeaderEpochs, "truncate_from_end", _no_scan_of_epochs),
    "removed segments are not synced": (DiskFiles, "sync_directory", lambda self, path: None),
    "sealed segments are not synced": (Segment, "sync", lambda self: None),
    "producers survive a truncation": (LogTruncation, "_producers_at", lambda self, offset: self._state.producer_state),
    "the log start is not written before files are removed": (LogDirectory, "write_log_starts", lambda self: None),
}
"""Defects that the histories have to find: a class, the name of an attribute, and what replaces it."""


@pytest.mark.soak
@pytest.mark.parametrize("defect", DEFECTS)
def test_defects_are_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert failure_in(range(HISTORIES_FOR_DEFECTS)) is not None
