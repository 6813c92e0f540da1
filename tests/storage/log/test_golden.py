"""Directories that Apache Kafka wrote: read exactly, rebuilt to the same bytes, and written to the same bytes."""

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from base.topic_partition import TopicPartition
from storage.batches.stored_batch import extent_at
from storage.directories.log_directory import LogDirectory
from storage.disk import names
from storage.disk.checkpoints import read_offsets, write_offsets
from storage.disk.files import OsFiles
from storage.disk.meta_properties import MetaProperties, read
from storage.log import log_opening
from storage.log.log import Log
from storage.producers.producer_snapshots import decode, encode
from storage.recovery.log_loader import LoadProgress
from tests.storage.builders import NOW_MS, Damage, log_config, log_options

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
GOLDEN_NOW_MS = 1_795_229_379_000
DAY_MS = 86_400_000
INDEXES = (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)


class Golden:
    """One directory of Kafka's; `end` is its log end, `rolled_at` where it began segments for other reasons."""

    def __init__(
        self,
        path: str,
        end: int,
        *,
        segment_bytes: int = 1 << 30,
        interval: int = 512,
        compacted: bool = False,
        rolled_at: Collection[int] = (),
    ) -> None:
        self.source = LOGS / path
        self.end = end
        self.rolled_at = rolled_at
        policy = frozenset({"compact"} if compacted else {"delete"})
        self.config = log_config(
            index_interval_bytes=interval,
            segment_index_bytes=10485760,
            segment_bytes=segment_bytes,
            cleanup_policy=policy,
        )

    @property
    def name(self) -> TopicPartition:
        topic, _, partition = self.source.name.rpartition("-")
        return (topic, int(partition))

    @property
    def restarts(self) -> set[int]:
        """Where Kafka was stopped and started: snapshots that belong to no segment. It expired producers there."""
        snapshots = {int(path.stem) for path in self.source.glob("*.snapshot")}
        return snapshots - {int(path.stem) for path in self.source.glob("*.log")} - {self.end}

    def load(self, directory: Path, progress: LoadProgress, *, is_clean: bool) -> Log:
        first_dirty = read_offsets(OsFiles(), str(self.source.parent / names.CLEANER_CHECKPOINT))
        return log_opening.load(
            log_options(),
            str(directory),
            self.name,
            self.config,
            log_start_offset=0,
            recovery_point=0,
            high_watermark=self.end,
            is_clean=is_clean,
            now_ms=NOW_MS,
            progress=progress,
            gaps_below=first_dirty.get(self.name, 0),
        )

    def batches(self) -> list[bytes]:
        """Every batch of the directory, in order, cut out by nothing but the length fields."""
        content = b"".join(path.read_bytes() for path in sorted(self.source.glob("*.log")))
        found = []
        position = 0
        while position < len(content):
            extent = extent_at(content, position, position)
            found.append(content[position : extent.end])
            position = extent.end
        return found


GOLDEN = {
    "golden-0": Golden("golden-0", 77),
    "golden-1": Golden("golden-1", 232, segment_bytes=8192),
    "golden-compact-0": Golden("golden-compact-0", 175, compacted=True),
    "before": Golden("compact-before/golden-compact-0", 139, compacted=True, rolled_at=(30, 60, 99, 121)),
    "golden-compact-nodelete-0": Golden("golden-compact-nodelete-0", 175, compacted=True),
    "nodelete before": Golden(
        "compact-before/golden-compact-nodelete-0", 139, compacted=True, rolled_at=(30, 60, 99, 121)
    ),
    "offsets 0": Golden("__consumer_offsets-0", 168, interval=4096, compacted=True),
    "offsets 1": Golden("__consumer_offsets-1", 165, interval=4096, compacted=True),
    "transactions 0": Golden("__transaction_state-0", 90, interval=4096, compacted=True),
    "transactions 1": Golden("__transaction_state-1", 82, interval=4096, compacted=True),
    "magic 0": Golden("old-v0-0", 66, interval=256, rolled_at=(51,)),
    "magic 1": Golden("old-v1-0", 66, interval=256, rolled_at=(46,)),
    "magic 1, log append time": Golden("old-v1-lat-0", 66, interval=4096),
}

# There Kafka counts index.interval.bytes anew, which a rebuild cannot know.
RESTARTED_WITHIN_A_SEGMENT = {"golden-1", "offsets 0", "offsets 1", "transactions 0", "transactions 1"}
CLEANED = {"golden-compact-0", "golden-compact-nodelete-0"}


@pytest.fixture(params=GOLDEN)
def golden(request: pytest.FixtureRequest) -> Golden:
    return GOLDEN[request.param]


@pytest.fixture
def directory(golden: Golden, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden.source, tmp_path / golden.source.name))


def read_everything(log: Log) -> bytes:
    content = b""
    for segment in log.segments.all():
        content += bytes(segment.read(0, segment.size))
    return content


@pytest.mark.parametrize("is_clean", [True, False])
def test_directory_of_kafka_loads_without_warnings(golden: Golden, directory: Path, is_clean: bool) -> None:
    damage = Damage()
    log = golden.load(directory, damage, is_clean=is_clean)
    assert damage.texts == []
    assert log.log_end_offset == golden.end
    assert read_everything(log) == b"".join(golden.batches())
    assert log.topic_id is not None or golden.source.name.startswith("old")


def test_every_offset_written_by_kafka_is_read(golden: Golden, directory: Path) -> None:
    log = golden.load(directory, Damage(), is_clean=True)
    extents = [extent_at(content, 0, 0) for content in golden.batches()]
    for offset in range(log.log_start_offset, golden.end):
        expected = next(extent for extent in extents if extent.last_offset >= offset)
        fetched = log.reader.read(offset, 1, upper_bound_offset=golden.end, min_one_batch=True)
        assert fetched is not None
        assert extent_at(fetched.records, 0, 0).last_offset == expected.last_offset


@pytest.mark.parametrize("golden", sorted(GOLDEN.keys() - RESTARTED_WITHIN_A_SEGMENT), indirect=True)
def test_rebuilt_indexes_equal_those_of_kafka(golden: Golden, directory: Path) -> None:
    expected = {path.name: path.read_bytes() for path in golden.source.iterdir() if path.suffix in INDEXES}
    for name in expected:
        (directory / name).unlink()
    golden.load(directory, Damage(), is_clean=False).close(NOW_MS)
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in INDEXES} == expected


@pytest.mark.parametrize("is_clean", [True, False])
def test_missing_indexes_are_rebuilt_at_a_clean_and_an_unclean_start(
    golden: Golden, directory: Path, is_clean: bool
) -> None:
    for path in [path for path in directory.iterdir() if path.suffix in INDEXES]:
        path.unlink()
    log = golden.load(directory, Damage(), is_clean=is_clean)
    assert log.log_end_offset == golden.end
    # The active segment has its files too: Kafka misses them where they belong below a recovery point.
    full = {path.stem for path in directory.glob("*.log") if path.stat().st_size}
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        assert {path.stem for path in directory.glob(f"*{suffix}")} >= full
    found = [aborted for segment in log.segments.all() for aborted in segment.transaction_index.entries()]
    original = golden.load(Path(shutil.copytree(golden.source, directory / "again")), Damage(), is_clean=True)
    assert found == [aborted for segment in original.segments.all() for aborted in segment.transaction_index.entries()]


@pytest.mark.parametrize("golden", sorted(GOLDEN.keys() - CLEANED), indirect=True)
def test_appending_the_same_batches_writes_the_same_files_as_kafka(golden: Golden, tmp_path: Path) -> None:
    directory = tmp_path / golden.source.name
    log = log_opening.create(log_options(), str(directory), golden.name, golden.config, topic_id=None, now_ms=NOW_MS)
    for content in golden.batches():
        if log.log_end_offset in golden.rolled_at:
            log.appends.roll(NOW_MS)
        log.appends.append_as_follower(memoryview(bytearray(content)), now_ms=NOW_MS)
        if log.log_end_offset in golden.restarts:
            log.close(NOW_MS)
            log = golden.load(directory, Damage(), is_clean=True)
            log.expire_producers(GOLDEN_NOW_MS, DAY_MS)
    log.close(NOW_MS)
    ours = {path.name: path.read_bytes() for path in directory.iterdir()}
    theirs = {path.name: path.read_bytes() for path in golden.source.iterdir()}
    theirs.pop(names.PARTITION_METADATA, None)
    assert ours.keys() == theirs.keys()
    for name, content in theirs.items():
        if name.endswith(names.PRODUCER_SNAPSHOT):
            # In Kafka's file the producers stand as its hash table had them.
            assert ours[name] == encode(decode(content, name)), name
        else:
            assert ours[name] == content, name


def test_replayed_producers_equal_those_of_kafkas_snapshot(directory: Path, golden: Golden) -> None:
    clean = golden.load(directory, Damage(), is_clean=True).producer_state.producers
    for path in directory.glob("*.snapshot"):
        path.unlink()
    replayed = golden.load(directory, Damage(), is_clean=True).producer_state.producers
    assert replayed.keys() >= clean.keys()  # Kafka had expired some
    for producer_id, known in clean.items():
        entry = replayed[producer_id]
        assert (known.epoch, known.last_sequence, known.last_timestamp_ms, known.coordinator_epoch) == (
            entry.epoch,
            entry.last_sequence,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
        )


def test_aborted_transactions_equal_those_of_kafka(tmp_path: Path) -> None:
    golden = GOLDEN["golden-0"]
    log = golden.load(Path(shutil.copytree(golden.source, tmp_path / "golden-0")), Damage(), is_clean=True)
    assert [tuple(aborted) for aborted in log.reader.aborted_transactions(0, 77)] == [
        (3, 41, 44, 45),
        (3, 49, 52, 53),
        (1004, 57, 60, 61),
        (1004, 65, 68, 69),
        (4, 69, 75, 76),
    ]
    assert [aborted.first_offset for aborted in log.reader.aborted_transactions(50, 58)] == [49, 57]


@pytest.mark.parametrize(
    ("name", "count", "known"),
    [
        (names.RECOVERY_POINT_CHECKPOINT, 24, ("golden-compact", 0, 175)),
        (names.HIGH_WATERMARK_CHECKPOINT, 24, ("wirekp", 1, 28)),
        (names.LOG_START_CHECKPOINT, 2, ("wire", 1, 3092)),
        (names.CLEANER_CHECKPOINT, 2, ("golden-compact-nodelete", 0, 169)),
    ],
)
def test_offset_checkpoints_of_kafka_are_read(
    name: str, count: int, known: tuple[str, int, int], tmp_path: Path
) -> None:
    offsets = read_offsets(OsFiles(), str(LOGS / name))
    assert len(offsets) == count
    topic, partition, offset = known
    assert offsets[(topic, partition)] == offset
    write_offsets(OsFiles(), str(tmp_path / name), offsets)
    assert (tmp_path / name).read_bytes() == (LOGS / name).read_bytes()


def test_clean_shutdown_marker_equals_that_of_kafka(tmp_path: Path) -> None:
    directory = LogDirectory(OsFiles(), str(tmp_path))
    directory.write_clean_marker()
    assert (tmp_path / names.CLEAN_SHUTDOWN).read_bytes() == (LOGS / names.CLEAN_SHUTDOWN).read_bytes()
    assert directory.remove_clean_marker()


def test_meta_properties_of_kafka_are_read() -> None:
    assert read(OsFiles(), str(LOGS / "meta.properties")) == MetaProperties(2, "7ym0r3ycTc-XAnwnQmXzjg")
