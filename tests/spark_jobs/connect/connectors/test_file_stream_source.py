"""The source of lines sends each line once, at Kafka's offsets, across restarts and rotations."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.connect.base.api import SourceTask
from spark_jobs.connect.base.data import STRING
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors import file_stream
from spark_jobs.connect.connectors.file_stream import FileStreamSourceConnector, FileStreamSourceTask
from tests.spark_jobs.connect.contexts import FakeOffsets, poll_until, start_connector, start_source


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_stream, "_IDLE_S", 0)
    monkeypatch.setattr(file_stream, "QUIET_S", 0)


@contextmanager
def started(file: Path, offsets: FakeOffsets | None = None, **others: str) -> Iterator[SourceTask]:
    config = {"file": str(file), "topic": "lines"} | {name.replace("_", "."): each for name, each in others.items()}
    task = start_source(FileStreamSourceTask, config, offsets)
    try:
        yield task
    finally:
        task.stop()


def read_all(task: SourceTask) -> list[SourceRecord]:
    """Poll until nothing new is there."""
    found: list[SourceRecord] = []
    while records := task.poll():
        found += records
    return found


def values(records: Sequence[SourceRecord]) -> list[Any]:
    return [record.value for record in records]


def positions(records: Sequence[SourceRecord]) -> list[Any]:
    return [record.source_offset["position"] for record in records]


def test_each_line_is_a_record_with_the_offset_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"foo\n\nb\xc3\xa4r\r\n")
    with started(file) as task:
        records = read_all(task)
    assert values(records) == ["foo", "", "bär"]
    assert positions(records) == [4, 5, 11]
    for record in records:
        assert (record.topic, record.key, record.value_schema) == ("lines", None, STRING)
        assert record.source_partition == {"filename": str(file)}


def test_a_carriage_return_alone_ends_a_line_as_for_java(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"a\rb\r\nc\nd\r")
    with started(file) as task:
        assert values(read_all(task)) == ["a", "b", "c"]
        with file.open("ab") as more:
            more.write(b"\ne\n")
        assert values(read_all(task)) == ["d", "e"]


def test_a_line_waits_for_its_end_and_a_file_for_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    with started(file) as task:
        assert task.poll() == []
        file.write_bytes(b"unfin")
        assert task.poll() == []
        with file.open("ab") as more:
            more.write(b"ished\nnext")
        assert values(read_all(task)) == ["unfinished"]


def test_a_restart_continues_behind_the_stored_offset(tmp_path: Path) -> None:
    file, offsets = tmp_path / "in.txt", FakeOffsets()
    file.write_text("1\n2\n3\n4\n")
    with started(file, offsets, batch_size="3") as task:
        records = task.poll()
        assert values(records) == ["1", "2", "3"]
        offsets.store(records[:2])
    with started(file, offsets) as task:
        assert values(read_all(task)) == ["3", "4"]


def test_bytes_that_are_not_utf_8_do_not_move_offsets(tmp_path: Path) -> None:
    file, offsets = tmp_path / "in.txt", FakeOffsets()
    file.write_bytes(b"\xff\xfe\nnext\n")
    with started(file, offsets) as task:
        records = read_all(task)
    assert values(records) == ["\ufffd\ufffd", "next"]
    offsets.store(records[:1])
    with started(file, offsets) as task:
        assert values(read_all(task)) == ["next"]


def test_a_renamed_log_is_read_to_its_end_before_its_successor(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("old 1\n")
    with started(file) as task:
        assert values(read_all(task)) == ["old 1"]
        with file.open("a") as log:
            file.rename(tmp_path / "in.txt.1")
            log.write("old 2\n")
        assert values(read_all(task)) == ["old 2"]
        file.write_text("new 1\nnew 2\n")
        records = read_all(task)
    assert (values(records), positions(records)) == (["new 1", "new 2"], [6, 12])


def test_a_log_that_is_copied_and_truncated_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("old 1\nold 2\n")
    with started(file) as task:
        read_all(task)
        file.write_text("new 1\nnew 2\nnew 3\n")
        assert values(read_all(task)) == ["new 1", "new 2", "new 3"]


def test_a_file_that_was_replaced_by_a_shorter_one_while_the_task_was_stopped_is_read(tmp_path: Path) -> None:
    file, offsets = tmp_path / "in.txt", FakeOffsets()
    file.write_text("old 1\nold 2\n")
    with started(file, offsets) as task:
        offsets.store(read_all(task))
    file.write_text("new 1\n")
    with started(file, offsets) as task:
        assert values(read_all(task)) == ["new 1"]


def test_a_line_longer_than_a_chunk_is_one_record(tmp_path: Path) -> None:
    file, line = tmp_path / "in.txt", "x" * (3 << 20)
    file.write_text(f"{line}\nnext\n")
    with started(file) as task:
        assert values(read_all(task)) == [line, "next"]


def test_a_line_beyond_the_limit_is_an_error_that_names_file_and_byte(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("short\n" + "x" * (3 << 20))
    with started(file, line_max_bytes="1000") as task, pytest.raises(ConnectError, match=r"in\.txt.*at byte 6 "):
        read_all(task)


@pytest.mark.parametrize("position", ["12", -1, True, 1.5])
def test_a_stored_offset_that_is_no_position_is_an_error(position: object, tmp_path: Path) -> None:
    file, offsets = tmp_path / "in.txt", FakeOffsets()
    offsets.set({"filename": str(file)}, {"position": position})
    with pytest.raises(ConnectError, match="expected a number of bytes"):
        start_source(FileStreamSourceTask, {"file": str(file), "topic": "lines"}, offsets)


def test_a_stored_offset_may_be_the_beginning(tmp_path: Path) -> None:
    file, offsets = tmp_path / "in.txt", FakeOffsets()
    file.write_text("first\n")
    offsets.set({"filename": str(file)}, {"position": 0})
    with started(file, offsets) as task:
        assert values(task.poll()) == ["first"]


def test_stop_ends_a_poll_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_stream, "_IDLE_S", 60)
    with started(tmp_path / "missing") as task:
        poll = threading.Thread(target=task.poll)
        poll.start()
        task.stop()
        poll.join()
        assert task.poll() == []


def test_without_a_file_the_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as standard_input, os.fdopen(write_end, "wb", 0) as writer:
        monkeypatch.setattr("sys.stdin", standard_input)
        task = start_source(FileStreamSourceTask, {"topic": "lines"})
        assert task.poll() == []
        writer.write(b"one\ntw")
        records = poll_until(task, 1)
        writer.write(b"o\n")
        records += poll_until(task, 1)
        task.stop()
    assert values(records) == ["one", "two"]
    assert records[0].source_partition == {"filename": None}
    assert records[0].source_offset == {"position": None}


def test_one_task_reads_the_file_whatever_tasks_max_is(tmp_path: Path) -> None:
    config = {"file": str(tmp_path / "in.txt"), "topic": "lines"}
    assert start_connector(FileStreamSourceConnector, config).task_configs(3) == [config]


@pytest.mark.parametrize(
    ("config", "setting"),
    [({}, "topic"), ({"topic": ""}, "topic"), ({"topic": "t", "batch.size": "0"}, r"batch\.size")],
)
def test_a_wrong_setting_is_named(config: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        start_connector(FileStreamSourceConnector, config)


def test_exactly_once_needs_a_file() -> None:
    connector = FileStreamSourceConnector()
    assert connector.exactly_once_support({"topic": "t", "file": "in.txt"})
    assert not connector.exactly_once_support({"topic": "t", "file": ""})


FILE = {"filename": "in.txt"}


@pytest.mark.parametrize(
    ("source_partition", "source_offset", "error"),
    [
        (FILE, {"position": 3}, None),
        (FILE, None, None),
        ({"garbage": 1}, None, None),
        (FILE, {"place": 3}, "position"),
        (FILE, {"position": "3"}, "'3'"),
        (FILE, {"position": -3}, "-3"),
        ({"file": "in.txt"}, {"position": 3}, "filename"),
    ],
)
def test_offsets_that_a_user_sets_are_checked_as_by_kafka(
    source_partition: dict[str, Any], source_offset: dict[str, Any] | None, error: str | None
) -> None:
    connector, config = FileStreamSourceConnector(), {"topic": "t", "file": "in.txt"}
    if error is None:
        assert connector.alter_offsets(config, [(source_partition, source_offset)])
    else:
        with pytest.raises(ConnectError, match=error):
            connector.alter_offsets(config, [(source_partition, source_offset)])


def test_offsets_of_the_standard_input_cannot_be_set() -> None:
    with pytest.raises(ConnectError, match="'file'"):
        FileStreamSourceConnector().alter_offsets({"topic": "t"}, [(FILE, None)])
