"""Cleaning against Kafka's own result, against a dumb twin, and at its edges: horizons, transactions, full maps."""

import dataclasses
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import pytest

from protocol.records.batch import batches, read_header, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from storage import names
from storage.checkpoints import TopicPartition
from storage.cleaner import Throttle, clean, unstage
from storage.log import Log
from storage.segment import CorruptSegmentError
from tests.storage.builders import NAME, NOW_MS, QuickFiles, append, append_marker, batch, log_config, marker, read_all
from tests.storage.compacted import COMPACT, CONFIG, Broker, Kept, commit_and_roll, kept_in, keyed

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
DAY_MS = 86_400_000


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


# Kafka's own result


@pytest.mark.parametrize(
    ("topic", "delete_retention_ms", "second_pass_ms"),
    [("golden-compact", DAY_MS, 1795229387691), ("golden-compact-nodelete", 0, 1795229387714)],
)
def test_two_passes_make_the_bytes_that_kafka_made(
    tmp_path: Path, topic: str, delete_retention_ms: int, second_pass_ms: int
) -> None:
    golden = LOGS / f"{topic}-0"
    shutil.copytree(LOGS / "compact-before" / f"{topic}-0", tmp_path / f"{topic}-0")
    (tmp_path / names.CLEAN_SHUTDOWN).write_bytes(b"")
    broker = Broker(tmp_path, dataclasses.replace(CONFIG, delete_retention_ms=delete_retention_ms))
    log = broker.log(TopicPartition(topic, 0))
    log.advance_high_watermark(139)
    assert broker.clean(1795229382562)
    for number in range(6):
        tail = keyed(*[(f"tail-{key:02d}", "x" * 140) for key in range(6)], timestamp_ms=1700000050000 + 1000 * number)
        if log.log_end_offset in (145, 169):
            log.roll(NOW_MS)
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
    log.truncate_to(163, now_ms=NOW_MS)
    for name in (145, 169):
        if name == 169:
            log.roll(NOW_MS)
        content = (golden / names.segment_file(name, names.LOG)).read_bytes()
        log.append_as_follower(memoryview(bytearray(content)), now_ms=NOW_MS)


# A dumb twin


@pytest.mark.parametrize("memory", [1 << 20, 24 * 12])
@pytest.mark.parametrize("seed", range(6))
def test_passes_keep_the_newest_of_each_key_in_order(tmp_path: Path, seed: int, memory: int) -> None:
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
        fetched = log.read(offset, 1, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert fetched is not None
    log.close(NOW_MS)
    broker.manager.unlock()
    assert kept_in(Broker(tmp_path).log()) == found


# Tombstones


def test_tombstones_are_stamped_first_and_go_after_their_horizon(broker: Broker) -> None:
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


def test_aborted_data_goes_and_markers_stay_until_it_is_gone(broker: Broker) -> None:
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
    assert [aborted.first_offset for aborted in log.aborted_transactions(0, 5)] == [1]
    assert append(
        log, keyed(("x", "1"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    ).is_duplicate


def test_an_open_transaction_holds_the_cleaner_back(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "1")))
    append(log, keyed(("a", "2"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    commit_and_roll(log)
    assert not broker.clean()
    append_marker(log, marker(ControlType.COMMIT, 1))
    log.advance_high_watermark(3)
    assert broker.clean()
    assert kept_in(log) == [(1, b"a", b"2")]


# What is cleaned


def test_the_active_segment_and_young_ones_stay_whole(tmp_path: Path) -> None:
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


def test_max_lag_forces_a_pass_below_the_ratio(broker: Broker) -> None:
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


def test_the_checkpoint_says_where_to_go_on(tmp_path: Path, broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "1")))
    commit_and_roll(log)
    assert broker.clean()
    assert (tmp_path / names.CLEANER_CHECKPOINT).read_text() == "0\n1\ntopic 0 1\n"
    assert not broker.clean()
    broker.manager.close(NOW_MS)
    assert not Broker(tmp_path).clean()


# Aborted and failed passes


def test_a_result_for_a_log_that_was_truncated_is_thrown_away(broker: Broker) -> None:
    log = broker.log()
    for number in range(3):
        append(log, keyed(("a", str(number))))
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    assert broker.cleaning.pick(NOW_MS) is None
    result = clean(picked.job, broker.files)
    log.truncate_to(2, now_ms=NOW_MS)
    assert not broker.cleaning.finish(picked, result, now_ms=NOW_MS)
    assert len(kept_in(log)) == 2
    broker.cleaning.give_back(picked)
    assert not [path for path in log.directory.iterdir() if path.suffix in (names.SWAP, names.CLEANED)]


def test_a_damaged_log_is_left_alone_and_others_are_cleaned(broker: Broker) -> None:
    for name in (NAME, TopicPartition("other", 0)):
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
            broker.cleaning.finish(picked, clean(picked.job, broker.files), now_ms=NOW_MS)
            cleaned.append(picked.log.topic)
        except Exception as error:
            broker.cleaning.fail(picked, error)
    assert cleaned == ["other"]
    assert broker.cleaning.uncleanable == {NAME}


def test_unstaging_can_be_cut_short_anywhere(tmp_path: Path) -> None:
    for name in ("0.log", "0.index", "5.log"):
        number, suffix = name.split(".")
        (tmp_path / (names.segment_file(int(number), "." + suffix) + names.SWAP)).write_bytes(b"")
    unstage(QuickFiles(), str(tmp_path))
    assert not list(tmp_path.iterdir())


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
    assert broker.cleaning.finish(picked, result, now_ms=NOW_MS)
    assert kept_in(log) == [(1, b"k", b"y")]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_pass_runs_in_a_process_of_its_own(broker: Broker, is_damaged: bool) -> None:
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
            assert broker.cleaning.finish(picked, running.result(), now_ms=NOW_MS)
            assert kept_in(log) == [(2, b"a", b"2")]


def test_throttle() -> None:
    slept: list[float] = []
    throttle = Throttle(1000, slept.append)
    throttle.passed(5)
    throttle.passed(1000)
    assert slept == [pytest.approx(1.005, abs=0.1)]


def test_batch_helper_is_keyed() -> None:
    assert next(records(batch(1), size_max=100)).key == b"key"
