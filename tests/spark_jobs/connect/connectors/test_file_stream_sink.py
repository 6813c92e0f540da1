"""The sink of lines has each record once in its file, also after a crash, and writes values as Kafka's sink does."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from base.system_calls import SYSTEM_CALLS
from base.topic_partition import TopicPartition
from spark_jobs.connect.base.api import SinkTask
from spark_jobs.connect.base.data import FLOAT64, INT32, STRING, Schema, Struct, Type, array_schema, struct_schema
from spark_jobs.connect.base.errors import ConnectError, RetriableError
from spark_jobs.connect.base.records import SinkRecord
from spark_jobs.connect.connectors import sink_file
from spark_jobs.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSinkTask
from spark_jobs.connect.connectors.sink_file import offsets_path
from tests.spark_jobs.connect.contexts import FakeSinkContext, sink_record, start_connector, start_sink

PARTITION = ("topic", 0)


def start(file: Path, **others: str) -> SinkTask:
    return start_sink(FileStreamSinkTask, {"file": str(file), **others}, PARTITION)


def context(task: SinkTask) -> FakeSinkContext:
    assert isinstance(task.context, FakeSinkContext)
    return task.context


def records(start: int, end: int, topic: str = "topic") -> Sequence[SinkRecord]:
    return [sink_record(f"value {offset}", offset, topic) for offset in range(start, end)]


def lines(start: int, end: int) -> str:
    return "".join(f"value {offset}\n" for offset in range(start, end))


@pytest.mark.parametrize(
    ("value", "schema", "line"),
    [
        ("text", STRING, "text"),
        (None, None, "null"),
        (True, None, "true"),
        (12, INT32, "12"),
        (1e10, FLOAT64, "1.0E10"),
        (0.10000000149011612, Schema(Type.FLOAT32), "0.1"),
        (b"b\xc3\xa4r", None, "bär"),
        ({"a": 1, "b": [True, None]}, None, "{a=1, b=[true, null]}"),
        ([1, 2], array_schema(INT32), "[1, 2]"),
        (Struct(struct_schema({"a": INT32, "b": FLOAT64}), {"a": 1, "b": 0.5}), None, "Struct{a=1,b=0.5}"),
    ],
)
def test_values_are_written_as_by_java(value: Any, schema: Schema | None, line: str, tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    task = start(file)
    task.put([sink_record(value, value_schema=schema)])
    task.stop()
    assert file.read_text() == f"{line}\n"


def test_lines_are_appended_to_what_a_file_has(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text("earlier\n")
    task = start(file)
    task.put(records(0, 2))
    task.put([])
    task.put(records(2, 3))
    task.stop()
    assert file.read_text() == "earlier\n" + lines(0, 3)


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_records_that_are_delivered_again_after_a_crash_are_there_once_if_exactly_once(
    exactly_once: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.txt"
    task = start(file, **{"exactly.once": exactly_once})
    task.put(records(0, 2))
    task.flush({PARTITION: 2})
    task.put(records(2, 4))
    task.stop()  # without a flush
    again = start(file, **{"exactly.once": exactly_once})
    begin = context(again).sought.get(PARTITION, 1)  # the group has offset 1 only
    again.put(records(begin, 4))
    again.flush({PARTITION: 4})
    again.stop()
    assert file.read_text() == (lines(0, 4) if exactly_once == "true" else lines(0, 4) + lines(1, 4))


WRITER = """
import os, signal, sys
from spark_jobs.connect.connectors.file_stream import FileStreamSinkTask
from tests.spark_jobs.connect.contexts import sink_record, start_sink

file, flushed, killed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
task = start_sink(FileStreamSinkTask, {"file": file}, ("topic", 0))
for offset in range(task.context.sought.get(("topic", 0), 0), killed):
    task.put([sink_record(f"value {offset}", offset)])
    if offset + 1 == flushed:
        task.flush({("topic", 0): offset + 1})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_leaves_no_duplicate_and_no_gap(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    for flushed, killed in ((3, 5), (7, 7), (0, 9), (10, 12)):
        arguments = [sys.executable, "-P", "-c", WRITER, str(file), str(flushed), str(killed)]
        ended = subprocess.run(arguments, env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
        assert ended.returncode == -signal.SIGKILL
    task = start(file)
    task.put(records(context(task).sought[PARTITION], 13))
    task.stop()
    assert file.read_text() == lines(0, 13)


def test_partitions_that_were_lost_without_a_flush_continue_behind_what_the_file_has(tmp_path: Path) -> None:
    task = start(tmp_path / "out.txt")
    task.put(records(0, 2))
    task.close([PARTITION])
    task.open([PARTITION])
    assert context(task).sought == {PARTITION: 2}
    task.stop()


def fail(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("name", "failing", "next_offset"),
    [
        ("replace_file", fail, 4),
        ("SYSTEM_CALLS", SYSTEM_CALLS._replace(sync_data=fail), 2),  # the content of the file is not certain
    ],
)
def test_after_a_flush_that_fails_records_are_there_once(
    name: str, failing: object, next_offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = start(tmp_path / "out.txt")
    task.put(records(0, 2))
    task.flush({PARTITION: 2})
    task.put(records(2, 4))
    with monkeypatch.context() as patch:
        patch.setattr(sink_file, name, failing)
        with pytest.raises(OSError, match="No space left"):
            task.flush({PARTITION: 4})
    assert context(task).sought == {PARTITION: next_offset}
    task.put(records(next_offset, 5))
    task.flush({PARTITION: 5})
    task.stop()
    assert (tmp_path / "out.txt").read_text() == lines(0, 5)
    again = start(tmp_path / "out.txt")
    again.stop()
    assert context(again).sought == {PARTITION: 5}


def test_a_new_file_begins_at_the_offsets_of_the_group(tmp_path: Path) -> None:
    task = start(tmp_path / "out.txt")
    task.stop()
    assert context(task).sought == {}


def test_a_file_that_was_shortened_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    task = start(file)
    task.put(records(0, 2))
    task.flush({PARTITION: 2})
    task.stop()
    file.write_text("")
    task = start(file)
    task.put(records(2, 3))
    task.flush({PARTITION: 3})
    task.stop()
    task = start(file)
    task.stop()
    assert file.read_text() == lines(2, 3)


def test_a_second_task_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    first = start(file)
    with pytest.raises(ConnectError, match=r"another task writes the file .*out\.txt"):
        start(file)
    first.stop()
    start(file).stop()


def test_one_task_writes_a_file_exactly_once_and_all_others(tmp_path: Path) -> None:
    config = {"file": str(tmp_path / "out.txt")}
    assert len(start_connector(FileStreamSinkConnector, config).task_configs(3)) == 1
    assert len(start_connector(FileStreamSinkConnector, config | {"exactly.once": "false"}).task_configs(3)) == 3
    assert len(start_connector(FileStreamSinkConnector, {}).task_configs(3)) == 3


def test_offsets_that_a_user_sets_replace_those_beside_the_file(tmp_path: Path) -> None:
    config = {"file": str(tmp_path / "out.txt")}
    task = start(tmp_path / "out.txt")
    task.put(records(0, 5))
    task.flush({PARTITION: 5, ("other", 1): 7})
    task.stop()
    assert FileStreamSinkConnector().alter_offsets(config, {PARTITION: 2, ("other", 1): None})
    task = start_sink(FileStreamSinkTask, config, PARTITION, ("other", 1))
    task.stop()
    assert context(task).sought == {PARTITION: 2}


def test_offsets_of_a_topic_that_was_deleted_are_dropped(tmp_path: Path) -> None:
    config = {"file": str(tmp_path / "out.txt")}

    def sought_and_stored(topic_id: str | None, *, end: int = 0) -> dict[TopicPartition, int]:
        """Return where a task begins whose topic has that id, and which stores an end unless that is 0."""
        task = start_sink(FileStreamSinkTask, config, PARTITION, ids={"topic": topic_id} if topic_id else {})
        if end:
            task.flush({PARTITION: end})
        task.stop()
        return context(task).sought

    assert sought_and_stored(None, end=5) == {}
    assert sought_and_stored("first", end=6) == {PARTITION: 5}  # an id that was not known is no other one
    assert sought_and_stored("first") == sought_and_stored(None) == {PARTITION: 6}
    assert sought_and_stored("second") == sought_and_stored(None) == {}
    assert sought_and_stored("second", end=2) == {}
    assert sought_and_stored("second") == {PARTITION: 2}


def test_damaged_offsets_are_an_error_that_names_their_file(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    offsets_path(file).write_text('{"length": ')
    with pytest.raises(ConnectError, match=r"out\.txt\.offsets is damaged"):
        start(file)


def test_a_file_that_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"missing/out\.txt.*No such file"):
        start(tmp_path / "missing" / "out.txt")


def test_a_full_disk_leaves_no_part_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.txt"
    task = start(file)
    task.put(records(0, 1))
    write = os.write

    def write_a_part(descriptor: int, content: memoryview) -> int:
        monkeypatch.setattr(os, "write", fail)
        return write(descriptor, content[:3])

    def fail(_descriptor: int, _content: memoryview) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "write", write_a_part)
    with pytest.raises(RetriableError, match="No space left"):
        task.put(records(1, 3))
    monkeypatch.undo()
    task.put(records(1, 3))
    task.stop()
    assert file.read_text() == lines(0, 3)


def test_without_a_file_the_standard_output_is_written(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    task = start_sink(FileStreamSinkTask, {}, PARTITION)
    task.put([sink_record("bär"), sink_record(None)])
    task.flush({PARTITION: 2})
    task.stop()
    assert capsysbinary.readouterr().out == "bär\nnull\n".encode()
