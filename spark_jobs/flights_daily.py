"""Departure delays per carrier and day: flights, cancellations, mean and exact 95th percentile.

Input: records as `flights_produce` sends them; event time is the record timestamp, that is the departure. A day
is a calendar day at `--time-zone` (New York), with daylight saving: a flight that was due at 23:50 and left
at 00:10 belongs to the day of its departure, a cancelled one to the day of its scheduled departure.

Output, twice:

- the topic `--output`, compacted: key `carrier|day`, value the row as JSON;
- the Parquet folder `--parquet`: `batch=<id>/`, one file per batch; `read_table` returns the newest row of each
  carrier and day.

The query runs in update mode: a batch emits each row that it changed, with the totals so far. So the output contains
days that are still open, such as the last one of a finished backlog. Append mode would hold them back until the
watermark has passed them, forever without newer records. The watermark bounds the state: days that ended more than
`--watermark` before the newest departure are removed, and a flight that arrives later is dropped, counted and reported.

Delivery (Spark repeats a batch after a crash, with the same id, input and state, hence with the same rows):

- topic: idempotent key. A repeated batch writes the same keys again, and the last value is valid.
- Parquet: the folder of a batch is replaced as a whole, by one file. The ids belong to a checkpoint, so the job
  rejects a folder with batches that the checkpoint has not begun.

Delivery: I for the topic, O for the folder. A record that is not a flight is no JSON object with a carrier.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.flights import TOPIC_CONFIG
from spark_jobs.skeleton.delivery import refuse_foreign_output, start_batch_query, write_topic
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, checked, is_time_zone
from spark_jobs.skeleton.records import read_input, start_dead_letters, timed_rule

_FLIGHT_SCHEMA = "carrier string, dep_time int, dep_delay int"
_KEY_SEPARATOR = "|"
_BATCH = "batch="  # begins the name of a batch's folder
# Partitions of a backlog are not read at the same speed: with the carriers in a few of them, one can be five days of
# flights ahead of another. The newest flight of all partitions moves the watermark.
_WATERMARK = "7 days"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightsDailyParameters(JobParameters):
    parquet: str
    time_zone: str


def build(spark: SparkSession, parameters: FlightsDailyParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if checkpoint and Parquet folder do not belong together."""
    newest_batch = Folder(spark, parameters.parquet).highest_number(_BATCH)
    refuse_foreign_output(spark, parameters, parameters.parquet, _BATCH, newest_batch=newest_batch)
    rule = timed_rule(parameters, _FLIGHT_SCHEMA, "body.carrier IS NOT NULL", "a flight")
    flights = read_input(spark, parameters, rule).selectExpr(
        "body.carrier", "body.dep_time", "body.dep_delay", "time AS departed"
    )

    def write_batch(rows: DataFrame, batch: int) -> None:
        _write_batch(rows, batch, parameters)

    delays = daily_delays(flights, time_zone=parameters.time_zone, watermark=parameters.watermark)
    query = start_batch_query(delays, parameters, write_batch, output_mode="update")
    return [query, *start_dead_letters(spark, parameters, rule)]


def daily_delays(flights: DataFrame, *, time_zone: str, watermark: str) -> DataFrame:
    """Return one row per carrier and day. Delays are minutes; both are null if no flight left.

    The percentile interpolates linearly between the two nearest delays.
    """
    # Windows begin at midnight of the session's zone, UTC; shifting the clock makes this the local midnight.
    local = f.from_utc_timestamp("departed", time_zone)
    return (
        flights.withColumn("departed_local", local)
        .withWatermark("departed_local", watermark)
        .groupBy("carrier", f.window("departed_local", "1 day"))
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
            f.avg("dep_delay").alias("departure_delay_mean_minutes"),
            f.percentile("dep_delay", 0.95).alias("departure_delay_p95_minutes"),
        )
        .select(
            "carrier",
            f.to_date("window.start").alias("day"),
            "flights",
            "cancelled",
            "departure_delay_mean_minutes",
            "departure_delay_p95_minutes",
        )
    )


def read_table(spark: SparkSession, parquet: str) -> DataFrame:
    """Return the rows of all batches so far: each carrier and day once, with its newest totals."""
    rows = spark.read.parquet(parquet)
    columns = [name for name in rows.columns if name != "batch"]
    newest = f.max_by(f.struct(*columns), "batch").alias("row")
    return rows.groupBy("carrier", "day").agg(newest).select("row.*")


def _write_batch(rows: DataFrame, batch: int, parameters: FlightsDailyParameters) -> None:
    rows.persist()
    try:
        if not rows.isEmpty():
            rows.coalesce(1).write.mode("overwrite").parquet(f"{parameters.parquet}/{_BATCH}{batch}")
            write_topic(_to_records(rows), parameters)
    finally:
        rows.unpersist()


def _to_records(rows: DataFrame) -> DataFrame:
    key = f.concat_ws(_KEY_SEPARATOR, "carrier", "day")
    value = f.to_json(f.struct(*rows.columns), {"ignoreNullFields": "false"})
    return rows.select(key.alias("key"), value.alias("value"))


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--parquet", required=True, metavar="DIR", help="folder of the Parquet table, or its URI")
    add(
        "--time-zone",
        type=checked(is_time_zone, "a time zone such as America/New_York"),
        default="America/New_York",
        metavar="ZONE",
        help="whose midnight ends a day (default %(default)s)",
    )


JOB = Job(
    name="flights_daily",
    doc=__doc__,
    parameters=FlightsDailyParameters,
    build=build,
    input="flights",
    output="flights-daily",
    input_config=TOPIC_CONFIG,
    output_config=COMPACTED,
    watermark=_WATERMARK,
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
