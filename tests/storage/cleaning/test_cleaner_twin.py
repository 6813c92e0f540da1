"""Cleaning against a dumb twin that knows nothing but dictionaries: random logs of every kind, random first dirty
offsets, maps that are too small, several passes, and a reopening that scans everything."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from protocol.records.batch import BatchHeader, Record, TimestampType
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.control import ControlType, TransactionMarker, build_marker
from protocol.records.entries import Entry, entries, entry_records
from protocol.records.legacy import build_message_set
from storage.cleaning.cleaner import clean
from storage.cleaning.cleaning_job import CleaningJob, CleaningResult
from storage.disk import names
from storage.log.log import Log
from tests.storage.builders import NOW_MS
from tests.storage.compacted import CONFIG, Broker, commit_and_roll, finish_pass
from tests.support.entries import entry_crc_is_valid

HOUR_MS = 3_600_000
HORIZON_MS = 24 * HOUR_MS
SIZE_MAX = 1 << 24


class Stored(NamedTuple):
    """A batch as it lies in a log, with everything that is in it."""

    content: bytes
    entry: Entry
    records: list[Record]
    segment_modified_ms: int

    @property
    def header(self) -> BatchHeader | None:
        return self.entry.header if isinstance(self.entry.header, BatchHeader) else None

    @property
    def last_offset(self) -> int:
        return self.entry.header.last_offset

    @property
    def is_marker(self) -> bool:
        return self.header is not None and self.header.is_control


def stored_in(log: Log) -> list[Stored]:
    found = []
    for segment in log.segments.all():
        content = Path(segment.path).read_bytes()
        assert len(content) == segment.size
        for entry in entries(content):
            assert entry_crc_is_valid(content, entry)
            bytes_of_it = content[entry.position : entry.end]
            records = list(entry_records(bytes_of_it, size_max=SIZE_MAX))
            found.append(Stored(bytes_of_it, entry, records, segment.on_disk.modified_ms))
    return found


# What the twin does


def twin_of_a_pass(
    before: list[Stored], job: CleaningJob, end_offset: int
) -> Iterator[tuple[Stored, Stored | list[Record] | None]]:
    """Each batch and what is left of it: itself as it was, some records of it in a batch that is written anew, or None
    for one that may go as a whole."""
    aborted = _aborted(before)
    useless = [place in aborted for place in range(len(before))]
    sources = [source for source in job.segments if source.base_offset < end_offset]
    before = [each for each in before if each.last_offset < sources[-1].next_offset]
    newest: dict[bytes, int] = {}
    for each, is_useless in zip(before, useless, strict=False):
        if not each.is_marker and not is_useless:
            for record in each.records:
                if job.first_dirty_offset <= record.offset < end_offset and record.key is not None:
                    newest[record.key] = record.offset
    has_data: set[int] = set()
    for each, is_useless in zip(before, useless, strict=False):
        header = each.header
        if header is not None and header.is_control:
            yield each, _left_of_marker(each, header, job, is_needed=header.producer_id in has_data)
            has_data.discard(header.producer_id)
            continue
        if header is not None and header.is_transactional:
            has_data.add(header.producer_id)
        yield each, None if is_useless else _left_of_data(each, job, end_offset, newest)


def _left_of_marker(
    each: Stored, header: BatchHeader, job: CleaningJob, *, is_needed: bool
) -> Stored | list[Record] | None:
    horizon_ms = header.delete_horizon_ms
    if not each.records or (not is_needed and horizon_ms is not None and job.now_ms >= horizon_ms):
        return None
    return each if is_needed or horizon_ms is not None else each.records


def _left_of_data(
    each: Stored, job: CleaningJob, end_offset: int, newest: dict[bytes, int]
) -> Stored | list[Record] | None:
    header = each.header
    if header is None:
        clean_before = [s.modified_ms for s in job.segments if s.base_offset < job.first_dirty_offset]
        is_past_horizon = bool(clean_before) and each.segment_modified_ms <= clean_before[-1] - job.delete_retention_ms
    else:
        is_past_horizon = header.delete_horizon_ms is not None and job.now_ms >= header.delete_horizon_ms

    def stays(record: Record) -> bool:
        if record.offset >= end_offset:
            return True
        if record.key is None or newest.get(record.key, -1) > record.offset:
            return False
        return record.value is not None or not is_past_horizon

    kept = [record for record in each.records if stays(record)]
    needs_stamp = (
        header is not None
        and header.delete_horizon_ms is None
        and any(record.value is None and record.offset < end_offset for record in kept)
    )
    return each if kept == each.records and kept and not needs_stamp else kept or None


def _aborted(before: list[Stored]) -> set[int]:
    """Places of the data batches whose next marker says that they are aborted."""
    ends: dict[int, bool] = {}
    found = set()
    for place in range(len(before) - 1, -1, -1):
        header = before[place].header
        if header is None:
            continue
        if header.is_control and before[place].records:
            key = before[place].records[0].key
            assert key is not None
            ends[header.producer_id] = int.from_bytes(key[2:4]) == ControlType.ABORT
        elif header.is_transactional and not header.is_control and ends.get(header.producer_id):
            found.add(place)
    return found


def check_pass(before: list[Stored], after: list[Stored], job: CleaningJob, result: CleaningResult) -> None:
    end_offset = result.end_offset
    assert end_offset > job.first_dirty_offset
    left = iter(after)
    for each, expected in twin_of_a_pass(before, job, end_offset):
        header = each.header
        if expected is None and not _must_stay(each, job):
            continue
        found = next(left)
        if expected is each:
            assert found.content == each.content
            continue
        kept = expected if isinstance(expected, list) else []
        assert found.records == kept
        if header is None:
            continue
        assert found.header is not None
        for name in ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence",
                     "partition_leader_epoch", "timestamp_type", "is_transactional", "is_control"):  # fmt: skip
            assert getattr(found.header, name) == getattr(header, name), name
        if kept and header.timestamp_type is TimestampType.CREATE_TIME:
            assert found.header.max_timestamp == max(record.timestamp for record in kept)
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None and (
            each.is_marker or any(record.value is None and record.offset < end_offset for record in kept)
        ):
            horizon_ms = job.now_ms + job.delete_retention_ms
        assert found.header.delete_horizon_ms == (horizon_ms if kept else None)
    sources = [source for source in job.segments if source.base_offset < end_offset]
    untouched = [each.content for each in before if each.last_offset >= sources[-1].next_offset]
    assert [each.content for each in left] == untouched


def _must_stay(each: Stored, job: CleaningJob) -> bool:
    header = each.header
    if header is None or header.producer_id not in job.producers:
        return False
    producer = job.producers[header.producer_id]
    if producer.last_data_offset >= 0:
        return header.last_offset == producer.last_data_offset
    return header.is_control and header.producer_epoch == producer.epoch


# Logs of every kind


class Writer:
    """Appends what a leader of any age might have sent: batches of all formats, of all kinds of producers."""

    def __init__(self, log: Log, random: Random) -> None:
        self.log = log
        self.random = random
        self.sequences = dict.fromkeys(range(1, 6), 0)
        self.open: set[int] = set()
        self.keys = random.choice([3, 10, 100])
        self.with_nulls = random.random() < 0.3
        self.with_old_formats = random.random() < 0.5
        self.count_max = random.choice([1, 4, 30, 300])

    def append(self) -> None:
        random, log = self.random, self.log
        if self.open and random.random() < 0.3:
            self._end(random.choice(sorted(self.open)))
            return
        base_offset = log.log_end_offset + (random.randrange(4) if random.random() < 0.1 else 0)
        made = [self._record() for _ in range(random.randint(1, self.count_max))]
        if self.with_old_formats and random.random() < 0.3:
            content = self._old(base_offset, made)
        else:
            content = self._batch(base_offset, made)
        log.appends.append_as_follower(memoryview(bytearray(content)), now_ms=NOW_MS)

    def _batch(self, base_offset: int, made: list[RecordData]) -> bytes:
        random = self.random
        fields: dict[str, object] = {}
        producer_id = random.randrange(-4, 6)
        if producer_id > 0:
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": self.sequences[producer_id]}
            self.sequences[producer_id] += len(made)
            if producer_id > 2:
                fields["is_transactional"] = True
                self.open.add(producer_id)
        return build_batch(
            made,
            base_offset=base_offset,
            compression=random.choice(list(Compression)),
            timestamp_type=random.choice(list(TimestampType)),
            leader_epoch=0,
            **fields,  # type: ignore[arg-type]
        )

    def _old(self, base_offset: int, made: list[RecordData]) -> bytes:
        random = self.random
        magic = random.randrange(2)
        codec = random.choice([Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
        records = [
            Record(base_offset + number, record.timestamp if magic else -1, record.key, record.value, [])
            for number, record in enumerate(made)
        ]
        return build_message_set(records, magic=magic, compression=codec)

    def _record(self) -> RecordData:
        random = self.random
        key = b"k%d" % random.randrange(self.keys)
        value = None if random.random() < 0.15 else random.randbytes(random.choice([0, 1, 20, 63, 64, 300]))
        headers = [("h", None), ("", b"x")] if random.random() < 0.1 else []
        timestamp = NOW_MS + random.choice([-1, 1]) * random.choice([0, 1, 70, 10**4, 10**7])
        is_null = self.with_nulls and random.random() < 0.1
        return RecordData(timestamp, None if is_null else key * random.choice([1, 1, 1, 30]), value, headers)

    def _end(self, producer_id: int) -> None:
        content = bytearray(
            build_marker(
                TransactionMarker(self.random.choice([ControlType.ABORT, ControlType.COMMIT]), 0),
                producer_id=producer_id,
                producer_epoch=0,
                now_ms=NOW_MS,
            )
        )
        content[:8] = self.log.log_end_offset.to_bytes(8)
        content[12:16] = bytes(4)
        self.log.appends.append_as_follower(memoryview(content), now_ms=NOW_MS)
        self.open.discard(producer_id)


def visible(stored: list[Stored], start_offset: int) -> dict[bytes, bytes | None]:
    """What a consumer that reads committed records has in its table at the end."""
    aborted = _aborted(stored)
    table = {
        record.key: record.value
        for place, each in enumerate(stored)
        if not each.is_marker and place not in aborted
        for record in each.records
        if record.key is not None and record.offset >= start_offset
    }
    return {key: value for key, value in table.items() if value is not None}


def live_a_life(directory: Path, seed: int) -> int:
    """How many passes it has seen."""
    random = Random(seed)
    config = dataclasses.replace(CONFIG, segment_bytes=random.choice([700, 4096, 40_000]), segment_index_bytes=40_000)
    memory = random.choice([1 << 20, 1 << 20, 24 * 200, 24 * 20, 24 * 3])
    broker = Broker(directory, config, memory=memory)
    io_buffer_size = random.choice([0, 20_000, 1 << 19])
    broker.cleaning.reconfigure(dataclasses.replace(broker.cleaning.settings, io_buffer_size=io_buffer_size))
    log = broker.log()
    log.reconfigure(config)
    writer = Writer(log, random)
    # Anywhere, or no further than all is clean: an older value behind a tombstone must not come back then.
    jumps, goes_back = random.random() < 0.2, random.random() < 0.4
    now_ms, passes = NOW_MS, 0
    for _ in range(random.randint(1, 5)):
        for _ in range(random.randint(1, 25)):
            writer.append()
        commit_and_roll(log)
        if random.random() < 0.15:
            log.delete_records_before(random.randint(log.log_start_offset, log.last_stable_offset))
        for _ in range(random.randint(1, 4)):
            now_ms += random.choice([0, HOUR_MS, 2 * HORIZON_MS])
            if jumps or goes_back:
                clean_end = broker.cleaning._first_dirty.get(log.name, log.log_start_offset)
                end = log.log_end_offset if jumps else max(clean_end, log.log_start_offset)
                broker.cleaning._first_dirty[log.name] = random.randint(log.log_start_offset, end)
            picked = broker.cleaning.pick(now_ms)
            if picked is None:
                break
            passes += 1
            job = picked.job
            before = stored_in(log)
            table = visible(before, log.log_start_offset)
            result = clean(job, broker.files)
            if memory > 24 * 1000:
                assert result.end_offset == job.segments[-1].next_offset
            broker.cleaning.make_durable(picked)
            assert finish_pass(broker.cleaning, picked, result, now_ms=now_ms)
            after = stored_in(log)
            check_pass(before, after, job, result)
            assert jumps or visible(after, log.log_start_offset) == table
            broker.manager.remove_deleted(now_ms)
    check_reopening(directory, config, broker, log)
    return passes


def check_reopening(directory: Path, config: object, broker: Broker, log: Log) -> None:
    """What a start finds that has nothing but the log files is what the passes have left."""
    content = [each.content for each in stored_in(log)]
    facts = (log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    sequences = {
        producer_id: (entry.epoch, entry.last_sequence, entry.last_data_offset)
        for producer_id, entry in log.producer_state.producers.items()
    }
    broker.manager.checkpoint_log_starts()
    broker.manager.checkpoint_high_watermarks()
    broker.manager.directories.unlock()
    for path in [*log.directory.iterdir(), directory / names.RECOVERY_POINT_CHECKPOINT]:
        if path.suffix not in (".log", ".metadata"):
            path.unlink()
    again = Broker(directory, config).log()
    assert [each.content for each in stored_in(again)] == content
    assert (again.log_start_offset, again.log_end_offset, again.last_stable_offset) == facts
    assert {
        producer_id: (entry.epoch, entry.last_sequence, entry.last_data_offset)
        for producer_id, entry in again.producer_state.producers.items()
    } == sequences


@pytest.mark.parametrize("seed", range(40))
def test_pass_keeps_the_same_records_as_a_model_with_dictionaries(tmp_path: Path, seed: int) -> None:
    live_a_life(tmp_path, seed)


@pytest.mark.parametrize("seed", range(40, 50))
def test_pass_over_batches_that_open_too_far_keeps_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("storage.cleaning.cleaner.SHARED_PLAIN_SIZE_MAX", 100)
    monkeypatch.setattr("storage.batches.large_batches._KEYS_MAX", 7)
    monkeypatch.setattr("storage.batches.large_batches.PIECE_SIZE", 500)
    live_a_life(tmp_path, seed)
