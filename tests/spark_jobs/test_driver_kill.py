"""One driver with a job of each argument for its delivery (I, U, T, O) is killed in the middle; all continue.

The long form, every job killed at several random points, is among the soak tests of test_delivery.py.
"""

import json
import random
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from spark_jobs import file_sink, lake_load, mirror, split_errors, wordcount
from spark_jobs.samples import airport_lines
from spark_jobs.skeleton.delivery import without_duplicates
from tests.spark_jobs.conftest import JobRunner, KafkaReader, Topics, last_values, lines
from tests.spark_jobs.drivers import kill_driver
from tests.spark_jobs.plain_results import plain_counts
from tests.spark_jobs.quick_drivers import job_environment, quick_flags

pytestmark = pytest.mark.spark

COUNT = 400
BATCHES = 5
WAIT_MAX_S = 0.5  # in this time no job writes the other batches
JOBS = {job.name: job for job in (wordcount.JOB, split_errors.JOB, mirror.JOB, lake_load.JOB, file_sink.JOB)}


def test_a_driver_keeps_its_files_in_the_folder_of_the_test_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is killed leaves them there."""
    of_the_run = {"SPARK_LOCAL_DIRS": "/run", "SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/run"}
    for name, value in {**of_the_run, "PYSPARK_GATEWAY_PORT": "1", "SPARK_ENV_LOADED": "1"}.items():
        monkeypatch.setenv(name, value)
    environment = job_environment()
    assert of_the_run.items() <= environment.items()
    assert not {"PYSPARK_GATEWAY_PORT", "SPARK_ENV_LOADED"} & environment.keys()


def test_jobs_of_every_argument_continue_after_a_kill_of_their_driver(
    topics: Topics, kafka: KafkaReader, spark: SparkSession, job_runner: JobRunner
) -> None:
    source = topics.create("killed", 2)
    texts = list(airport_lines())[:COUNT]
    topics.send(source, [*lines(*texts[::2]), *lines(*texts[1::2], partition=1)])
    counts, errors, others = (topics.create(stem, 2) for stem in ("counts", "errors", "others"))
    lake = job_runner.folder / "lake"
    own_flags = {
        "wordcount": ["--input", source, "--output", counts],
        "split_errors": ["--input", source, "--output", others, "--error-topic", errors, "--pattern", "AK"],
        "mirror": ["--target-servers", topics.bootstrap, "--topics", source, "--prefix", "T.", "--exactly-once",
                   "--app-id", f"mirror-{source}"],
        "lake_load": ["--input", source, "--path", str(lake)],
        "file_sink": ["--input", source, "--file", str(job_runner.folder / "lines.txt")],
    }  # fmt: skip
    flags = {name: ["--checkpoint", str(job_runner.folder / name), *own] for name, own in own_flags.items()}
    batches = ["--max-offsets-per-trigger", str(COUNT // BATCHES)]
    common = ["--bootstrap-servers", topics.bootstrap, *batches, *quick_flags()]
    commands = json.dumps([[name, *common, *own] for name, own in flags.items()])
    log = job_runner.folder / "driver.log"

    def has_each_committed() -> bool:
        return len(list(job_runner.folder.glob("*/commits/0"))) == len(flags)

    arguments = ["tests.spark_jobs.several_jobs", commands]
    assert kill_driver(arguments, log, has_each_committed, random.uniform(0, WAIT_MAX_S)), log.read_text()
    assert not all(list(job_runner.folder.glob(f"{name}/commits/{BATCHES - 1}")) for name in JOBS), (
        "no job was in the middle"
    )
    for name, job in JOBS.items():
        job_runner.run(job, *flags[name], *batches)
    assert last_values(topics.read(counts)) == plain_counts(texts, {"the"})
    split = kafka.batch({"subscribe": f"{errors},{others}", "includeHeaders": "true"})
    assert sorted(bytes(row.value).decode() for row in without_duplicates(split).collect()) == sorted(texts)
    assert Counter(message.value().decode() for message in topics.read(f"T.{source}")) == Counter(texts)
    stored = spark.read.parquet(str(lake)).collect()
    assert Counter((row.partition, row.offset) for row in stored) == Counter(
        (partition, offset) for partition in range(2) for offset in range(COUNT // 2)
    )
    undisturbed = job_runner.folder / "undisturbed.txt"
    own = ["--app-id", "undisturbed", "--checkpoint", str(job_runner.folder / "undisturbed")]
    job_runner.run(file_sink.JOB, *flags["file_sink"], *batches, "--file", str(undisturbed), *own)
    assert (job_runner.folder / "lines.txt").read_bytes() == undisturbed.read_bytes()
    assert sorted(undisturbed.read_text().splitlines()) == sorted(texts)
