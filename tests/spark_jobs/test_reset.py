"""Reprocessing: beside the old job with a comparison, and in place after a reset; both equal a fresh run."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

from spark_jobs import reset, wordcount
from spark_jobs.compare import compare
from spark_jobs.compare import last_values as values_by_key
from spark_jobs.skeleton.commits import GroupOffsets
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.presence import RunningSign
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values, lines

pytestmark = pytest.mark.spark


def make_old(folder: Path) -> None:
    """Change the times of all files below a folder, as if the job had stopped long ago."""
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))


def run_steps(spark: SparkSession, arguments: list[str]) -> list[str]:
    steps = reset.plan(spark, reset.parse(arguments))
    for _, step in steps:
        step()
    return [text for text, _ in steps]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_job_that_was_reset_reads_everything_again_into_a_topic_without_values(
    policy: str, spark: SparkSession, topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("words", 2), topics.create("counts", 1, {"cleanup.policy": policy})
    topics.send(source, [*lines("a b", "b"), *lines("c", partition=1)])
    flags = ["--input", source, "--output", target, "--commit-group", f"reset-{policy}"]
    job_runner.supervise(wordcount.JOB, *flags)
    fresh = last_values(topics.read(target))
    checkpoint = job_runner.folder / "checkpoint"
    arguments = ["wordcount", "--bootstrap-servers", topics.bootstrap, "--checkpoint", str(checkpoint)]
    arguments += ["--input", source, "--commit-group", f"reset-{policy}", "--delete-output", "--output", target]
    with pytest.raises(JobError, match=r"wordcount: .*/checkpoint has changed \d+ s ago: stop the job first"):
        run_steps(spark, arguments)
    make_old(checkpoint)
    running = RunningSign(Folder(spark, str(checkpoint)))  # of a job without input
    while not (checkpoint / "running").exists():
        time.sleep(0.01)
    with pytest.raises(JobError, match="stop the job first"):
        run_steps(spark, arguments)
    running.close()
    assert not (checkpoint / "running").exists()
    texts = run_steps(spark, arguments)
    assert texts[:2] == [
        f"write a tombstone for each key of {target}, which is compacted"
        if policy == "compact"
        else f"delete the records of {target}",
        f"set the offsets of group reset-{policy}: {source}-0 0; {source}-1 0",
    ]
    assert not checkpoint.exists()
    assert last_values(topics.read(target)) == (dict.fromkeys(fresh) if policy == "compact" else {})
    job_runner.supervise(wordcount.JOB, *flags, "--from-group")
    assert last_values(topics.read(target)) == fresh == {"a": "1", "b": "2", "c": "1"}


def test_a_group_is_set_to_a_time_or_an_offset_within_the_partition(topics: Topics, spark: SparkSession) -> None:
    topic = topics.create("timed", 2)
    topics.send(topic, [Sent(b"x", partition=0, timestamp_ms=1_000 * second) for second in range(1, 11)])
    arguments = ["app", "--bootstrap-servers", topics.bootstrap, "--checkpoint", "none", "--commit-group", "timed"]
    arguments += ["--input", topic]
    expected = {
        ("--to-datetime", "1970-01-01T00:00:05Z"): {0: 4, 1: 0},
        ("--to-datetime", "2030-01-01"): {0: 10, 1: 0},
        ("--to-offset", "7"): {0: 7, 1: 0},
        ("--to-earliest",): {0: 0, 1: 0},
    }
    for flags, offsets in expected.items():
        run_steps(spark, [*arguments, *flags])
        group = GroupOffsets(topics.client, "timed")
        assert group.committed([topic]) == {topic: offsets}
        group.close()


def test_a_partition_whose_offsets_are_unknown_is_not_set_to_its_end(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("timed", 1)
    topics.send(topic, lines("a"))

    class WithoutLeader(Consumer):
        def offsets_for_times(self, places: list[TopicPartition], _timeout_s: float) -> list[Any]:
            error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            return [SimpleNamespace(offset=place.offset, error=error) for place in places]

    monkeypatch.setattr(reset, "Consumer", WithoutLeader)
    flags = ["app", "--bootstrap-servers", topics.bootstrap, "--checkpoint", "none", "--commit-group", "g"]
    with pytest.raises(JobError, match=f"--to-datetime: no offset of {topic}-0: .*[Ll]eader not available"):
        reset.new_offsets(reset.parse([*flags, "--input", topic, "--to-datetime", "2024-01-01"]))


def test_a_group_that_cannot_be_set_keeps_the_checkpoint(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, checkpoint = topics.create("words"), tmp_path / "checkpoint"
    checkpoint.mkdir()
    arguments = ["app", "--bootstrap-servers", topics.bootstrap, "--checkpoint", str(checkpoint), "--force"]
    arguments += ["--commit-group", f"{topic}-readers", "--input"]
    with pytest.raises(JobError, match="no-such-topic cannot be read: "):
        run_steps(spark, [*arguments, "no-such-topic"])
    member = Consumer({**topics.client, "group.id": f"{topic}-readers"})
    try:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        with pytest.raises(JobError, match=f"group {topic}-readers: offsets were not committed: "):
            run_steps(spark, [*arguments, topic])
    finally:
        member.close()
    assert checkpoint.is_dir()


def test_a_second_version_beside_the_first_is_compared_by_key(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    source, first, second = topics.create("words", 1), topics.create("v1", 1), topics.create("v2", 1)
    topics.send(source, lines("a the a b"))
    job_runner.run(wordcount.JOB, "--input", source, "--output", first)
    beside = ["--app-id", "wordcount-2", "--checkpoint", str(job_runner.folder / "second"), "--input", source]
    job_runner.run(wordcount.JOB, *beside, "--output", second, "--stop-words", "b")
    options = {"kafka.bootstrap.servers": topics.bootstrap}
    assert compare(spark, options, first, first, 20)
    assert not compare(spark, options, first, second, 20)
    assert capsys.readouterr().out.splitlines() == [
        f"2 keys in {first}, 0 of both topics differ",
        f"b: {first} has 1, {second} has None",
        f"the: {first} has None, {second} has 1",
        f"2 keys in {first}, 2 of both topics differ",
    ]


def test_the_last_value_of_a_key_has_the_highest_offset_of_its_partition(spark: SparkSession, topics: Topics) -> None:
    left, right = topics.create("v1", 2), topics.create("v2", 2)
    for topic, first in ((left, b"1"), (right, b"3")):
        topics.send(topic, [Sent(b"old", b"moved", partition=1, timestamp_ms=4_000)])
        topics.send(topic, [Sent(first, b"kept", timestamp_ms=6_000), Sent(b"2", b"kept", timestamp_ms=5_000)])
        topics.send(topic, [Sent(b"5", b"moved", timestamp_ms=5_000)])
        topics.send(topic, [Sent(b"6", b"gone", timestamp_ms=6_000), Sent(None, b"gone", timestamp_ms=5_000)])
    options = {"kafka.bootstrap.servers": topics.bootstrap, "startingOffsets": "earliest"}
    assert compare(spark, options, left, right, 20)
    values = {row.key: row.value for row in values_by_key(spark, options, right).collect()}
    assert values == {"kept": "2", "moved": "5"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--delete-output"], "--delete-output: needs --output TOPIC or --output-folder DIR"),
        (["--commit-group", "g"], "--commit-group: needs --input TOPIC"),
        (["--to-datetime", "soon"], "expected a time such as 2013-01-31T10:00:00Z, not 'soon'"),
        (["--to-earliest", "--to-offset", "1"], "not allowed with"),
    ],
)
def test_wrong_flags_are_named(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        reset.parse(["app", "--bootstrap-servers", "b:1", "--checkpoint", "c", *flags])
    assert message in capsys.readouterr().err
