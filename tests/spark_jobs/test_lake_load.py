"""Loaded files hold every record once, by topic and date, however often the job runs; fields keep their types."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lake_load import JOB
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, begin_batch, objects

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


@pytest.mark.parametrize("entry", ["7", "7.compact"])
def test_an_old_checkpoint_does_not_skip_batches_of_a_newer_table(
    entry: str, job_runner: JobRunner, tmp_path: Path
) -> None:
    begin_batch(job_runner.folder / "checkpoint", 3)
    entries = tmp_path / "lake" / "_spark_metadata"
    entries.mkdir(parents=True)
    for name in ("3", ".3.crc", entry):
        (entries / name).touch()
    with pytest.raises(JobError, match=r"/lake has batch 7 of lake_load, but checkpoint .* ends at batch 3: name"):
        job_runner.run(JOB, "--input", "unread", "--path", str(tmp_path / "lake"))


def test_an_unknown_column_is_refused(job_runner: JobRunner, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job_runner.parse(JOB, "--path", "x", "--partition-by", "topic,minute")
    assert "expected some of topic, partition, date, hour, not 'minute'" in capsys.readouterr().err


def test_the_schema_of_the_first_run_holds_for_later_ones(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source, dead = topics.create("customers", 2), topics.create("dead", 1)
    flags = ["--input", source, "--path", str(tmp_path / "lake"), "--infer-schema", "--dead-letter", dead]
    no_objects = [Sent(b"{"), Sent(b"[1]"), Sent(b"7")]
    topics.send(
        source, [*objects({"id": 1, "email": None}, {"id": 2, "tags": ["a"]}), *no_objects, Sent(None, b"gone")]
    )
    topics.send(source, [Sent(b'{"id": 3, "address": {"zip": 8001}}', partition=1)])
    job_runner.run(JOB, *flags)
    misfits = objects({"id": 4.5}, {"id": "5"}, {"address": {"zip": []}})
    topics.send(source, [*objects({"id": 6, "email": "a@b", "added": True}), *misfits])
    job_runner.run(JOB, *flags, "--max-offsets-per-trigger", "3")
    rows = spark.read.parquet(str(tmp_path / "lake"))
    assert rows.schema["value"].simpleString() == (
        "value:struct<address:struct<zip:bigint>,email:string,id:bigint,tags:array<string>>"
    )
    found = {row.value.id: row.value.asDict(recursive=True) for row in rows.where("value IS NOT NULL").collect()}
    empty = {"id": None, "email": None, "tags": None, "address": None}
    assert found == {
        1: {**empty, "id": 1},
        2: {**empty, "id": 2, "tags": ["a"]},
        3: {**empty, "id": 3, "address": {"zip": 8001}},
        6: {**empty, "id": 6, "email": "a@b"},
    }
    assert [row.key for row in rows.where("value IS NULL").collect()] == ["gone"]
    refused = sorted(str(message.value()) for message in topics.read(dead))
    assert refused == sorted(str(each.value) for each in (*no_objects, *misfits))


def test_values_in_connects_envelope_get_the_schema_of_their_payload(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source = topics.create("enveloped", 1)
    topics.send(source, objects({"schema": {"type": "struct"}, "payload": {"id": 1}}))
    flags = ["--input", source, "--path", str(tmp_path / "lake"), "--infer-schema", "--value-format", "json-envelope"]
    job_runner.run(JOB, *flags, "--max-offsets-per-trigger", "10")
    assert [row.value.asDict() for row in spark.read.parquet(str(tmp_path / "lake")).collect()] == [{"id": 1}]


def test_a_declared_schema_needs_no_records(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source, schema = topics.create("declared", 1), tmp_path / "schema.ddl"
    flags = ["--input", source, "--path", str(tmp_path / "lake"), "--value-schema", str(schema), "--on-error", "skip"]
    schema.write_text("id BIGINT,\n  price")
    with pytest.raises(JobError, match=r"--value-schema: .*schema\.ddl is not a schema in Spark's DDL: "):
        job_runner.run(JOB, *flags)
    schema.write_text("id BIGINT,\n  price DOUBLE\n")
    job_runner.run(JOB, *flags)
    topics.send(source, objects({"id": 1, "price": 2}, {"id": 1, "price": "much"}))
    (batch,) = job_runner.run(JOB, *flags)
    assert batch.malformed == 1
    assert [row.value.asDict() for row in spark.read.parquet(str(tmp_path / "lake")).collect()] == [
        {"id": 1, "price": 2.0}
    ]


def test_a_schema_that_cannot_be_inferred_or_is_left_out_later_is_refused(
    topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source = topics.create("empty", 1)
    flags = ["--input", source, "--path", str(tmp_path / "lake")]
    topics.send(source, [Sent(b"no object"), Sent(None)])
    with pytest.raises(JobError, match=f"--infer-schema: {source} has no JSON object to infer a schema from"):
        job_runner.run(JOB, *flags, "--infer-schema")
    topics.send(source, objects({"id": 1}))
    job_runner.run(JOB, *flags, "--infer-schema", "--on-error", "skip")
    with pytest.raises(JobError, match="has the schema of --infer-schema: pass --infer-schema, or name a new one"):
        job_runner.run(JOB, *flags)
    others = ["--path", str(tmp_path / "texts"), "--checkpoint", str(job_runner.folder / "texts")]
    job_runner.run(JOB, *flags, *others)
    with pytest.raises(JobError, match=r"--infer-schema: checkpoint .* began without a schema: name a new one"):
        job_runner.run(JOB, *flags, *others, "--infer-schema")
