"""Torn tails, garbage, lost and damaged files: a load repairs them, says so, and keeps everything before the damage."""

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from config.log_config import LogConfig
from protocol.records.batch import Record
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from protocol.records.legacy import build_message_set
from storage.cleaning.cleaner import clean
from storage.disk import names
from storage.disk.files import OpenFile
from storage.log.log import Log
from storage.recovery import recovery
from storage.recovery.log_loader import LoadProgress
from tests.sim.disk import DiskFiles, OldNames, PowerCut, SimulatedDisk
from tests.storage.builders import (
    NOW_MS,
    Damage,
    QuickFiles,
    append,
    append_marker,
    batch,
    create_log,
    load_log,
    log_config,
    log_options,
    marker,
    read_all,
)
from tests.storage.compacted import CONFIG as COMPACTED
from tests.storage.compacted import Broker, commit_and_roll, finish_pass, kept_in, keyed

CONFIG = log_config(segment_bytes=500, index_interval_bytes=100)
COUNT = 12


@pytest.fixture
def filled(tmp_path: Path) -> Log:
    log = create_log(tmp_path, CONFIG)
    for number in range(COUNT):
        append(log, batch(1, size=20, producer_id=3, sequence=number), leader_epoch=number // 5)
    assert log.segment_count == 3
    return log


def last_file(log: Log, suffix: str = names.LOG) -> Path:
    return sorted(log.directory.glob(f"*{suffix}"))[-1]


def offsets(log: Log) -> list[int]:
    return [offset for offset, _ in read_all(log)]


def at(offset: int, records: memoryview) -> memoryview:
    """The batch as a leader sends it that has stored it at `offset`."""
    records[:8] = offset.to_bytes(8)
    return records


def test_log_truncated_at_any_byte_keeps_its_whole_batches(filled: Log, tmp_path: Path) -> None:
    path = last_file(filled)
    content = path.read_bytes()
    base_offset = int(path.stem)
    size = len(batch(1, size=20, producer_id=3, sequence=0))
    for kept in range(len(content)):
        path.write_bytes(content[:kept])
        log = load_log(tmp_path, CONFIG)
        assert log.log_end_offset == base_offset + kept // size
        assert path.stat().st_size == kept - kept % size


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, bytes(range(100)), b"x"])
def test_garbage_after_the_last_batch_is_truncated(filled: Log, tmp_path: Path, garbage: bytes) -> None:
    path = last_file(filled)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(garbage)
    damage = Damage()
    log = load_log(tmp_path, CONFIG, progress=damage)
    assert offsets(log) == list(range(COUNT))
    assert path.stat().st_size == size
    assert damage.texts[0].startswith(f"{path} at position {size}")
    assert f"cut {len(garbage)} bytes" in damage.texts[0]


def test_flipped_byte_in_a_batch_ends_the_log_before_it(filled: Log, tmp_path: Path) -> None:
    path = last_file(filled)
    content = path.read_bytes()
    base_offset = int(path.stem)
    uncovered = set(range(8)) | set(range(12, 16))  # base offset and leader epoch stand outside the CRC
    for position in range(len(batch(1, size=20, producer_id=3, sequence=0))):
        damaged = bytearray(content)
        damaged[position] ^= 0x80 if position < 8 else 1
        path.write_bytes(damaged)
        log = load_log(tmp_path, CONFIG)
        if position not in uncovered:
            assert log.log_end_offset == base_offset
            assert path.stat().st_size == 0


def test_damage_in_an_older_segment_drops_the_later_ones(filled: Log, tmp_path: Path) -> None:
    first, second, third = sorted(filled.directory.glob("*.log"))
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    damage = Damage()
    log = load_log(tmp_path, CONFIG, progress=damage)
    assert log.log_end_offset == int(third.stem) - 1
    assert not third.exists()
    assert "and 1 later segments" in damage.texts[0]
    assert append(log, batch(1)).first_offset == int(third.stem) - 1
    assert first.exists()


def test_segments_below_the_recovery_point_are_not_scanned(filled: Log, tmp_path: Path) -> None:
    scanned: list[int] = []

    class Counting(LoadProgress):
        def on_bytes_scanned(self, size: int) -> None:
            scanned.append(size)

    load_log(tmp_path, CONFIG, recovery_point=COUNT, progress=Counting())
    assert sum(scanned) == last_file(filled).stat().st_size


def test_clean_start_scans_no_segment(filled: Log, tmp_path: Path) -> None:
    filled.close(NOW_MS)

    class Refusing(LoadProgress):
        def on_bytes_scanned(self, size: int) -> None:
            raise AssertionError("scanned after a clean stop")

        def on_damage(self, text: str) -> None:
            raise AssertionError(text)

    log = load_log(tmp_path, CONFIG, is_clean=True, progress=Refusing())
    assert offsets(log) == list(range(COUNT))
    assert log.durability.recovery_point == COUNT


def test_torn_log_is_repaired_despite_a_clean_marker(filled: Log, tmp_path: Path) -> None:
    filled.close(NOW_MS)
    path = last_file(filled)
    path.write_bytes(path.read_bytes()[:-3])
    damage = Damage()
    log = load_log(tmp_path, CONFIG, is_clean=True, progress=damage)
    assert offsets(log) == list(range(COUNT - 1))
    assert "although the stop was clean" in damage.texts[0]


def _delete(path: Path) -> None:
    path.unlink()


def _garble(path: Path) -> None:
    path.write_bytes(b"\x7f" * (path.stat().st_size + 1))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("spoil", [_delete, _garble, _empty])
@pytest.mark.parametrize("pattern", ["*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint"])
def test_missing_or_damaged_derived_files_are_rebuilt(
    filled: Log, tmp_path: Path, pattern: str, spoil: Callable[[Path], None], is_clean: bool
) -> None:
    filled.close(NOW_MS)
    for path in sorted(filled.directory.glob(pattern)):
        spoil(path)
    log = load_log(tmp_path, CONFIG, is_clean=is_clean)
    assert offsets(log) == list(range(COUNT))
    for offset in range(COUNT):
        fetched = log.reader.read(offset, 1, upper_bound_offset=COUNT, min_one_batch=True)
        assert fetched is not None
        assert int.from_bytes(fetched.records[:8], "big") == offset
    found = log.lookups.offset_for_timestamp(NOW_MS, upper_bound_offset=COUNT)
    assert found is not None
    assert found.offset == 0
    assert log.producer_state.producers[3].last_sequence == COUNT - 1
    assert list(log.leader_epochs.entries) == [(0, 0), (1, 5), (2, 10)]


class _CountingFiles(QuickFiles):
    """Counts what is read of log files."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        content = super().read(file, size, position)
        if file.path.endswith(names.LOG):
            self.bytes_read += len(content)
        return content


def test_rebuild_of_all_indexes_reads_every_byte_a_few_times(tmp_path: Path) -> None:
    """However many segments there are: what comes before one is not replayed for each of them."""
    config = log_config(segment_bytes=500)
    log = create_log(tmp_path, config)
    for number in range(100):
        append(log, batch(1, size=20, producer_id=3, sequence=number))
    log.close(NOW_MS)
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for path in log.directory.glob(pattern):
            path.unlink()
    files = _CountingFiles()
    log = load_log(tmp_path, config, log_options(files), is_clean=True)
    assert log.segment_count >= 20
    assert files.bytes_read < 4 * log.size
    assert log.producer_state.producers[3].last_sequence == 99


def test_rebuild_of_lost_epochs_reads_every_byte_once(filled: Log, tmp_path: Path) -> None:
    (filled.directory / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"")
    files = _CountingFiles()
    log = load_log(tmp_path, CONFIG, log_options(files))
    assert files.bytes_read == filled.size
    assert list(log.leader_epochs.entries) == [(0, 0), (1, 5), (2, 10)]


def test_only_one_clean_start_reads_a_log_for_its_epochs(tmp_path: Path) -> None:
    log = create_log(tmp_path, CONFIG)
    old = memoryview(bytearray(build_message_set([Record(0, NOW_MS, None, b"x" * 900, [])], magic=1)))
    log.appends.append_as_follower(old, now_ms=NOW_MS)
    log.close(NOW_MS)
    read = []
    for _ in range(2):
        files = _CountingFiles()
        load_log(tmp_path, CONFIG, log_options(files), is_clean=True).close(NOW_MS)
        read.append(files.bytes_read)
    assert read[1] <= read[0] - log.size


def test_lost_epochs_are_found_despite_damage_below_the_recovery_point(filled: Log, tmp_path: Path) -> None:
    first, second, _ = sorted(filled.directory.glob("*.log"))
    content = bytearray(second.read_bytes())
    content[16] = 99  # the magic of its first batch
    second.write_bytes(content)
    (filled.directory / names.LEADER_EPOCH_CHECKPOINT).unlink()
    damage = Damage()
    log = load_log(tmp_path, CONFIG, recovery_point=COUNT, progress=damage)
    assert (log.log_end_offset, log.leader_epochs.latest) == (COUNT, 2)
    assert damage.texts[0].startswith(f"{second} at position 0: ")
    assert first.exists()


def test_log_with_damage_below_the_recovery_point_is_served(tmp_path: Path) -> None:
    """Without snapshots the producers must be read from segments that otherwise need no scan."""
    log = create_log(tmp_path, log_config(segment_bytes=400))
    for number in range(20):
        append(log, batch(1, size=60, producer_id=number % 2, sequence=number // 2))
    log.close(NOW_MS)
    segments = [segment.base_offset for segment in log.segments.all()]
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    path = log.directory / f"{segments[1]:020d}.log"
    content = bytearray(path.read_bytes())
    content[16] = 9
    path.write_bytes(content)
    for is_clean in (True, False):
        damage = Damage()
        loaded = load_log(
            tmp_path, log_config(segment_bytes=400), is_clean=is_clean, recovery_point=19, progress=damage
        )
        assert loaded.log_end_offset == 20
        assert f"{path} at position 0" in damage.texts[0]
        assert {each.last_sequence for each in loaded.producer_state.producers.values()} == {9}


def test_snapshot_that_a_power_cut_brings_back_is_not_used(tmp_path: Path) -> None:
    """It is of records that were truncated. Others have their offsets now."""
    log = create_log(tmp_path)
    for sequence in range(3):
        append(log, batch(producer_id=7, sequence=sequence))
    log.close(NOW_MS)
    (snapshot,) = log.directory.glob("*.snapshot")
    content = snapshot.read_bytes()
    log = load_log(tmp_path, is_clean=True)
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    for sequence in range(2):
        append(log, batch(producer_id=8, sequence=sequence), leader_epoch=1)
    log.take_offline()
    assert not snapshot.exists()
    snapshot.write_bytes(content)
    for is_clean in (False, True):
        log = load_log(tmp_path, is_clean=is_clean)
        assert {it.producer_id: it.last_sequence for it in log.producer_state.producers.values()} == {7: 0, 8: 1}
        log.close(NOW_MS)


@pytest.mark.parametrize("position", [-5, 1 << 30])
def test_index_that_points_beyond_its_log_loses_no_record(tmp_path: Path, position: int) -> None:
    config = log_config(segment_bytes=2000, index_interval_bytes=100)
    damage = Damage()
    errors: list[OSError] = []
    log = create_log(tmp_path, config, log_options(on_damage=damage.on_damage, on_io_error=errors.append))
    for _ in range(40):
        append(log, batch(1, size=40))
    expected = list(read_all(log))
    log.release()
    index = log.directory / f"{0:020d}.index"
    entries = bytearray(index.read_bytes())
    for entry in range(0, len(entries), 8):
        entries[entry + 4 : entry + 8] = position.to_bytes(4, signed=True)
    index.write_bytes(entries)
    for offset, content in expected[::-1]:
        fetched = log.reader.read(offset, len(content), upper_bound_offset=40, min_one_batch=True)
        assert fetched is not None
        assert bytes(fetched.records) == content
    assert not errors
    assert f"{index} sends offset" in damage.texts[0]


def test_orphaned_and_unfinished_files_are_removed(filled: Log, tmp_path: Path) -> None:
    filled.close(NOW_MS)
    for name in (
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "00000000000000000000.log.deleted",
        "leader-epoch-checkpoint.tmp",
    ):
        (filled.directory / name).write_bytes(b"x")
    expected = {path.name for path in filled.directory.iterdir() if "99" not in path.name} - {
        "00000000000000000000.log.deleted",
        "leader-epoch-checkpoint.tmp",
    }
    load_log(tmp_path, CONFIG, is_clean=True)
    assert {path.name for path in filled.directory.iterdir()} == expected


def test_log_that_ends_below_its_start_restarts_empty_at_its_start(filled: Log, tmp_path: Path) -> None:
    filled.close(NOW_MS)
    log = load_log(tmp_path, CONFIG, is_clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (50, 50, [])
    assert append(log, batch(1)).first_offset == 50


def test_directory_without_segments_starts_at_its_log_start(tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    log = load_log(tmp_path, CONFIG, log_start_offset=7)
    assert append(log, batch(1)).first_offset == 7


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_missing_segment_ends_the_log_unless_gaps_are_expected_there(filled: Log, tmp_path: Path, policy: str) -> None:
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({policy}))
    _, second, third = sorted(filled.directory.glob("*.log"))
    second.unlink()
    content = third.read_bytes()
    assert load_log(tmp_path, config, recovery_point=int(third.stem)).log_end_offset == COUNT
    assert load_log(tmp_path, config, gaps_below=int(third.stem)).log_end_offset == COUNT
    damage = Damage()
    assert load_log(tmp_path, config, recovery_point=int(third.stem) - 1, progress=damage).log_end_offset == int(
        second.stem
    )
    (text,) = damage.texts
    assert text.startswith(f"{third}: the segment before ends at {int(second.stem)}, so records were lost; ")
    assert Path(f"{third}{names.DETACHED}").read_bytes() == content
    # The log continues; the detached segments are reported and not read.
    damage = Damage()
    log = load_log(tmp_path, config, progress=damage)
    assert append(log, batch(1)).first_offset == int(second.stem)
    assert damage.texts == [f"{third}{names.DETACHED} does not belong to a log, left alone"]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_gap_in_the_leaders_log_does_not_end_the_followers_log(tmp_path: Path, policy: str) -> None:
    """The leader's log was compacted, perhaps before its policy changed."""
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({policy}), segment_bytes=600)
    log = create_log(tmp_path, config)
    for offset in (0, 3, 10, 13, 30):
        log.appends.append_as_follower(at(offset, batch(3, size=50)), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments.all()] == [0, 6, 16]
    damage = Damage()
    loaded = load_log(tmp_path, config, progress=damage)
    assert offsets(loaded) == [0, 3, 10, 13, 30]
    assert (loaded.log_end_offset, damage.texts) == (33, [])


def test_gap_too_wide_for_one_segment_is_between_two(tmp_path: Path) -> None:
    log = create_log(tmp_path, CONFIG)
    for offset in (0, 1, 1 << 33):
        log.appends.append_as_follower(at(offset, batch(1)), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments.all()] == [0, 1 << 33]
    damage = Damage()
    assert offsets(load_log(tmp_path, CONFIG, progress=damage)) == [0, 1, 1 << 33]
    assert damage.texts == []


@pytest.mark.parametrize("kept", [0, 1, 6])
@pytest.mark.parametrize("rolls", ["by size", "by hand", "at a stop"])
def test_batches_after_a_truncation_behind_a_gap_survive_a_kill(tmp_path: Path, kept: int, rolls: str) -> None:
    """The leader's log was compacted; the next epoch, to whose begin the follower truncates, begins behind the gap."""
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact"}), segment_bytes=600)
    log = create_log(tmp_path, config)
    for offset in [0, 1, 2, 3, 4, 5][:kept]:
        log.appends.append_as_follower(at(offset, batch(1, size=20, producer_id=4, sequence=offset)), now_ms=NOW_MS)
    log.appends.append_as_follower(at(9, batch(2, size=20)), now_ms=NOW_MS)
    log.truncation.truncate_to(9, now_ms=NOW_MS)
    assert log.log_end_offset == 9
    if rolls == "by hand":
        log.appends.roll(NOW_MS)
    elif rolls == "at a stop":
        log.close(NOW_MS)
        log = load_log(tmp_path, config, is_clean=True)
        assert log.log_end_offset == kept
    log.appends.append_as_follower(at(9, batch(1, size=550)), now_ms=NOW_MS)
    log.appends.append_as_follower(at(10, batch(1, size=550)), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments.all()] == ([0, kept, 10] if kept else [0, 10])
    damage = Damage()
    loaded = load_log(tmp_path, config, progress=damage)
    assert (offsets(loaded), damage.texts) == ([*range(kept), 9, 10], [])
    producers = loaded.producer_state.producers
    assert [entry.last_sequence for entry in producers.values()] == ([kept - 1] if kept else [])


def test_a_new_start_after_a_truncation_behind_a_gap_begins_at_its_own_offset(tmp_path: Path) -> None:
    log = create_log(tmp_path, CONFIG)
    log.appends.append_as_follower(batch(6), now_ms=NOW_MS)
    log.appends.append_as_follower(at(7, batch(2)), now_ms=NOW_MS)
    log.truncation.truncate_to(7, now_ms=NOW_MS)
    log.truncation.truncate_fully_and_start_at(7, now_ms=NOW_MS)
    log.appends.roll(NOW_MS)
    append(log, batch(1))
    assert [segment.base_offset for segment in log.segments.all()] == [7]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_older_segment_that_lost_whole_batches_ends_the_log(tmp_path: Path, policy: str) -> None:
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({policy}))
    log = create_log(tmp_path, config)
    for _ in range(COUNT):
        append(log, batch(1, size=100))
    second, third = log.segments.all()[1:3]
    size = second.size // (third.base_offset - second.base_offset)
    os.truncate(second.path, size)
    assert offsets(load_log(tmp_path, config)) == list(range(second.base_offset + 1))


def test_epochs_of_scanned_batches_count_more_than_those_in_the_file(filled: Log, tmp_path: Path) -> None:
    """A power cut may keep the file from before a truncation and the batches from after it."""
    path = filled.directory / names.LEADER_EPOCH_CHECKPOINT
    expected = filled.leader_epochs.entries
    path.write_text("0\n3\n0 0\n7 3\n9 6\n")
    assert load_log(tmp_path, CONFIG).leader_epochs.entries == expected
    assert load_log(tmp_path, CONFIG, is_clean=True).leader_epochs.entries == expected, "the file is mended"


class Powered:
    """A broker on a disk that can lose its power."""

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._disk = SimulatedDisk()
        self._disk.provide_directory("/data")
        self._files = DiskFiles(self._disk, lambda: 0, lambda _: None)
        self.broker = Broker(Path("/data"), config, files=self._files)
        self.log = self.broker.log()
        self.log.reconfigure(config)

    def lose_power(self, cut: PowerCut) -> None:
        self._files.die()
        self._disk.lose_power(cut)
        self._files = DiskFiles(self._disk, lambda: 0, lambda _: None)
        self.broker = Broker(Path("/data"), self._config, files=self._files)
        self.log = self.broker.log()


def test_segments_before_a_new_start_do_not_return_after_a_power_cut(tmp_path: Path) -> None:
    machine = Powered(CONFIG)
    for number in range(COUNT):
        append(machine.log, batch(1, size=100, producer_id=3, sequence=number))
    machine.log.durability.flush(NOW_MS)
    machine.log.truncation.truncate_fully_and_start_at(1000, now_ms=NOW_MS)
    machine.log.appends.append_as_follower(at(1000, batch(1)), now_ms=NOW_MS)
    machine.log.durability.flush(NOW_MS)
    machine.broker.manager.checkpoint_recovery_points()
    machine.lose_power(PowerCut())
    assert (machine.log.log_start_offset, offsets(machine.log)) == (1000, [1000])


@pytest.mark.parametrize("target", [1000, 3])
def test_new_start_is_durable_before_its_recovery_point(target: int) -> None:
    machine = Powered(CONFIG)
    for _ in range(COUNT):
        append(machine.log, batch(1, size=100))
    machine.log.durability.flush(NOW_MS)
    machine.broker.manager.checkpoint_recovery_points()
    machine.log.truncation.truncate_fully_and_start_at(target, now_ms=NOW_MS)
    machine.lose_power(PowerCut())
    assert (machine.log.log_start_offset, machine.log.log_end_offset, offsets(machine.log)) == (target, target, [])


def test_truncated_segments_do_not_follow_new_batches_after_a_power_cut() -> None:
    """The new batches end where a truncated segment began."""
    machine = Powered(CONFIG)
    for _ in range(COUNT):
        append(machine.log, batch(1, size=100), leader_epoch=1)
    machine.log.durability.flush(NOW_MS)
    machine.broker.manager.checkpoint_recovery_points()
    first, second = machine.log.segments.all()[:2]
    kept = second.base_offset - 1
    assert first.base_offset < kept
    machine.log.truncation.truncate_to(kept, now_ms=NOW_MS)
    append(machine.log, batch(1, size=100), leader_epoch=2)
    machine.lose_power(OldNames())
    assert offsets(machine.log) == list(range(kept + 1))
    assert [entry.epoch for entry in machine.log.leader_epochs.entries] == [1, 2]


# The quick way through ordinary batches against the way that takes any


def _mixed_log(folder: Path, random: Random, config: LogConfig) -> Log:
    """Batches of every kind that a log holds, in any order, over several segments."""
    log = create_log(folder, config)
    sequences: Counter[int] = Counter()
    leader_epoch = 0
    open_transactions: set[int] = set()
    for _ in range(300):
        kind = random.choice(("plain", "plain", "idempotent", "idempotent", "transactional", "marker", "epoch"))
        count, timestamp_ms = random.randint(1, 4), NOW_MS + random.randint(-5, 50)
        if kind == "epoch":
            leader_epoch += 1
        elif kind == "marker" and open_transactions:
            producer_id = open_transactions.pop()
            append_marker(log, marker(random.choice((ControlType.ABORT, ControlType.COMMIT)), producer_id))
        elif kind in ("idempotent", "transactional"):
            producer_id = random.randint(1, 3) if kind == "idempotent" else random.randint(4, 6)
            records = batch(
                count,
                timestamp_ms=timestamp_ms,
                producer_id=producer_id,
                sequence=sequences[producer_id],
                is_transactional=kind == "transactional",
            )
            append(log, records, leader_epoch=leader_epoch)
            sequences[producer_id] += count
            if kind == "transactional":
                open_transactions.add(producer_id)
        else:
            compression = random.choice((Compression.NONE, Compression.GZIP))
            records = batch(count, size=random.randint(1, 300), timestamp_ms=timestamp_ms, compression=compression)
            append(log, records, leader_epoch=leader_epoch)
    log.close(NOW_MS)
    return log


def _put_old_messages(log: Log) -> None:
    """At the end, as a log from an old broker has them: newer batches do not come before."""
    path = last_file(log)
    messages = [Record(log.log_end_offset + number, NOW_MS + number, None, b"old", []) for number in range(5)]
    with path.open("ab") as file:
        file.write(build_message_set(messages, magic=1))


def _everything_derived(log: Log) -> object:
    """Closes the log and returns what recovery has made: files, producers, epochs, offsets."""
    producers = log.producer_state
    known = [
        (entry.producer_id, entry.epoch, list(entry.batches), entry.coordinator_epoch, entry.last_timestamp_ms)
        for entry in producers.producers.values()
    ]
    log.close(NOW_MS)
    files = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    return files, known, producers.first_unstable_offset, list(log.leader_epochs.entries), log.log_end_offset


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("chunk_size", [300, 1 << 20])
def test_ordinary_batches_are_recovered_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, chunk_size: int
) -> None:
    random = Random(seed)
    config = log_config(segment_bytes=8000, index_interval_bytes=random.choice((0, 100, 1000)))
    log = _mixed_log(tmp_path / "made", random, config)
    as_made = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    _put_old_messages(log)
    if seed % 3 == 0:
        damaged = random.choice(sorted(log.directory.glob("*.log")))
        content = bytearray(damaged.read_bytes())
        content[random.randrange(len(content))] ^= 1
        damaged.write_bytes(content)
    results = []
    for way in ("quick", "any"):
        folder = tmp_path / way
        shutil.copytree(log.directory, folder / "topic-0")
        for path in [*folder.glob("*/*index"), *folder.glob("*/*.snapshot"), *folder.glob("*/leader-epoch-checkpoint")]:
            path.unlink()
        if way == "any":
            monkeypatch.setattr(recovery._Scanner, "_apply_ordinary", lambda *_: 0)
        monkeypatch.setattr(recovery, "CHUNK_SIZE", chunk_size)
        results.append(_everything_derived(load_log(folder, config)))
    assert results[0] == results[1]
    if seed % 3:
        sealed = [name for name in as_made if name.endswith("index") and int(name[:20]) != int(last_file(log).stem)]
        rebuilt: dict[str, bytes] = results[0][0]  # type: ignore[index]
        assert {name: rebuilt[name] for name in sealed} == {name: as_made[name] for name in sealed}


# What the start-up half of a swap makes of every state that a crash in it can leave


def _stage(directory: Path, base_offset: int, stage: str, content: bytes) -> None:
    for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        path = directory / (names.segment_file(base_offset, suffix) + stage)
        path.write_bytes(content if suffix == names.LOG else b"")


def test_unfinished_cleaning_keeps_the_old_segments(filled: Log, tmp_path: Path) -> None:
    filled.close(NOW_MS)
    content = (filled.directory / names.segment_file(0, names.LOG)).read_bytes()
    _stage(filled.directory, 0, names.SWAP, content[:100])
    (filled.directory / (names.segment_file(0, names.TIME_INDEX) + names.SWAP)).rename(
        filled.directory / (names.segment_file(0, names.TIME_INDEX) + names.CLEANED)
    )
    assert offsets(load_log(tmp_path, CONFIG, is_clean=True)) == list(range(COUNT))
    assert not [path for path in filled.directory.iterdir() if path.suffix in (names.SWAP, names.CLEANED)]


def test_finished_cleaning_replaces_its_source_segments(filled: Log, tmp_path: Path) -> None:
    filled.close(NOW_MS)
    first, second, third = sorted(filled.directory.glob("*.log"))
    size = len(batch(1, size=20, producer_id=3, sequence=0))
    cleaned = first.read_bytes()[:size] + second.read_bytes()[-size:]
    _stage(filled.directory, 0, names.SWAP, cleaned)
    log = load_log(tmp_path, log_config(cleanup_policy=frozenset({"compact"})), is_clean=True)
    assert offsets(log) == [0, int(third.stem) - 1, *range(int(third.stem), COUNT)]
    assert not second.exists()
    assert not list(filled.directory.glob("*.swap"))


@pytest.mark.parametrize("cleanup_policy", ["compact", "delete"])
def test_compacted_log_keeps_its_gaps_after_a_crash(tmp_path: Path, cleanup_policy: str) -> None:
    """Its policy may have changed since; without the recovery points the whole log is scanned."""
    broker = Broker(tmp_path)
    log = broker.log()
    for number in range(30):
        append(log, keyed((f"k{number % 3}", "v" * 900)))
    commit_and_roll(log)
    assert broker.clean()
    for number in range(20):
        append(log, keyed((f"n{number}", "x" * 300)))
    before = kept_in(log)
    bases = [segment.base_offset for segment in log.segments.all()]
    broker.manager.directories.unlock()
    (tmp_path / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)

    again = Broker(tmp_path, dataclasses.replace(COMPACTED, cleanup_policy=frozenset({cleanup_policy})))
    log = again.log()
    assert kept_in(log) == before
    assert [segment.base_offset for segment in log.segments.all()] == bases
    again.manager.directories.unlock()


def test_kill_after_a_swap_loses_nothing_behind_its_gaps(tmp_path: Path) -> None:
    """Neither the cleaner's checkpoint nor a periodic one of the recovery points has been written since."""
    broker = Broker(tmp_path)
    log = broker.log()
    for number in range(30):
        append(log, keyed((f"k{number % 3}", "v" * 900)))
    commit_and_roll(log)
    append(log, keyed(("n", "x")))
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, broker.files)
    broker.cleaning.make_durable(picked)
    assert finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    before = kept_in(log)
    broker.manager.directories.unlock()
    assert not (tmp_path / names.CLEANER_CHECKPOINT).exists()
    assert kept_in(Broker(tmp_path).log()) == before


def test_gaps_are_accepted_by_two_starts_without_recovery_points(tmp_path: Path) -> None:
    config = log_config()
    broker = Broker(tmp_path, config)
    log = broker.log()
    for offset in (0, 1 << 33):
        log.appends.append_as_follower(at(offset, batch(1)), now_ms=NOW_MS)
    broker.manager.directories.unlock()
    (tmp_path / names.RECOVERY_POINT_CHECKPOINT).unlink()
    for _ in range(3):
        broker = Broker(tmp_path, config)
        assert offsets(broker.log()) == [0, 1 << 33]
        broker.manager.directories.unlock()


def test_gaps_of_another_writer_are_served_after_a_kill(tmp_path: Path) -> None:
    """A segment of Apache Kafka's followers begins at its first batch, not where the last batch ended."""
    config = log_config(segment_bytes=600)
    broker = Broker(tmp_path, config)
    folder = broker.log().directory
    broker.manager.close(NOW_MS)
    (tmp_path / names.CLEAN_SHUTDOWN).unlink()  # the other writer has started
    for path in folder.glob("0*"):
        path.unlink()
    for base in (0, 7, 12):
        (folder / names.segment_file(base, names.LOG)).write_bytes(at(base, batch(2)))
    for _ in range(3):
        broker = Broker(tmp_path, config)
        assert offsets(broker.log()) == [0, 7, 12]
        broker.manager.directories.unlock()
    # From now on a gap proves a loss again: these segments are synced.
    broker = Broker(tmp_path, config)
    log = broker.log()
    for _ in range(4):
        append(log, batch(1, size=500))
    broker.manager.directories.unlock()
    lost = log.segments.all()[-2]
    os.truncate(lost.path, 0)
    assert offsets(Broker(tmp_path, config).log())[-1] < lost.base_offset


def test_older_segment_that_lost_batches_ends_the_log_in_a_new_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    for number in range(20):
        append(log, keyed((f"k{number}", "v" * 900)))
    first, second = log.segments.all()[:2]
    broker.manager.directories.unlock()
    os.truncate(first.path, first.size // second.base_offset)
    assert offsets(Broker(tmp_path).log()) == [0]
