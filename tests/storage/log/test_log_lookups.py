"""Offsets by time. `test_log_twin` compares lookups with a list, `test_log_reader` tests them while segments leave."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from tests.storage.builders import NOW_MS, WatchedRemovals, append, batch, create_log, log_config, log_options


def test_lookups_return_the_time_of_the_broker_and_the_epoch_of_the_record(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(message_timestamp_type="LogAppendTime"))
    append(log, batch(2), now_ms=NOW_MS + 5)
    assert log.lookups.offset_for_timestamp(NOW_MS + 5, upper_bound_offset=2) == (NOW_MS + 5, 0, 0)
    assert log.lookups.offset_for_timestamp(NOW_MS + 6, upper_bound_offset=2) is None
    assert log.lookups.max_timestamp(upper_bound_offset=2) == (NOW_MS + 5, 0, 0)


def test_records_at_or_above_the_bound_are_not_found(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, batch(1))
    assert log.lookups.max_timestamp(upper_bound_offset=1) is not None
    assert log.lookups.max_timestamp(upper_bound_offset=0) is None


def test_lookups_in_an_offline_log_are_rejected(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    log.take_offline()
    with pytest.raises(KafkaError) as caught:
        log.lookups.max_timestamp(upper_bound_offset=1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_legacy_lookup_returns_base_offsets_of_segments_that_are_not_younger(tmp_path: Path) -> None:
    log = create_log(tmp_path, log_config(segment_bytes=2 * len(batch(1))))
    for _ in range(5):
        append(log, batch(1))
    for number, segment in enumerate(log.segments.all()):
        log.files.set_modified_ms(segment.path, 1000 * (number + 1))
    assert log.lookups.legacy_offsets_before(-1, 10, now_ms=9000) == [5, 4, 2, 0]
    assert log.lookups.legacy_offsets_before(-1, 2, now_ms=9000) == [5, 4]
    assert log.lookups.legacy_offsets_before(-2, 10, now_ms=9000) == [0]
    assert log.lookups.legacy_offsets_before(2500, 10, now_ms=9000) == [2, 0]
    assert log.lookups.legacy_offsets_before(500, 10, now_ms=9000) == []


def test_legacy_lookup_leaves_out_what_a_truncation_in_another_thread_has_removed(tmp_path: Path) -> None:
    files, failed = WatchedRemovals(), list[OSError]()
    log = create_log(
        tmp_path, log_config(segment_bytes=2 * len(batch(1))), log_options(files, on_io_error=failed.append)
    )
    for _ in range(5):
        append(log, batch(1))
    found: list[list[int]] = []
    files.at_removal = lambda: found.append(log.lookups.legacy_offsets_before(-1, 10, now_ms=9000))
    log.truncation.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    assert found == [[5, 2, 0], [5, 0], [5]]
    assert failed == []
