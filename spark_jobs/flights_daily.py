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
  rejects a new checkpoint together with a folder that has batches.

A record that is not a flight (no JSON object with a carrier) fails the job, naming its topic, partition and
offset, or with `--on-error skip` is counted and dropped.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.event_time import event_time
from spark_jobs.flights import TOPIC_CONFIG
from spark_jobs.parameters import JobParameters, checked, is_time_zone, job_parser
from spark_jobs.runner import JobError, run_job
from spark_jobs.topics import TopicSpec

_FLIGHT_SCHEMA = "carrier string, dep_time int, dep_delay int"
_PLACE = ("topic", "partition", "offset")
_KEY_SEPARATOR = "|"
# Partitions of a backlog are not read at the same speed: with the carriers in a few of them, one can be five days of
# flights ahead of another. The newest flight of all partitions moves the watermark.
_WATERMARK = "7 days"
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightsDailyParameters(JobParameters):
    parquet: Path
    time_zone: str


def build(spark: SparkSession, parameters: FlightsDailyParameters) -> StreamingQuery:
    """Start the query. Raises JobError if checkpoint and Parquet folder do not belong together."""
    _refuse_foreign_batches(parameters)
    source = spark.readStream.format("kafka").options(**parameters.source_options()).load()
    flights = read_flights(source, parameters.time_field, skip_malformed=parameters.on_error == "skip")

    def write_batch(rows: DataFrame, batch: int) -> None:
        _write_batch(rows, batch, parameters)

    return (
        daily_delays(flights, time_zone=parameters.time_zone, watermark=parameters.watermark)
        .writeStream.queryName(parameters.app_id)
        .outputMode("update")
        .option("checkpointLocation", str(parameters.checkpoint))
        .trigger(**parameters.trigger)
        .foreachBatch(write_batch)
        .start()
    )


def read_flights(records: DataFrame, time_field: str | None, *, skip_malformed: bool) -> DataFrame:
    """Return the columns carrier, dep_time, dep_delay and departed of records of Spark's Kafka source."""
    text = f.col("value").cast("string")
    parsed = records.select(
        f.from_json(text, _FLIGHT_SCHEMA).alias("flight"), event_time(text, time_field).alias("departed"), *_PLACE
    )
    is_flight = f.col("flight.carrier").isNotNull() & f.col("departed").isNotNull()
    if skip_malformed:
        parsed = parsed.observe("input", f.count_if(~is_flight).alias("malformed")).where(is_flight)
        carrier = f.col("flight.carrier")
    else:
        carrier = f.when(is_flight, f.col("flight.carrier")).otherwise(f.raise_error(_not_a_flight()))
    return parsed.select(carrier.alias("carrier"), "flight.dep_time", "flight.dep_delay", "departed")


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


def read_table(spark: SparkSession, parquet: Path) -> DataFrame:
    """Return the rows of all batches so far: each carrier and day once, with its newest totals."""
    rows = spark.read.parquet(str(parquet))
    columns = [name for name in rows.columns if name != "batch"]
    newest = f.max_by(f.struct(*columns), "batch").alias("row")
    return rows.groupBy("carrier", "day").agg(newest).select("row.*")


def _write_batch(rows: DataFrame, batch: int, parameters: FlightsDailyParameters) -> None:
    rows.persist()
    try:
        if not rows.isEmpty():
            rows.coalesce(1).write.mode("overwrite").parquet(str(parameters.parquet / f"batch={batch}"))
            _to_records(rows).write.format("kafka").options(**parameters.sink_options()).save()
    finally:
        rows.unpersist()


def _to_records(rows: DataFrame) -> DataFrame:
    key = f.concat_ws(_KEY_SEPARATOR, "carrier", "day")
    value = f.to_json(f.struct(*rows.columns), {"ignoreNullFields": "false"})
    return rows.select(key.alias("key"), value.alias("value"))


def _not_a_flight() -> Column:
    return f.format_string("record at %s-%d offset %d is not a flight", *_PLACE)


def _refuse_foreign_batches(parameters: FlightsDailyParameters) -> None:
    is_new = not (parameters.checkpoint / "metadata").exists()
    if is_new and any(parameters.parquet.glob("batch=*")):
        raise JobError(
            f"{parameters.parquet} has batches of another checkpoint than {parameters.checkpoint}, which is new: "
            "name an empty --parquet folder or the --checkpoint that the batches came from"
        )


def parse(arguments: Sequence[str] | None = None) -> FlightsDailyParameters:
    """Parse the command line; an invalid one ends the process with exit code 2."""
    parser = job_parser(
        "flights_daily",
        "Departure delays per carrier and day.",
        input_topic="flights",
        output_topic="flights-daily",
        watermark=_WATERMARK,
    )
    add = parser.add_argument
    add("--parquet", type=Path, required=True, metavar="DIR", help="folder of the Parquet table")
    add(
        "--time-zone",
        type=checked(is_time_zone, "a time zone such as America/New_York"),
        default="America/New_York",
        metavar="ZONE",
        help="whose midnight ends a day (default %(default)s)",
    )
    return FlightsDailyParameters(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str] | None = None) -> int:
    parameters = parse(arguments)
    topics = [
        TopicSpec(parameters.input, parameters.partitions, parameters.replication_factor, TOPIC_CONFIG),
        TopicSpec(parameters.output, parameters.partitions, parameters.replication_factor, _COMPACTED),
    ]
    return run_job(parameters, build, topics)


if __name__ == "__main__":
    sys.exit(main())
