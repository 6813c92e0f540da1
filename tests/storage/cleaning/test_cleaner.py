"""Cleaning against Kafka's own result, against a dumb twin, and at its edges: horizons, transactions, full maps."""

import dataclasses
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import pytest

from protocol.errors import Malformed
from protocol.records.batch import Record, batches, read_header, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from protocol.records.entries import entries, entry_records
from protocol.records.legacy import build_message_set
from storage.cleaning.cleaner import Throttle, clean
from storage.cleaning.cleaning_job import unstage
from storage.cleaning.log_cleaning import CleanerSettings
from storage.disk import names
from storage.log.log import Log
from storage.segments.segment import CorruptSegmentError
from tests.storage.builders import NAME, NOW_MS, QuickFiles, append, append_marker, batch, log_config, marker, read_all
from tests.storage.compacted import COMPACT, CONFIG, Broker, Kept, commit_and_roll, finish_pass, kept_in, keyed
from tests.support.entries import entry_crc_is_valid
from tests.support.faulty_files import FaultyFiles

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
DAY_MS = 86_400_000


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


# Kafka's own result


@pytest.mark.parametrize(
    ("topic", "delete_retention_ms", "second_pass_ms"),
    [("golden-compact", DAY_MS, 1795229387691), ("golden-compact-nodelete", 0, 1795229387714)],
)
def test_two_passes_write_the_same_bytes_as_kafka(
    tmp_path: Path, topic: str, delete_retention_ms: int, second_pass_ms: int
) -> None:
    golden = LOGS / f"{topic}-0"
    shutil.copytree(LOGS / "compact-before" / f"{topic}-0", tmp_path / f"{topic}-0")
    (tmp_path / names.CLEAN_SHUTDOWN).write_bytes(b"")
    broker = Broker(tmp_path, dataclasses.replace(CONFIG, delete_retention_ms=delete_retention_ms))
    log = broker.log((topic, 0))
    log.advance_high_watermark(139)
    assert broker.clean(1795229382562)
    for number in range(6):
        tail = keyed(*[(f"tail-{key:02d}", "x" * 140) for key in range(6)], timestamp_ms=1700000050000 + 1000 * number)
        if log.log_end_offset in (145, 169):
            log.appends.roll(NOW_MS)
        append(log, tail, leader_epoch=0)
    _put_golden_tail(log, golden)
    log.advance_high_watermark(175)
    assert broker.clean(second_pass_ms)
    ours = {path.name: path.read_bytes() for path in log.directory.glob("*.log")}
    theirs = {path.name: path.read_bytes() for path in golden.glob("*.log")}
    assert ours.keys() == theirs.keys()
    for name, content in theirs.items():
        assert list(map(without_zstd, batches_of(ours[name]))) == list(map(without_zstd, batches_of(content))), name
    log.close(NOW_MS)
    for path in golden.iterdir():
        if path.suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.PRODUCER_SNAPSHOT):
            assert (log.directory / path.name).read_bytes() == path.read_bytes(), path.name


def batches_of(content: bytes) -> list[bytes]:
    return [content[position : position + header.size] for position, header in batches(content)]


def without_zstd(content: bytes) -> object:
    """What two libraries make of the same bytes differs; the header but for length and CRC, and the records, do not."""
    header = read_header(content)
    if header.compression is not Compression.ZSTD:
        return content
    return header._replace(batch_length=0, crc=0), list(records(content, size_max=1 << 20))


def _put_golden_tail(log: Log, golden: Path) -> None:
    """The last batches as Kafka had them: those before are superseded, so their values do not matter."""
    log.truncation.truncate_to(163, now_ms=NOW_MS)
    for name in (145, 169):
        if name == 169:
            log.appends.roll(NOW_MS)
        content = (golden / names.segment_file(name, names.LOG)).read_bytes()
        log.appends.append_as_follower(memoryview(bytearray(content)), now_ms=NOW_MS)


# A dumb twin


@pytest.mark.parametrize("memory", [1 << 20, 24 * 12])
@pytest.mark.parametrize("seed", range(6))
def test_passes_keep_the_newest_record_of_each_key_in_order(tmp_path: Path, seed: int, memory: int) -> None:
    random = Random(seed)
    broker = Broker(tmp_path, memory=memory)
    log = broker.log()
    everything: Kept = []
    for _ in range(60):
        count = random.randint(1, 6)
        pairs = [
            (f"k{random.randrange(8)}", None if random.random() < 0.15 else "v" * random.randrange(90))
            for _ in range(count)
        ]
        codec = random.choice(list(Compression))
        first = append(log, keyed(*pairs, compression=codec)).first_offset
        everything += [
            (first + number, key.encode(), None if value is None else value.encode())
            for number, (key, value) in enumerate(pairs)
        ]
        if random.random() < 0.1:
            commit_and_roll(log)
            while broker.clean():
                pass
    commit_and_roll(log)
    passes = 0
    while broker.clean():
        passes += 1
        assert passes < 50
    newest = {key: offset for offset, key, _ in everything}
    expected = [item for item in everything if newest[item[1]] == item[0]]
    found = kept_in(log)
    if memory > 1000:
        assert found == expected
    assert [item for item in found if newest[item[1]] == item[0]] == expected
    assert found == [item for item in everything if item in found]
    for offset in range(log.log_end_offset):
        fetched = log.reader.read(offset, 1, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert fetched is not None
    log.close(NOW_MS)
    broker.manager.directories.unlock()
    assert kept_in(Broker(tmp_path).log()) == found


def test_newer_record_is_synced_before_the_older_one_is_removed(tmp_path: Path) -> None:
    files = FaultyFiles()
    broker = Broker(tmp_path)
    log = broker.log()
    append(log, keyed(("a", "1")))
    commit_and_roll(log)
    assert broker.clean()
    append(log, keyed(("a", "2")))
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    clean(picked.job, files)
    synced = [names.segment_file(1, names.LOG)]
    synced += [names.segment_file(0, suffix) + names.CLEANED for suffix in (names.LOG, *names.INDEX_SUFFIXES[:2])]
    assert {f"sync {name}" for name in synced} <= set(files.calls)
    assert files.calls[-1] == f"sync directory {log.directory.name}"
    assert not [call for call in files.calls if call.startswith("rename")]


def test_pass_over_gaps_ends_at_the_end_of_the_last_segment(broker: Broker) -> None:
    log = broker.log()
    for number in range(40):
        append(log, keyed(("same", str(number))))
    append(log, keyed(("x", "1"), ("y", "2"), ("x", "3")))
    commit_and_roll(log)
    assert broker.clean()
    assert kept_in(log) == [(39, b"same", b"39"), (41, b"y", b"2"), (42, b"x", b"3")]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 43, 43, 43)
    for offset in range(43):
        first = next(iter(read_all(log, offset)))
        assert first[0] == (39 if offset <= 39 else 40)


@pytest.mark.parametrize("seed", range(4))
def test_several_passes_with_a_small_map_equal_one_with_a_large_map(tmp_path: Path, seed: int) -> None:
    finals, passes = [], []
    for memory in (1 << 20, 24 * 20, 24 * 4):
        random = Random(seed)
        broker = Broker(tmp_path / str(memory), memory=memory)
        log = broker.log()
        for _ in range(40):
            pairs = [
                (f"k{random.randrange(30)}", None if random.random() < 0.1 else str(random.random()))
                for _ in range(random.randint(1, 12))
            ]
            append(log, keyed(*pairs, compression=random.choice(list(Compression))))
        commit_and_roll(log)
        count = 0
        while broker.clean():
            count += 1
            assert count < 500
        finals.append(kept_in(log))
        passes.append(count)
    assert finals[0] == finals[1] == finals[2]
    assert 1 == passes[0] < passes[1] < passes[2]


# Old formats


def legacy(magic: int, first_offset: int, *pairs: tuple[str, str | None], codec: Compression) -> bytes:
    made = [
        Record(
            first_offset + number,
            NOW_MS if magic else -1,
            key.encode(),
            None if value is None else value.encode(),
            [],
        )
        for number, (key, value) in enumerate(pairs)
    ]
    return build_message_set(made, magic=magic, compression=codec)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_passes_keep_the_newest_record_in_mixed_formats_and_codecs(tmp_path: Path, codec: Compression) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    content = legacy(0, 0, ("a", "0"), ("b", "1"), ("c", "2"), codec=codec)
    content += legacy(1, 3, ("a", "3"), ("d", None), ("b", "5"), codec=codec)
    newer = bytearray(build_batch([RecordData(NOW_MS, b"b", b"6"), RecordData(NOW_MS, b"e", b"7")], compression=codec))
    newer[:8] = (6).to_bytes(8)
    (directory / names.segment_file(0, names.LOG)).write_bytes(content + newer)
    broker = Broker(tmp_path)
    log = broker.log()
    assert log.log_end_offset == 8
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, broker.files)
    assert (result.records_read, result.records_kept) == (8, 5)
    assert finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    stored = (directory / names.segment_file(0, names.LOG)).read_bytes()
    found = [
        (entry.header.magic, record.offset, record.key, record.value, entry.header.compression)
        for entry in entries(stored)
        for record in entry_records(stored, entry.position, size_max=1 << 20)
    ]
    assert found == [
        (0, 2, b"c", b"2", codec),
        (1, 3, b"a", b"3", codec),
        (1, 4, b"d", None, codec),
        (2, 6, b"b", b"6", codec),
        (2, 7, b"e", b"7", codec),
    ]
    assert all(entry_crc_is_valid(stored, entry) for entry in entries(stored))


@pytest.mark.parametrize(("days_between", "is_gone"), [(1, True), (0.9, False)])
def test_tombstones_of_old_formats_expire_by_the_age_of_their_segment(
    tmp_path: Path, days_between: float, is_gone: bool
) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    path = directory / names.segment_file(0, names.LOG)
    path.write_bytes(legacy(1, 0, ("a", None), ("b", "v" * 3000), codec=Compression.NONE))
    broker = Broker(tmp_path)
    log = broker.log()
    log.appends.roll(NOW_MS)
    append(log, keyed(("c", "v" * 3000)))
    commit_and_roll(log)
    assert broker.clean()
    assert [key for _, key, _ in legacy_kept(path)] == [b"a", b"b"]
    modified_ms = NOW_MS - int(days_between * DAY_MS)
    os.utime(path, ns=(0, modified_ms * 10**6))
    os.utime(directory / names.segment_file(2, names.LOG), ns=(0, NOW_MS * 10**6))
    append(log, keyed(("d", "1")))
    commit_and_roll(log)
    assert broker.clean()
    assert [key for _, key, _ in legacy_kept(path)] == ([b"b"] if is_gone else [b"a", b"b"])
    assert log.segments.first.on_disk.modified_ms == modified_ms


def legacy_kept(path: Path) -> Kept:
    content = path.read_bytes()
    return [
        (record.offset, record.key, record.value)
        for entry in entries(content)
        for record in entry_records(content, entry.position, size_max=1 << 20)
    ]


# Tombstones


def test_first_pass_sets_the_delete_horizon_and_a_later_one_removes_tombstones(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "1"), ("b", "2")))
    append(log, keyed(("a", None)))
    commit_and_roll(log)
    assert broker.clean(NOW_MS)
    assert kept_in(log) == [(1, b"b", b"2"), (2, b"a", None)]
    stamped = [header for _, content in read_all(log) for _, header in batches(content)][-1]
    assert stamped.delete_horizon_ms == NOW_MS + DAY_MS
    (record,) = [r for _, content in read_all(log, 2) for r in records(content, size_max=1 << 20)]
    assert record.timestamp == NOW_MS
    append(log, keyed(("c", "3")))
    commit_and_roll(log)
    assert broker.clean(NOW_MS + DAY_MS - 1)
    assert (2, b"a", None) in kept_in(log)
    append(log, keyed(("c", "4" * 500)))
    commit_and_roll(log)
    assert broker.clean(NOW_MS + DAY_MS)
    assert [key for _, key, _ in kept_in(log)] == [b"b", b"c"]


# Transactions and producers


def test_aborted_data_is_removed_before_its_marker(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "old")))
    append(log, keyed(("a", "aborted"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 1))
    append(log, keyed(("b", "committed"), producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.COMMIT, 2))
    commit_and_roll(log)
    assert broker.clean()
    # The aborted batch stays as an empty one: it has its producer's last sequence.
    assert kept_in(log) == [(0, b"a", b"old"), (3, b"b", b"committed")]
    assert [header.is_control for _, content in read_all(log) for _, header in batches(content)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert [aborted.first_offset for aborted in log.reader.aborted_transactions(0, 5)] == [1]
    assert append(
        log, keyed(("x", "1"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    ).is_duplicate


def test_records_from_an_open_transaction_on_are_not_cleaned(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "1")))
    append(log, keyed(("a", "2"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    commit_and_roll(log)
    assert not broker.clean()
    append_marker(log, marker(ControlType.COMMIT, 1))
    log.advance_high_watermark(3)
    assert broker.clean()
    assert kept_in(log) == [(1, b"a", b"2")]


def test_earlier_abort_of_a_producer_keeps_its_later_data(broker: Broker) -> None:
    log = broker.log()
    fields: dict[str, object] = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    append(log, keyed(("a", "aborted"), base_sequence=0, **fields))
    append_marker(log, marker(ControlType.ABORT, 1))
    commit_and_roll(log)
    assert broker.clean()
    append(log, keyed(("a", "1"), ("a", "2"), base_sequence=1, **fields))
    append_marker(log, marker(ControlType.COMMIT, 1))
    commit_and_roll(log)
    assert broker.clean()
    assert kept_in(log) == [(3, b"a", b"2")]


def read_committed(log: Log) -> Kept:
    """Return what a read_committed consumer returns: it drops aborted transactions for each fetch, as Kafka's does."""
    found: Kept = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        fetched = log.reader.read(offset, 300, upper_bound_offset=log.last_stable_offset, min_one_batch=True)
        assert fetched is not None
        pieces = [(position, header) for position, header in batches(fetched.records)]
        end = pieces[-1][1].next_offset
        pending = sorted(log.reader.aborted_transactions(offset, end), key=lambda aborted: aborted.first_offset)
        ongoing: set[int] = set()
        for position, header in pieces:
            while pending and pending[0].first_offset <= header.last_offset:
                ongoing.add(pending.pop(0).producer_id)
            if header.is_control:
                ongoing.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ongoing):
                found += [(r.offset, r.key, r.value) for r in records(fetched.records, position, size_max=1 << 20)]
        offset = end
    return found


@pytest.mark.parametrize("seed", range(8))
def test_read_committed_returns_the_same_keys_before_and_after_a_pass(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    broker = Broker(tmp_path)
    log = broker.log()
    sequences = dict.fromkeys(range(1, 5), 0)
    is_open = set[int]()
    now_ms = NOW_MS
    for step in range(150):
        producer_id = random.randrange(5)
        if producer_id in is_open and random.random() < 0.4:
            control = random.choice([ControlType.ABORT, ControlType.COMMIT])
            append_marker(log, marker(control, producer_id))
            is_open.discard(producer_id)
            continue
        pairs = [(f"k{random.randrange(6)}", f"{step}.{number}") for number in range(random.randint(1, 3))]
        if producer_id == 0:
            append(log, keyed(*pairs))
            continue
        sequence = sequences[producer_id]
        fields: dict[str, object] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        append(log, keyed(*pairs, is_transactional=True, **fields))
        sequences[producer_id] += len(pairs)
        is_open.add(producer_id)
        if random.random() < 0.15:
            commit_and_roll(log)
            before = read_committed(log)
            # Days may lie between, so that markers go too.
            now_ms += random.choice([0, 2 * DAY_MS])
            while broker.clean(now_ms):
                pass
            _assert_same_to_a_reader(before, read_committed(log))
    for producer_id in sorted(is_open):
        append_marker(log, marker(ControlType.ABORT, producer_id))
    commit_and_roll(log)
    before = read_committed(log)
    for _ in range(3):
        now_ms += 2 * DAY_MS
        append(log, keyed(("last", str(now_ms))))
        commit_and_roll(log)
        assert broker.clean(now_ms)
    after = [item for item in read_committed(log) if item[1] != b"last"]
    _assert_same_to_a_reader(before, after)
    assert len(after) == len({key for _, key, _ in after})
    # Sequences survive, although no snapshot does.
    log.close(NOW_MS)
    broker.manager.directories.unlock()
    for path in log.directory.glob(f"*{names.PRODUCER_SNAPSHOT}"):
        path.unlink()
    log = Broker(tmp_path).log()
    for producer_id, sequence in sequences.items():
        if sequence:
            entry = log.producer_state.producers[producer_id]
            assert (entry.epoch, entry.last_sequence) == (0, sequence - 1)


def _assert_same_to_a_reader(before: Kept, after: Kept) -> None:
    """Nothing new, the same order, and the same newest value of each key."""
    assert [item for item in before if item in set(after)] == after
    assert {key: value for _, key, value in after} == {key: value for _, key, value in before}


# What is cleaned


def test_active_segment_and_segments_within_min_lag_are_not_cleaned(tmp_path: Path) -> None:
    config = log_config(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=1000)
    broker = Broker(tmp_path)
    log = broker.log()
    log.reconfigure(config)
    append(log, keyed(("a", "1")))
    commit_and_roll(log)
    append(log, keyed(("a", "2"), timestamp_ms=NOW_MS + 5000))
    commit_and_roll(log)
    append(log, keyed(("a", "3"), timestamp_ms=NOW_MS + 5000))
    assert not broker.clean(NOW_MS + 999)
    assert broker.clean(NOW_MS + 1001)
    assert len(kept_in(log)) == 3  # the first segment alone was cleaned, and has nothing newer in itself
    assert broker.clean(NOW_MS + 7000)
    assert kept_in(log) == [(1, b"a", b"2"), (2, b"a", b"3")]


def test_log_beyond_max_lag_is_cleaned_below_the_ratio(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(*[(f"k{number}", "v" * 300) for number in range(10)]))
    commit_and_roll(log)
    assert broker.clean()
    append(log, keyed(("k0", "new")))
    commit_and_roll(log)
    log.reconfigure(log_config(cleanup_policy=COMPACT))
    assert not broker.clean(NOW_MS + 5000)
    log.reconfigure(log_config(cleanup_policy=COMPACT, max_compaction_lag_ms=1000))
    assert not broker.clean(NOW_MS + 1000)
    assert broker.clean(NOW_MS + 5000)


def test_next_pass_begins_at_the_checkpointed_first_dirty_offset(tmp_path: Path, broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "1")))
    commit_and_roll(log)
    assert broker.clean()
    assert (tmp_path / names.CLEANER_CHECKPOINT).read_text() == "0\n1\ntopic 0 1\n"
    assert not broker.clean()
    broker.manager.close(NOW_MS)
    assert not Broker(tmp_path).clean()


# Aborted and failed passes


def test_result_is_discarded_after_a_truncation_of_its_log(broker: Broker) -> None:
    log = broker.log()
    for number in range(3):
        append(log, keyed(("a", str(number))))
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    assert broker.cleaning.pick(NOW_MS) is None
    result = clean(picked.job, broker.files)
    log.truncation.truncate_to(2, now_ms=NOW_MS)
    assert not finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    assert len(kept_in(log)) == 2
    assert not [path for path in log.directory.iterdir() if path.suffix in (names.SWAP, names.CLEANED)]


def test_damaged_log_does_not_stop_the_cleaning_of_others(broker: Broker) -> None:
    for name in (NAME, ("other", 0)):
        log = broker.log(name)
        append(log, keyed(("a", "1")))
        append(log, keyed(("a", "2" * 50 if name == NAME else "2")))
        commit_and_roll(log)
    path = broker.log().directory / names.segment_file(0, names.LOG)
    content = bytearray(path.read_bytes())
    content[16] = 9
    path.write_bytes(content)
    cleaned = []
    while (picked := broker.cleaning.pick(NOW_MS)) is not None:
        try:
            finish_pass(broker.cleaning, picked, clean(picked.job, broker.files), now_ms=NOW_MS)
            cleaned.append(picked.log.topic)
        except Exception as error:
            broker.cleaning.fail(picked, error)
    assert cleaned == ["other"]
    assert broker.cleaning.uncleanable == {NAME}


def test_unstaging_removes_cleaned_files_only(tmp_path: Path) -> None:
    kept = {
        names.segment_file(0, suffix) + stage
        for suffix in (names.LOG, names.OFFSET_INDEX)
        for stage in ("", names.SWAP)
    }
    for name in (*kept, *(names.segment_file(base, names.LOG) + names.CLEANED for base in (0, 5))):
        (tmp_path / name).touch()
    unstage(QuickFiles(), str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_records_without_a_key_are_dropped_and_counted(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    log.reconfigure(log_config())
    append(log, memoryview(bytearray(build_batch([RecordData(NOW_MS, None, b"x"), RecordData(NOW_MS, b"k", b"y")]))))
    log.reconfigure(CONFIG)
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, broker.files)
    assert result.records_without_key == 1
    assert finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    assert kept_in(log) == [(1, b"k", b"y")]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_pass_runs_in_a_separate_process(broker: Broker, is_damaged: bool) -> None:
    log = broker.log()
    for number in range(3):
        append(log, keyed(("a", str(number))))
    commit_and_roll(log)
    if is_damaged:
        with (log.directory / names.segment_file(0, names.LOG)).open("r+b") as file:
            file.write(bytes(16) + b"\x09")
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        running = pool.submit(clean, picked.job)
        if is_damaged:
            with pytest.raises(CorruptSegmentError, match="at position 0") as raised:
                running.result()
            broker.cleaning.fail(picked, raised.value)
            assert broker.cleaning.uncleanable == {NAME}
        else:
            assert finish_pass(broker.cleaning, picked, running.result(), now_ms=NOW_MS)
            assert kept_in(log) == [(2, b"a", b"2")]


@pytest.mark.parametrize("rate", [50_000.0, 1_000_000.0])
def test_pass_does_not_exceed_the_throttle(broker: Broker, monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """Reading for the map, reading and writing for the copy: all of it counts."""
    now_s = [0.0]
    monkeypatch.setattr(broker.files, "monotonic_s", lambda: now_s[0])
    log = broker.log()
    for number in range(200):
        append(log, keyed((f"k{number % 150}", "v" * 400)))
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(broker.files, "sleep", sleep)
    result = clean(dataclasses.replace(picked.job, bytes_per_second_max=rate), broker.files)
    assert result.bytes_read + result.bytes_kept == pytest.approx(rate * now_s[0], rel=0.1)


def test_batch_larger_than_the_buffers_is_cleaned(broker: Broker) -> None:
    log = broker.log()
    log.reconfigure(dataclasses.replace(CONFIG, segment_bytes=1 << 20))
    for number in range(3):
        append(log, keyed(("a", "v" * 50_000), (f"b{number}", "w")))
    commit_and_roll(log)
    broker.cleaning.reconfigure(CleanerSettings(dedupe_buffer_size=1 << 20, io_buffer_size=0))
    assert broker.clean()
    assert [offset for offset, _, _ in kept_in(log)] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("position", "content", "message"),
    [
        (8, b"\x7f\xff\xff\xff", "at position 0: a batch of 2147483659 bytes"),
        (8, b"\x00\x00\x00\x01", "at position 0"),
        (70, b"\xff", "CRC"),
    ],
)
def test_pass_fails_before_a_damaged_batch_is_rewritten(
    broker: Broker, position: int, content: bytes, message: str
) -> None:
    log = broker.log()
    append(log, keyed(("a", "1"), ("a", "2")))
    commit_and_roll(log)
    with (log.directory / names.segment_file(0, names.LOG)).open("r+b") as file:
        file.seek(position)
        file.write(content)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    with pytest.raises((CorruptSegmentError, Malformed), match=message) as raised:
        clean(picked.job, broker.files)
    broker.cleaning.fail(picked, raised.value)
    assert broker.cleaning.uncleanable == {NAME}
    assert not list(log.directory.glob("*" + names.CLEANED))


def test_batch_that_keeps_all_records_is_copied_byte_for_byte(broker: Broker) -> None:
    log = broker.log()
    for codec in Compression:
        append(log, keyed((f"{codec}", "1"), (f"{codec}2", "2"), compression=codec))
    commit_and_roll(log)
    before = list(read_all(log))
    assert broker.clean()
    assert list(read_all(log)) == before


def test_segments_without_kept_records_become_one_empty_segment(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "v" * 3000)))
    append(log, keyed(("b", "v" * 3000)))
    append(log, keyed(("a", "1"), ("b", "2")))
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, broker.files)
    assert [(segment.base_offset, segment.size == 0) for segment in result.segments] == [(0, True), (1, False)]
    assert finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    assert [offset for offset, _, _ in kept_in(log)] == [2, 3]


def test_batch_with_a_delete_horizon_keeps_it(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", None)))
    commit_and_roll(log)
    assert broker.clean()
    log.reconfigure(dataclasses.replace(CONFIG, delete_retention_ms=1))
    append(log, keyed(("b", "1")))
    commit_and_roll(log)
    assert broker.clean(NOW_MS + DAY_MS - 1)
    (content,) = [content for offset, content in read_all(log) if offset == 0]
    assert read_header(content).delete_horizon_ms == NOW_MS + DAY_MS


def test_throttle_sleeps_to_keep_the_average_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    files = QuickFiles()
    monkeypatch.setattr(files, "sleep", slept.append)
    throttle = Throttle(1000, files)
    throttle.passed(5)
    throttle.passed(1000)
    assert slept == [pytest.approx(1.005, abs=0.1)]


def test_batch_helper_writes_keys() -> None:
    assert next(records(batch(1), size_max=100)).key == b"key"
