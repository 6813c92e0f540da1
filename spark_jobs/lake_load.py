"""Loads topics into files: Parquet, JSON, Avro or ORC, with the place of each record.

Run it for ever, or hourly with `--trigger availableNow`: each run reads what came since the last one. `--input` names
one topic or several, separated by commas. Columns: topic, partition, offset, timestamp, date, hour, key, value,
headers; `--partition-by` chooses the folders. Keys and values are text, or bytes with `--binary`.

Delivery: O. Spark's file sink commits the files of a batch by one entry in the folder `_spark_metadata`, and skips a
batch that has its entry. Readers that know this log (Spark does) never see files of an unfinished batch.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import refuse_foreign_output
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import read_stream

FORMATS = ("parquet", "json", "avro", "orc")
PARTITION_COLUMNS = ("topic", "partition", "date", "hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeLoadParameters(JobParameters):
    path: str
    format: str
    partition_by: list[str]
    binary: bool


def build(spark: SparkSession, parameters: LakeLoadParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if the folder has the output of another checkpoint."""
    refuse_foreign_output(spark, parameters, parameters.path, "_spark_metadata")
    rows = to_rows(read_stream(spark, parameters), is_binary=parameters.binary)
    writer = (
        rows.writeStream.format(parameters.format)
        .partitionBy(*parameters.partition_by)
        .queryName(parameters.app_id)
        .option("checkpointLocation", parameters.checkpoint)
        .trigger(**parameters.trigger)
    )
    return [writer.start(parameters.path)]


def to_rows(records: DataFrame, *, is_binary: bool) -> DataFrame:
    """Return the records of a Kafka source as rows of the table."""
    content = [f.col(name) if is_binary else f.col(name).cast("string") for name in ("key", "value")]
    return records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        f.to_date("timestamp").alias("date"),
        f.hour("timestamp").alias("hour"),
        *content,
        "headers",
    )


def _columns(text: str) -> list[str]:
    columns = text.split(",") if text else []
    if unknown := set(columns) - set(PARTITION_COLUMNS):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTITION_COLUMNS)}, not {min(unknown)!r}")
    return columns


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--path", required=True, metavar="DIR", help="folder of the table, or its URI")
    add("--format", choices=FORMATS, default="parquet", help="format of the files (default %(default)s)")
    add(
        "--partition-by",
        type=_columns,
        default=_columns("topic,date"),
        metavar="COLUMN,...",
        help="folders, some of topic, partition, date, hour (default topic,date)",
    )
    add("--binary", action="store_true", help="store keys and values as bytes")


JOB = Job(
    name="lake_load",
    doc=__doc__,
    parameters=LakeLoadParameters,
    build=build,
    input="events",
    output="",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
