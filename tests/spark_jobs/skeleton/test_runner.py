"""The process of a job: exit codes, reports, committed offsets, lost checkpoints."""

import logging
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_jobs import split_errors, stock_stats, top10, wordcount
from spark_jobs.skeleton import commits, runner
from spark_jobs.skeleton.commits import GroupOffsets
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.metrics import JobMetrics
from spark_jobs.skeleton.progress import Batch
from tests.spark_jobs.conftest import DISK_IS_FULL, JobRunner, Topics, last_values, lines, objects

pytestmark = pytest.mark.spark


def committed(topics: Topics, group: str, topic: str) -> dict[int, int]:
    offsets = GroupOffsets(topics.client, group)
    try:
        return dict(offsets.committed([topic]).get(topic, {}))
    finally:
        offsets.close()


def test_a_group_gets_the_end_offsets_and_tells_that_a_checkpoint_is_lost(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("words", 2), topics.create("counts", 1)
    topics.send(source, [*lines("a", "b", "c"), *lines("d", partition=1)])
    flags = ["--input", source, "--output", target, "--commit-group", "progress"]
    assert job_runner.supervise(wordcount.JOB, *flags) == 0
    assert committed(topics, "progress", source) == {0: 3, 1: 1}
    shutil.rmtree(job_runner.folder / "checkpoint")
    with pytest.raises(JobError, match=f"is new, but group progress has offsets in {source}: the job has run before"):
        job_runner.supervise(wordcount.JOB, *flags)
    topics.send(source, lines("a"))
    assert job_runner.supervise(wordcount.JOB, *flags, "--from-group") == 0
    assert committed(topics, "progress", source) == {0: 4, 1: 1}
    assert last_values(topics.read(target))["a"] == "1"
    shutil.rmtree(job_runner.folder / "checkpoint")
    assert job_runner.supervise(wordcount.JOB, *flags, "--starting-offsets", "earliest") == 0
    assert last_values(topics.read(target))["a"] == "2"


def test_an_offset_that_is_not_committed_is_reported_and_the_job_goes_on(
    job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    commits = runner.GroupCommits(job_runner.parse(wordcount.JOB, "--commit-group", "progress"))
    batch = Batch("app", 0, records=1, duration_ms=1, lag=0, state_rows=0, late=0, malformed=0)
    try:
        commits.on_batch(replace(batch, end_offsets={"no-such-topic": {0: 1}}))
    finally:
        commits.close()
    assert "group progress: " in caplog.text
    assert "not committed: " in caplog.text


def test_a_job_whose_name_is_that_of_dead_letters_commits_its_offsets(topics: Topics, job_runner: JobRunner) -> None:
    topic = topics.create("words")
    parameters = job_runner.parse(wordcount.JOB, "--app-id", "my-dead-letters", "--commit-group", f"{topic}-readers")
    commits = runner.GroupCommits(parameters)
    batch = Batch("my-dead-letters", 0, records=1, duration_ms=1, lag=0, state_rows=0, late=0, malformed=0)
    commits.on_batch(replace(batch, end_offsets={topic: {0: 1}}))
    commits.on_batch(replace(batch, query="my-dead-letters-dead-letters", end_offsets={topic: {0: 2}}))
    commits.close()
    assert committed(topics, f"{topic}-readers", topic) == {0: 1}


def test_a_job_of_several_queries_continues_and_begins_again_at_the_offsets_of_its_group(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, gains, target = topics.create("prices", 1), topics.create("gains", 1), topics.create("top", 1)
    flags = ["--input", source, "--intermediate-topic", gains, "--output", target, "--commit-group", "phases"]
    for count in (1, 2):  # the second run has the checkpoint of the first
        topics.send(source, objects({"symbol": "A", "price": 1.0}))
        assert job_runner.supervise(top10.JOB, *flags) == 0
        assert committed(topics, "phases", source) == {0: count}
    shutil.rmtree(job_runner.folder / "checkpoint")
    topics.send(source, objects({"symbol": "B", "price": 2.0}))
    assert job_runner.supervise(top10.JOB, *flags, "--from-group") == 0
    assert [message.key().endswith(b"|B") for message in topics.read(gains)].count(True) == 1
    assert committed(topics, "phases", source) == {0: 3}


def test_a_job_that_ended_before_its_first_batch_begins_at_the_offsets_of_its_group(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("words", 1), topics.create("counts", 1)
    topics.send(source, lines("a", "b"))
    group = GroupOffsets(topics.client, f"{source}-readers")
    group.commit({source: {0: 1}})
    group.close()
    checkpoint = job_runner.folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"7a6fc830-e279-4468-a6d3-9834fa785581"}')
    flags = ["--input", source, "--output", target, "--commit-group", f"{source}-readers", "--from-group"]
    for _ in range(2):
        assert job_runner.supervise(wordcount.JOB, *flags) == 0
    assert last_values(topics.read(target)) == {"b": "1"}


def test_offsets_that_the_broker_does_not_know_are_not_taken_for_absent(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = topics.create("words", 1), GroupOffsets(topics.client, "readers")

    class Unstable(Consumer):
        def committed(self, places: list[TopicPartition], _timeout_s: float) -> list[Any]:
            error = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
            return [SimpleNamespace(partition=place.partition, offset=-1001, error=error) for place in places]

    monkeypatch.setattr(commits, "Consumer", Unstable)
    with pytest.raises(JobError, match=f"group readers: the offset of {topic}-0 is unknown: "):
        group.committed([topic])
    group.close()


def test_the_jvm_ignores_sigterm_so_that_a_job_finishes_its_batch(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    status = Path(f"/proc/{gateway.proc.pid}/status").read_text()
    (ignored,) = re.findall(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert int(ignored, 16) >> (signal.SIGTERM - 1) & 1


def test_a_group_without_offsets_is_no_start(topics: Topics, job_runner: JobRunner) -> None:
    source = topics.create("words")
    with pytest.raises(JobError, match=f"--from-group: group unused has no offsets in {source}"):
        job_runner.supervise(wordcount.JOB, "--input", source, "--commit-group", "unused", "--from-group")


def test_batches_appear_as_prometheus_metrics() -> None:
    metrics = JobMetrics("app", ("127.0.0.1", 0))
    try:
        for number in range(2):
            figures = {"gauges": {"share": 0.5} if number == 0 else {}, "counters": {"verdicts": 4.0}}
            metrics.on_batch(
                Batch("app", number, records=10, duration_ms=500, lag=3, state_rows=7, late=1, malformed=2, **figures)
            )
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as response:
            text = response.read().decode()
    finally:
        metrics.close()
    labels = '{app="app",query="app"}'
    for line in (
        f"spark_job_records_total{labels} 20.0",
        f"spark_job_batches_total{labels} 2.0",
        f"spark_job_late_rows_total{labels} 2.0",
        f"spark_job_malformed_records_total{labels} 4.0",
        f"spark_job_batch_duration_seconds{labels} 0.5",
        f"spark_job_records_per_second{labels} 20.0",
        f"spark_job_lag_records{labels} 3.0",
        f"spark_job_state_rows{labels} 7.0",
        f"spark_job_batch{labels} 1.0",
        f"spark_job_share{labels} 0.5",
        f"spark_job_verdicts_total{labels} 8.0",
    ):
        assert line in text


def test_a_taken_metrics_port_is_named(job_runner: JobRunner) -> None:
    first = JobMetrics("app", ("127.0.0.1", 0))
    try:
        parameters = job_runner.parse(wordcount.JOB, "--metrics", str(first.port))
        with pytest.raises(JobError, match=f"--metrics: cannot listen on 127.0.0.1:{first.port}"):
            runner.observers(parameters)
    finally:
        first.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_job_waits_for_topics_ends_it_with_0(
    number: signal.Signals, topics: Topics, job_runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.skeleton.topics.time", SimpleNamespace(sleep=lambda _: signal.raise_signal(number)))
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # not the session's, which cancels jobs
    try:
        parameters = job_runner.parse(wordcount.JOB, "--input", topics.new_name("missing"))
        assert runner.run_job(parameters, wordcount.build, wordcount.JOB.topics(parameters)) == 0
    finally:
        signal.signal(signal.SIGINT, previous)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert not (job_runner.folder / "checkpoint").exists()


@pytest.mark.usefixtures("shared_session")
def test_a_setting_that_spark_refuses_exits_with_2_in_one_line(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, errors, others = (topics.create(stem) for stem in ("lines", "errors", "others"))
    flags = ["--bootstrap-servers", topics.bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    flags += ["--input", source, "--output", others, "--error-topic", errors]
    assert split_errors.JOB.main([*flags, "--kafka-option", "auto.offset.reset=latest"]) == 2
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "auto.offset.reset" in line
    assert "\n" not in line
    assert not (tmp_path / "checkpoint").exists()


class ScriptedQuery:
    """A query in its first batch; each wait for its end is an event of the script."""

    def __init__(self) -> None:
        self.events: list[Callable[[], object]] = []
        self.name = self.id = "app"
        self.status = {"isTriggerActive": True}
        self.recentProgress: list[object] = []
        self.lastProgress = None
        self._failure: StreamingQueryException | None = None

    def fail(self) -> None:
        self._failure = StreamingQueryException("[STREAM_FAILED] disk full")
        self.end_batch()

    def end_batch(self) -> None:
        self.status["isTriggerActive"] = False

    def exception(self) -> StreamingQueryException | None:
        return self._failure

    def awaitTermination(self, _timeout_s: float) -> bool:  # noqa: N802 - Spark's name
        if self._failure is not None:
            raise self._failure
        if self.events:
            self.events.pop(0)()
        return False

    def stop(self) -> None: ...


def ask_to_stop() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_query_that_fails_while_a_job_ends_after_a_signal_exits_with_1(caplog: pytest.LogCaptureFixture) -> None:
    main, dead_letters, alone = ScriptedQuery(), ScriptedQuery(), ScriptedQuery()
    main.events = [ask_to_stop, dead_letters.fail, main.end_batch]
    alone.events = [ask_to_stop, alone.fail]
    assert runner.supervise(cast("list[StreamingQuery]", [main, dead_letters]), []) == 1
    assert runner.supervise(cast("list[StreamingQuery]", [alone]), []) == 1
    failures = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert failures == ["query failed: [STREAM_FAILED] disk full"] * 2


@pytest.mark.usefixtures("shared_session")
def test_a_query_that_fails_exits_with_1_and_stops_the_others(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topics.create("words"), topics.create("counts", 1, {"max.message.bytes": "100"})
    topics.send(source, lines("w" * 500))
    flags = ["--bootstrap-servers", topics.bootstrap, "--checkpoint", str(tmp_path), "--input", source]
    assert wordcount.JOB.main([*flags, "--output", target]) == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith("query failed: ")
    assert "which exceeds the maximum configured value of 100" in line


def test_a_checkpoint_with_the_state_of_another_job_is_refused_with_a_hint(
    topics: Topics, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    source = topics.create("trades")
    trade = {"type": "ASK", "ticker": "IBM", "price": 5.0, "size": 1}
    topics.send(source, objects(trade))
    assert job_runner.supervise(stock_stats.JOB, "--input", source, "--output", topics.create("stats")) == 0
    topics.send(source, objects(trade))
    target = topics.create("counts")
    assert job_runner.supervise(wordcount.JOB, "--input", source, "--output", target) == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith("query failed: [STATE_STORE_")
    assert "or remove it with bin/spark-job reset" in line
    assert topics.read(target) == []


def test_a_full_disk_under_the_checkpoint_ends_the_job_which_continues_once_there_is_space(
    topics: Topics, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topics.create("words"), topics.create("counts")
    flags = ["--input", source, "--output", target]
    topics.send(source, lines("a b"))
    assert job_runner.supervise(wordcount.JOB, *flags) == 0
    topics.send(source, lines("a"))
    full = job_runner.folder / "checkpoint" / DISK_IS_FULL
    full.touch()
    assert job_runner.supervise(wordcount.JOB, *flags) == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line == "query failed: No space left on device"
    full.unlink()
    assert job_runner.supervise(wordcount.JOB, *flags) == 0
    assert last_values(topics.read(target)) == {"a": "2", "b": "1"}
