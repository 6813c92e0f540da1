"""A file reaches a topic and another file byte for byte, across restarts."""

import random
from pathlib import Path

import pytest

from spark_jobs import file_sink
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Topics, lines
from tests.spark_jobs.test_file_source import send

pytestmark = pytest.mark.spark


def test_a_file_through_a_topic_is_the_same_file(topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    topic, file, copy = topics.create("lines", 1), tmp_path / "in.txt", tmp_path / "out.txt"
    choose = random.Random(9)
    texts = [f"{'ä' * choose.randrange(40)}{number}\n" for number in range(2_000)]
    file.write_bytes(b"".join(text.encode(choose.choice(("utf-8", "latin-1"))) for text in texts))
    for _ in range(2):
        send(topics, file, topic)
        job_runner.run(file_sink.JOB, "--input", topic, "--file", str(copy))
    assert copy.read_bytes() == file.read_bytes()
    with pytest.raises(JobError, match=r"out\.txt\.batches has batch \d of file_sink.* or another --file$"):
        job_runner.run(file_sink.JOB, "--input", topic, "--file", str(copy), "--checkpoint", str(tmp_path / "new"))


def test_two_topics_reach_one_file(topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    left, right, file = topics.create("left", 1), topics.create("right", 1), tmp_path / "both.txt"
    topics.send(left, lines("1", "2"))
    topics.send(right, lines("3"))
    job_runner.run(file_sink.JOB, "--input", f"{left},{right}", "--file", str(file))
    assert file.read_text() == "1\n2\n3\n"
