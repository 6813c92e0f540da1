"""kafka-dump-log --verify: every damaged batch of a log directory is found, and nothing else is reported."""

import shutil
import struct
from pathlib import Path

import pytest

from tests.storage.builders import NOW_MS, append, batch, create_log, log_config
from tests.tools.conftest import RunTool
from tools.files import dump_log

FIXTURES = Path(__file__).parents[2] / "fixtures" / "dump-log" / "partitions"
SIZE = len(batch(1, size=100))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A folder with three segments of ten batches and an index entry for each batch but the first."""
    log = create_log(tmp_path, log_config(segment_bytes=10 * SIZE, index_interval_bytes=1))
    for _ in range(30):
        append(log, batch(1, size=100))
    log.close(NOW_MS)
    return log.directory


def segment(partition: Path, base_offset: int) -> Path:
    return partition / f"{base_offset:020d}.log"


def overwrite(path: Path | str, position: int, content: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_logs_of_kafka_in_all_formats_are_undamaged(run: RunTool) -> None:
    whole = [str(FIXTURES / name) for name in ("golden-0", "golden-1", "golden-compact-0", "old-v0-0", "old-v1-0")]
    outcome = run(dump_log.main, "--verify", *whole)
    assert (outcome.status, outcome.stderr) == (0, "")
    (line,) = outcome.stdout.splitlines()
    assert line.endswith(": 0 damaged")


def test_a_flipped_bit_in_a_record_is_reported_with_its_position(run: RunTool, partition: Path) -> None:
    path = segment(partition, 10)
    overwrite(path, 3 * SIZE + 100, b"\x00")
    outcome = run(dump_log.main, "--verify", str(partition.parent))
    assert outcome.status == 1
    assert outcome.stdout.splitlines() == [
        f"file: {path} position: {3 * SIZE} offset: 13 reason: the CRC is wrong",
        f"Verified 30 batches in 3 files, {30 * SIZE} bytes: 1 damaged",
    ]


def test_after_a_batch_with_an_invalid_length_the_index_gives_the_next(run: RunTool, partition: Path) -> None:
    path = segment(partition, 0)
    overwrite(path, 2 * SIZE + 8, struct.pack(">i", -1))
    overwrite(path, 6 * SIZE + 100, b"\x00")
    lines = run(dump_log.main, "--verify", str(partition)).stdout.splitlines()
    assert [line.partition(" reason")[0] for line in lines[:-1]] == [
        f"file: {path} position: {2 * SIZE} offset: 2",
        f"file: {path} position: {6 * SIZE} offset: 6",
    ]
    assert f"{SIZE} bytes are not checked" in lines[0]
    assert lines[-1].endswith(f"{30 * SIZE} bytes: 2 damaged")


def test_without_an_index_the_rest_of_the_file_is_not_checked(run: RunTool, partition: Path) -> None:
    path = segment(partition, 0)
    overwrite(path, 2 * SIZE + 8, struct.pack(">i", -1))
    path.with_suffix(".index").unlink()
    lines = run(dump_log.main, "--verify", str(partition)).stdout.splitlines()
    assert f"{8 * SIZE} bytes are not checked" in lines[0]
    assert lines[-1] == f"Verified 22 batches in 3 files, {30 * SIZE} bytes: 1 damaged"


def test_a_torn_end_and_offsets_that_fall_are_damage(run: RunTool, partition: Path) -> None:
    torn, repeated = segment(partition, 20), segment(partition, 10)
    torn.write_bytes(torn.read_bytes()[:-7])
    content = repeated.read_bytes()
    repeated.write_bytes(content + content[:SIZE])
    lines = run(dump_log.main, "--verify", str(partition)).stdout.splitlines()
    assert [line.partition(" reason")[0] for line in lines[:-1]] == [
        f"file: {repeated} position: {10 * SIZE} offset: 10",
        f"file: {torn} position: {9 * SIZE} offset: 29",
    ]


def test_folders_to_be_deleted_are_excluded(run: RunTool, partition: Path) -> None:
    deleted = partition.parent / f"topic-0.{'0' * 32}-delete"
    shutil.copytree(partition, deleted)
    overwrite(segment(deleted, 0), 100, b"\x00")
    overwrite(shutil.copy(segment(partition, 0), f"{segment(partition, 0)}.deleted"), 100, b"\x00")
    (partition.parent / "meta.properties").write_text("version=0")
    outcome = run(dump_log.main, "--verify", str(partition.parent))
    assert (outcome.status, outcome.stdout) == (
        0,
        f"Verified 30 batches in 3 files, {30 * SIZE} bytes: 0 damaged\n",
    )


def test_a_directory_that_cannot_be_read_fails_and_the_others_are_checked(run: RunTool, partition: Path) -> None:
    outcome = run(dump_log.main, "--verify", str(partition / "missing"), str(partition))
    assert outcome.status == 1
    assert outcome.stderr == f"{partition / 'missing'}: No such file or directory\n"
    assert outcome.stdout.endswith("0 damaged\n")


def test_verify_takes_directories_and_no_files(run: RunTool) -> None:
    outcome = run(dump_log.main, "--verify", "a", "--files", "b")
    assert outcome.status == 1
    assert 'Option "[verify]" can\'t be used with option "[files]"' in outcome.stderr
    assert "requires an argument" in run(dump_log.main, "--verify").stderr
