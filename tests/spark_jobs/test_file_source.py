"""A file reaches a topic line by line across restarts and rotations; a file of a sink has the lines of a batch once."""

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_jobs import file_source
from spark_jobs.file_sink import LineFile
from spark_jobs.file_source import Place, Position, Tail, send_new_lines
from spark_jobs.skeleton.topics import partition_count
from tests.spark_jobs.conftest import Topics, record_ids, records


def send(topics: Topics, file: Path, topic: str) -> None:
    flags = ["--bootstrap-servers", topics.bootstrap, "--file", str(file), "--output", topic, "--once"]
    assert file_source.main([*flags, "--checkpoint", str(file.parent / "position")]) == 0


def test_lines_are_sent_once_also_those_that_come_later(topics: Topics, tmp_path: Path) -> None:
    topic, file = topics.create("lines", 1), tmp_path / "in.txt"
    file.write_bytes(b"foo\n\nbar\nunfinished")
    send(topics, file, topic)
    with file.open("ab") as more:
        more.write(b" line\nlater\n")
    send(topics, file, topic)
    send(topics, file, topic)
    found = topics.read(topic)
    assert [value for _, value in records(found)] == ["foo", "", "bar", "unfinished line", "later"]
    assert record_ids(found) == [f"in.txt/0/{offset}" for offset in (0, 4, 5, 9, 25)]
    file.write_bytes(b"new\n")
    send(topics, file, topic)
    found = topics.read(topic)
    assert (records(found)[-1], record_ids(found)[-1]) == ((None, "new"), "in.txt/1/0")


def test_a_file_that_was_replaced_while_the_job_was_stopped_is_read_from_its_start(
    topics: Topics, tmp_path: Path
) -> None:
    topic, file = topics.create("lines", 1), tmp_path / "in.txt"
    for text in ("old 1\n", "new 1\nnew 2\n", "new 1\nnew 2\nnew 3\n"):
        (tmp_path / "next").write_text(text)
        (tmp_path / "next").rename(file)
        send(topics, file, topic)
    found = topics.read(topic)
    assert [value for _, value in records(found)] == ["old 1", "new 1", "new 2", "new 3"]
    assert record_ids(found) == ["in.txt/0/0", "in.txt/1/0", "in.txt/1/6", "in.txt/1/12"]


def test_a_running_job_reads_a_log_to_its_end_before_its_successor(topics: Topics, tmp_path: Path) -> None:
    topic, file = topics.create("lines", 1), tmp_path / "in.txt"
    file.write_text("old 1\n")
    producer = Producer(topics.client)
    sent = []

    def rotate() -> None:
        with file.open("a") as log:
            file.rename(tmp_path / "in.txt.1")
            log.write("old 2\n")

    with closing(Tail(file, Position(tmp_path / "position"), quiet_s=0)) as tail:
        for step in (lambda: None, rotate, lambda: None, lambda: file.write_text("new 1\nnew 2\n"), lambda: None):
            step()
            sent.append(send_new_lines(tail, topic, producer))
    assert sent == [1, 1, 0, 2, 0]
    found = topics.read(topic)
    assert [value for _, value in records(found)] == ["old 1", "old 2", "new 1", "new 2"]
    assert record_ids(found) == ["in.txt/0/0", "in.txt/0/6", "in.txt/1/0", "in.txt/1/6"]


@pytest.mark.parametrize("moment", ["after", "before"])
def test_a_log_that_is_copied_and_truncated_is_read_from_its_start(moment: str, tmp_path: Path) -> None:
    file, position = tmp_path / "in.txt", Position(tmp_path / "position")
    file.write_text("old 1\nold 2\n")
    with closing(Tail(file, position)) as tail:
        _, part = tail.read()
        if moment == "after":
            tail.has_stored(part)
        file.write_text("new 1\nnew 2\nnew 3\n")
        if moment == "before":
            tail.has_stored(part)
        place, part = tail.read()
    assert (place.offset, place.rotation, part) == (0, 1, b"new 1\nnew 2\nnew 3\n")


def test_lines_that_are_sent_again_after_a_rotation_have_the_same_ids(tmp_path: Path) -> None:
    file, position = tmp_path / "in.txt", Position(tmp_path / "position")
    position.store(Place(100))
    file.write_text("new\n")
    for _ in range(2):  # the first one ends before the broker has the lines
        with closing(Tail(file, position)) as tail:
            place, part = tail.read()
            assert (place.offset, place.rotation, part) == (0, 1, b"new\n")


def test_a_missing_topic_is_made_with_one_partition_which_keeps_the_order(topics: Topics, tmp_path: Path) -> None:
    topic, file = topics.new_name("lines"), tmp_path / "in.txt"
    file.write_text("1\n")
    flags = ["--bootstrap-servers", topics.bootstrap, "--file", str(file), "--output", topic, "--once"]
    assert file_source.main([*flags, "--checkpoint", str(tmp_path / "position"), "--create-topics"]) == 0
    assert partition_count(topics.client, topic) == 1


def test_a_line_of_the_size_that_brokers_accept_is_sent(topics: Topics, tmp_path: Path) -> None:
    topic, file = topics.create("lines", 1), tmp_path / "in.txt"
    file.write_bytes(b"x" * 1_048_000 + b"\n")
    send(topics, file, topic)
    assert [len(message.value()) for message in topics.read(topic)] == [1_048_000]


def test_a_line_that_is_too_large_is_named(topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"first\n" + b"x" * 1_100_000 + b"\n")
    flags = ["--bootstrap-servers", topics.bootstrap, "--file", str(file), "--checkpoint", str(tmp_path)]
    assert file_source.main([*flags, "--output", topics.create("lines"), "--once"]) == 1
    assert f"{file}: the line of 1100000 bytes at byte 6: " in capsys.readouterr().err


def test_a_missing_file_is_named(topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--bootstrap-servers", topics.bootstrap, "--file", str(tmp_path / "none"), "--checkpoint", str(tmp_path)]
    assert file_source.main([*flags, "--output", topics.create("lines"), "--once"]) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("left_out", ["file", "output", "checkpoint"])
def test_a_missing_flag_is_named(left_out: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = {"bootstrap-servers": "127.0.0.1:1", "file": "f", "output": "o", "checkpoint": "c"}
    with pytest.raises(SystemExit, match="2"):
        file_source.main([f"--{name}={value}" for name, value in flags.items() if name != left_out])
    assert f"the following arguments are required: --{left_out}" in capsys.readouterr().err


def test_a_repeated_batch_replaces_its_own_lines(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    LineFile(file).write(0, [b"a"])
    LineFile(file).write(1, [b"b", b"half of the batch"])
    LineFile(file).write(1, [b"b", b"c"])
    LineFile(file).write(2, [b"d"])
    assert file.read_text() == "a\nb\nc\nd\n"


def test_a_repeated_batch_adds_no_bytes_to_a_file_that_was_shortened(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    LineFile(file).write(0, [b"a", b"b"])
    LineFile(file).write(1, [b"c"])
    file.write_text("b\n")
    LineFile(file).write(1, [b"c"])
    assert file.read_text() == "b\nc\n"
    file.unlink()
    LineFile(file).write(1, [b"c"])
    assert file.read_text() == "c\n"
