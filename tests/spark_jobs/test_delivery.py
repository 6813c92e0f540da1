"""Each job's argument for its delivery: repeated batches and kills of the driver do not change the final output.

Two ways to the same situation. By default the commit of the last batch is removed from the checkpoint, as if the
driver had been killed after the batch had written its output: Spark repeats the batch. The soak tests kill the driver
of each job at random points of the run, several times; test_driver_kill.py kills one driver once.

The final output is what a reader of the job's argument sees: the last value of each key (I), the first record of each
`record-id` (U), or all of it (O).
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import (
    audit,
    beacon,
    big_txn,
    click_search,
    country_count,
    enrich_clicks,
    file_sink,
    inventory,
    lake_load,
    late_events,
    minmax,
    split_errors,
    stages,
    stock_stats,
    top10,
    wordcount,
)
from spark_jobs.samples import START_MS, airport_lines, trades, transactions
from spark_jobs.skeleton.job import Job
from tests.spark_jobs.conftest import JobRunner, Sent, Topics
from tests.spark_jobs.drivers import kill_driver
from tests.spark_jobs.quick_drivers import quick_flags
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.spark

COUNT = 400
BATCHES = 4
PARTITIONS = 2


def timed(rows: Sequence[Mapping[str, Any]], key: str) -> list[Sent]:
    """Return a record for each row, one second after the other, if the row has no time."""
    return [
        Sent(
            json.dumps(row).encode(),
            str(row[key]).encode(),
            partition_of(str(row[key])),
            row.get("time", START_MS + 1000 * number),
        )
        for number, row in enumerate(rows)
    ]


def partition_of(key: str) -> int:
    """Return a partition that depends on the key alone, so that the order of a key is the same in each run."""
    return sum(key.encode()) % PARTITIONS


def choices(**values: Sequence[Any]) -> list[dict[str, Any]]:
    choose = random.Random(6)
    return [{name: choose.choice(options) for name, options in values.items()} for _ in range(COUNT)]


def text_lines() -> list[Sent]:
    return [
        Sent(line.encode(), partition=number % 2) for number, line in zip(range(COUNT), airport_lines(), strict=False)
    ]


USERS = [f"u{number}" for number in range(9)]
ARTICLES = ["Kafka <b>stores</b>", "Spark reads Kafka", "nothing"]
SIDES = choices(
    side=("producer", "consumer"), topic=("a", "b"), count=range(5), time=range(START_MS, START_MS + 600_000)
)


@dataclass(frozen=True)
class Case:
    """A job, the records of its inputs, and the flags beside the topics; the flags name topics by `{name}`."""

    job: Job[Any]
    inputs: Mapping[str, list[Sent]]
    argument: str
    flags: tuple[str, ...] = ()
    runs: int = 1  # to the end of the input: a chained query needs another run to read what the one before wrote


CASES = {
    case.job.name: case
    for case in (
        Case(wordcount.JOB, {"input": text_lines()}, "I"),
        Case(split_errors.JOB, {"input": text_lines()}, "U", ("--error-topic", "{side}", "--pattern", "M")),
        Case(big_txn.JOB, {"input": timed(list(transactions(COUNT, 1)), "account")}, "U"),
        Case(country_count.JOB, {"input": timed(choices(country=("DE", "FR", "GB")), "country")}, "I"),
        Case(
            stages.JOB,
            {"input": timed(choices(text=ARTICLES), "text")},
            "U",
            ("--cleaned", "{side}", "--matched", "{other}"),
            runs=3,
        ),
        Case(audit.JOB, {"input": timed(SIDES, "topic")}, "I", ("--deadline", "1 minute")),
        Case(stock_stats.JOB, {"input": timed(list(trades(COUNT, 2)), "ticker")}, "I", ("--watermark", "1 hour")),
        Case(late_events.JOB, {"input": timed(list(trades(COUNT, 2)), "ticker")}, "I", ("--late-topic", "{side}")),
        Case(minmax.JOB, {"input": timed(choices(symbol="ABC", price=range(1, 99)), "symbol")}, "I"),
        Case(
            top10.JOB,
            {"input": timed(choices(symbol="ABC", price=range(1, 99)), "symbol")},
            "I",
            ("--intermediate-topic", "{side}"),
            runs=2,
        ),
        Case(
            inventory.JOB,
            {"input": timed(choices(type=("sale", "return"), item="ab", quantity=range(1, 5), price=(1.5, 2)), "item")},
            "I",
        ),
        Case(
            beacon.JOB,
            {"input": timed(choices(host=USERS[:3], address=[f"a{n}" for n in range(40)]), "host")},
            "I",
            ("--learn", "1 minute"),
        ),
        Case(
            enrich_clicks.JOB,
            {"input": timed(choices(user=USERS, page="xyz"), "user")},
            "U",
            ("--profiles", "{side}"),
        ),
        Case(
            click_search.JOB,
            {
                "input": timed(choices(user=USERS, page="xyz"), "user"),
                "side": timed(choices(user=USERS, terms="pqr"), "user"),
            },
            "U",
            ("--searches", "{side}"),
        ),
        Case(lake_load.JOB, {"input": text_lines()}, "O", ("--path", "{folder}/lake")),
        Case(file_sink.JOB, {"input": text_lines()}, "O", ("--file", "{folder}/lines.txt")),
    )
}
QUICK = ("wordcount", "split_errors", "stock_stats", "lake_load", "file_sink")


class Run:
    """One run of a case: its own output topics and folders, on shared input topics."""

    def __init__(
        self, case: Case, topics: Topics, inputs: Mapping[str, str], folder: Path, batches: int = BATCHES
    ) -> None:
        self._case = case
        self._topics = topics
        self._folder = folder
        names = {name: topics.create(f"{case.job.name}-{name}", PARTITIONS) for name in ("output", "side", "other")}
        self._names = {**names, **inputs}
        folder.mkdir(parents=True, exist_ok=True)
        self.flags = [
            "--input", self._names["input"],
            "--app-id", f"{case.job.name}-{folder.name}",
            "--checkpoint", str(folder / "checkpoint"),
            "--max-offsets-per-trigger", str(COUNT // batches),
            *(flag.format(folder=folder, **self._names) for flag in case.flags),
        ]  # fmt: skip
        if case.argument != "O":
            self.flags += ["--output", self._names["output"]]

    def final_output(self, spark: SparkSession) -> Any:
        """Return what readers see, in an order that does not depend on the run."""
        if (file := self._folder / "lines.txt").exists():
            return file.read_bytes()
        if self._case.argument == "O":
            rows = spark.read.parquet(str(self._folder / "lake")).collect()
            return sorted((row.topic, row.partition, row.offset, row.value) for row in rows)
        found = {}
        for message in self._topics.read(self._names["output"]):
            if self._case.argument == "I":
                found[message.key()] = message.value()
            else:
                found.setdefault(dict(message.headers())["record-id"], (message.key(), message.value()))
        return found

    def forget_last_commit(self) -> None:
        """Remove the commit of the last batch of each query from the checkpoint."""
        for commits in (self._folder / "checkpoint").rglob("commits"):
            last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
            (commits / str(last)).unlink()
            (commits / f".{last}.crc").unlink(missing_ok=True)


def fill_inputs(case: Case, topics: Topics) -> dict[str, str]:
    inputs = {}
    for name, records in case.inputs.items():
        inputs[name] = topics.create(f"{case.job.name}-{name}", PARTITIONS)
        topics.send(inputs[name], records)
    return inputs


def undisturbed(
    case: Case, topics: Topics, inputs: Mapping[str, str], job_runner: JobRunner, spark: SparkSession
) -> Any:
    run = Run(case, topics, inputs, job_runner.folder / "undisturbed")
    repeat(case.runs, lambda: job_runner.run(case.job, *run.flags))
    output = run.final_output(spark)
    assert output
    return output


def repeat(times: int, action: Callable[[], object]) -> None:
    for _ in range(times):
        action()


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in CASES]
)
def test_a_batch_that_is_repeated_does_not_change_the_final_output(
    name: str, spark: SparkSession, topics: Topics, job_runner: JobRunner
) -> None:
    case = CASES[name]
    inputs = fill_inputs(case, topics)
    # The last batch, which is repeated, finds state of the first.
    whole, run = (Run(case, topics, inputs, job_runner.folder / name, 2) for name in ("undisturbed", "repeated"))
    job_runner.finish([query for each in (whole, run) for query in job_runner.start(case.job, *each.flags)])
    repeat(case.runs - 1, lambda: job_runner.run(case.job, *whole.flags))
    expected = whole.final_output(spark)
    assert expected
    run.forget_last_commit()
    repeat(case.runs, lambda: job_runner.run(case.job, *run.flags))
    assert run.final_output(spark) == expected


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_kills_of_the_driver_at_random_points_do_not_change_the_final_output(
    name: str, seed: int, spark: SparkSession, topics: Topics, job_runner: JobRunner, bootstrap: str
) -> None:
    case = CASES[name]
    inputs = fill_inputs(case, topics)
    expected = undisturbed(case, topics, inputs, job_runner, spark)
    run = Run(case, topics, inputs, job_runner.folder / "killed")
    choose = random.Random(seed)
    arguments = ["spark_jobs", name, "--bootstrap-servers", bootstrap, *quick_flags(), *run.flags]
    folder = job_runner.folder / "killed"
    log = folder / "driver.log"

    def has_a_query() -> bool:
        return bool(list((folder / "checkpoint").rglob("metadata")))

    for _ in range(3):
        assert kill_driver(arguments, log, has_a_query, choose.uniform(0, 6)), log.read_text()
    repeat(case.runs, lambda: job_runner.run(case.job, *run.flags))
    assert run.final_output(spark) == expected


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_a_job_continues_while_its_broker_is_killed_and_started_again(
    name: str, spark: SparkSession, tmp_path: Path, job_runner: JobRunner
) -> None:
    case = CASES[name]
    with BrokerProcess(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        runner = JobRunner(spark, topics, job_runner.folder)
        inputs = fill_inputs(case, topics)
        expected = undisturbed(case, topics, inputs, runner, spark)
        run = Run(case, topics, inputs, runner.folder / "disturbed")
        queries = case.job.build(spark, runner.parse(case.job, *run.flags))
        broker.kill()
        broker.start()
        for query in queries:
            query.awaitTermination()
        repeat(case.runs, lambda: runner.run(case.job, *run.flags))
        assert run.final_output(spark) == expected
