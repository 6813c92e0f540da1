"""Damage in the active segment: appends continue in a new segment, and intact batches are readable."""

import contextlib
import errno
from pathlib import Path

import pytest

from protocol.errors import KafkaError
from storage.batches.damaged_batches import MetBy
from storage.disk import names
from storage.disk.shortages import OutOfResourcesError
from storage.log.log import Log
from storage.log.log_state import LogOptions
from tests.storage.builders import NOW_MS, append, batch, create_log, load_log, log_config, log_options, read_all
from tests.support.faulty_files import FaultyFiles

CONFIG = log_config(index_interval_bytes=300, segment_ms=1000)
SIZE = len(batch(1, size=100))
COUNT = 12


def options_with_reports(files: FaultyFiles | None = None) -> tuple[LogOptions, list[str], list[OSError]]:
    reports: list[str] = []
    failed: list[OSError] = []
    return log_options(files, on_damage=reports.append, on_io_error=failed.append), reports, failed


def filled(directory: Path, options: LogOptions) -> Log:
    log = create_log(directory, CONFIG, options)
    for _ in range(COUNT):
        append(log, batch(1, size=100))
    return log


def damage_batch(log: Log, number: int) -> None:
    path = log.directory / names.segment_file(0, names.LOG)
    content = bytearray(path.read_bytes())
    content[number * SIZE + 8 : number * SIZE + 12] = b"\xff" * 4
    path.write_bytes(content)


def check_goes_on(log: Log, reports: list[str]) -> None:
    for number in range(3):
        assert append(log, batch(1, size=100)).first_offset == COUNT + number
    assert [segment.base_offset for segment in log.segments.all()] == [0, COUNT]
    assert [offset for offset, _ in read_all(log, COUNT)] == [COUNT, COUNT + 1, COUNT + 2]
    assert len([text for text in reports if "a new segment begins at offset 12" in text]) == 1


def test_append_begins_a_segment_where_damage_hides_the_first_timestamp(tmp_path: Path) -> None:
    options, reports, failed = options_with_reports()
    log = filled(tmp_path, options)
    log.close(NOW_MS)
    damage_batch(log, 0)
    log = load_log(tmp_path, CONFIG, options, is_clean=True)
    assert log.log_end_offset == COUNT
    check_goes_on(log, reports)
    assert not failed
    assert options.damaged_batches.count(MetBy.READ) == 1
    assert next(offset for offset, _ in read_all(log, COUNT - 1)) == COUNT - 1


def test_append_begins_a_segment_where_damage_hides_the_greatest_timestamp(tmp_path: Path) -> None:
    """It is looked for in the file after an append has failed."""
    files = FaultyFiles()
    options, reports, failed = options_with_reports(files)
    log = filled(tmp_path, options)
    files.fail_call(len(files.calls), errno.ENOMEM)
    with pytest.raises(OutOfResourcesError):
        append(log, batch(1, size=100))
    damage_batch(log, COUNT - 1)
    check_goes_on(log, reports)
    assert not failed


def test_tail_of_a_failed_append_is_truncated_before_a_damaged_segment_rolls(tmp_path: Path) -> None:
    files = FaultyFiles()
    options, reports, failed = options_with_reports(files)
    log = filled(tmp_path, options)
    for call in (0, 1):  # the write, and the truncation that is to undo it
        files.fail_call(len(files.calls) + call, errno.ENOMEM)
    with pytest.raises(OutOfResourcesError):
        append(log, batch(1, size=100))
    damage_batch(log, COUNT - 1)
    check_goes_on(log, reports)
    assert not failed
    assert (log.directory / names.segment_file(0, names.LOG)).stat().st_size == COUNT * SIZE


def test_append_begins_a_segment_where_the_time_index_is_cut(tmp_path: Path) -> None:
    options, reports, failed = options_with_reports()
    log = filled(tmp_path, options)
    log.close(NOW_MS)
    log = load_log(tmp_path, CONFIG, options, is_clean=True)
    index = log.directory / names.segment_file(0, names.TIME_INDEX)
    index.write_bytes(index.read_bytes()[:5])
    log.release()
    check_goes_on(log, reports)
    assert not failed
    assert not index.exists(), "for the next start to rebuild"
    log.close(NOW_MS)
    log = load_log(tmp_path, CONFIG, options, is_clean=True)
    assert [offset for offset, _ in read_all(log)] == list(range(COUNT + 3))
    assert index.stat().st_size


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_failed_write_whose_tail_cannot_be_truncated_takes_the_directory_offline(tmp_path: Path, error: int) -> None:
    """As in Kafka; the next start cuts the tail."""
    files = FaultyFiles()
    options, _, failed = options_with_reports(files)
    log = filled(tmp_path, options)
    files.fail_from(len(files.calls), error)
    with pytest.raises(KafkaError):
        append(log, batch(1, size=100))
    assert [each.errno for each in failed] == [error]
    assert log.is_offline
    with (log.directory / names.segment_file(0, names.LOG)).open("ab") as file:
        file.write(bytes(batch(1, size=100))[:50])
    again = load_log(tmp_path, CONFIG)
    assert again.log_end_offset == COUNT
    assert append(again, batch(1)).first_offset == COUNT


def test_stop_with_a_damaged_time_index_is_clean(tmp_path: Path) -> None:
    options, _, _ = options_with_reports()
    log = filled(tmp_path, options)
    log.close(NOW_MS)
    log = load_log(tmp_path, CONFIG, options, is_clean=True)
    index = log.directory / names.segment_file(0, names.TIME_INDEX)
    index.write_bytes(b"")
    log.release()
    log.close(NOW_MS)
    with contextlib.suppress(FileNotFoundError):
        assert not index.stat().st_size
    assert [offset for offset, _ in read_all(load_log(tmp_path, CONFIG, is_clean=True))] == list(range(COUNT))
