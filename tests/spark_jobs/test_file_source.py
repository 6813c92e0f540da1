"""A file reaches a topic and another file byte for byte, across restarts and repeated batches."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_jobs import file_sink, file_source
from spark_jobs.file_sink import LineFile
from spark_jobs.file_source import Position, send_new_lines
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.topics import partition_count
from tests.spark_jobs.conftest import JobRunner, Topics, lines, record_ids, records


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
    assert record_ids(found) == [f"in.txt/{offset}" for offset in (0, 4, 5, 9, 25)]
    file.write_bytes(b"new\n")
    send(topics, file, topic)
    assert records(topics.read(topic))[-1] == (None, "new")


def test_a_file_that_is_rotated_may_be_missing_for_a_time(topics: Topics, tmp_path: Path) -> None:
    topic, file, position = topics.create("lines", 1), tmp_path / "in.txt", Position(tmp_path / "position")
    producer = Producer(topics.client)
    sent = []
    for step in (lambda: file.write_text("old 1\nold 2\n"), file.unlink, lambda: file.write_text("new\n")):
        step()
        sent.append(send_new_lines(file, topic, position, producer))
    assert sent == [2, 0, 1]
    assert [value for _, value in records(topics.read(topic))] == ["old 1", "old 2", "new"]


def test_a_missing_topic_is_made_with_one_partition_which_keeps_the_order(topics: Topics, tmp_path: Path) -> None:
    topic, file = topics.new_name("lines"), tmp_path / "in.txt"
    file.write_text("1\n")
    flags = ["--bootstrap-servers", topics.bootstrap, "--file", str(file), "--output", topic, "--once"]
    assert file_source.main([*flags, "--checkpoint", str(tmp_path / "position"), "--create-topics"]) == 0
    assert partition_count(topics.client, topic) == 1


def test_a_missing_file_is_named(topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--bootstrap-servers", topics.bootstrap, "--file", str(tmp_path / "none"), "--checkpoint", str(tmp_path)]
    assert file_source.main([*flags, "--output", topics.create("lines"), "--once"]) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.spark
def test_a_file_through_a_topic_is_the_same_file(topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    topic, file, copy = topics.create("lines", 1), tmp_path / "in.txt", tmp_path / "out.txt"
    choose = random.Random(9)
    texts = [f"{'ä' * choose.randrange(40)}{number}\n" for number in range(2_000)]
    file.write_bytes(b"".join(text.encode(choose.choice(("utf-8", "latin-1"))) for text in texts))
    for _ in range(2):
        send(topics, file, topic)
        job_runner.run(file_sink.JOB, "--input", topic, "--file", str(copy))
    assert copy.read_bytes() == file.read_bytes()
    with pytest.raises(JobError, match=r"out\.txt\.batches has batch \d of file_sink"):
        job_runner.run(file_sink.JOB, "--input", topic, "--file", str(copy), "--checkpoint", str(tmp_path / "new"))


@pytest.mark.spark
def test_two_topics_reach_one_file(topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    left, right, file = topics.create("left", 1), topics.create("right", 1), tmp_path / "both.txt"
    topics.send(left, lines("1", "2"))
    topics.send(right, lines("3"))
    job_runner.run(file_sink.JOB, "--input", f"{left},{right}", "--file", str(file))
    assert file.read_text() == "1\n2\n3\n"


def test_a_repeated_batch_replaces_its_own_lines(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    LineFile(file).write(0, [b"a"])
    LineFile(file).write(1, [b"b", b"half of the batch"])
    LineFile(file).write(1, [b"b", b"c"])
    LineFile(file).write(2, [b"d"])
    assert file.read_text() == "a\nb\nc\nd\n"
