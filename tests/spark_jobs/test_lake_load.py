"""Loaded files hold every record once, by topic and date, however often the job runs."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lake_load import JOB
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Sent, Topics

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
NOON_MS = 1_700_006_400_000 // DAY_MS * DAY_MS + DAY_MS // 2


@pytest.mark.parametrize("file_format", ["parquet", "json", "avro", "orc"])
def test_each_run_adds_the_new_records_alone(
    file_format: str, spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    left, right = topics.create("left", 2), topics.create("right", 1)
    flags = ["--input", f"{left},{right}", "--path", str(tmp_path / "lake"), "--format", file_format]
    for day in range(2):
        topics.send(left, [Sent(b"%d" % number, b"k", number % 2, NOON_MS + day * DAY_MS) for number in range(10)])
        topics.send(right, [Sent(None, b"gone", 0, NOON_MS + day * DAY_MS)])
        for _ in range(2 - day):
            job_runner.run(JOB, *flags)
    table = spark.read.format(file_format).load(str(tmp_path / "lake"))
    places = {(row.topic, row.partition, row.offset) for row in table.collect()}
    assert table.count() == len(places) == 22
    assert places == {(left, number % 2, number // 2) for number in range(20)} | {(right, 0, 0), (right, 0, 1)}
    assert table.where("value IS NULL AND key = 'gone'").count() == 2
    folders = sorted(path.name for path in (tmp_path / "lake" / f"topic={left}").iterdir())
    assert folders == ["date=2023-11-15", "date=2023-11-16"]


def test_a_new_checkpoint_does_not_mix_with_the_files_of_another(
    topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    (tmp_path / "lake" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(JobError, match="has batches of another checkpoint"):
        job_runner.run(JOB, "--input", "unread", "--path", str(tmp_path / "lake"))


def test_an_unknown_column_is_refused(job_runner: JobRunner, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job_runner.parse(JOB, "--path", "x", "--partition-by", "topic,minute")
    assert "expected some of topic, partition, date, hour, not 'minute'" in capsys.readouterr().err
