"""Loads topics into files: Parquet, JSON, Avro or ORC, with the place of each record.

Run it for ever, or hourly with `--trigger availableNow`: each run reads what came since the last one. `--input` names
one topic or several, separated by commas. Columns: topic, partition, offset, timestamp, date, hour, key, value,
headers; `--partition-by` chooses the folders. Keys and values are text, or bytes with `--binary`.

With `--infer-schema` or `--value-schema` the column `value` is a struct with the fields of the values: objects, in the
format of `--value-format`. `--value-schema` names a file with their schema. `--infer-schema` infers it from the first
10,000 records of each partition when the checkpoint is new, and keeps it there for later runs. A value that does not
fit is an unreadable record (`--on-error`). A record without a value is a row without one.

Delivery: O. Spark's file sink commits the files of a batch by one entry in the folder `_spark_metadata`, and skips a
batch that has its entry. Readers that know this log (Spark does) never see files of an unfinished batch.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from spark_jobs.skeleton.delivery import refuse_foreign_output
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.formats.json_schemas import columns_rule, declared_schema, pinned_schema, refuse_pinned
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import read_input, read_stream, start_dead_letters

_METADATA_LOG = "_spark_metadata"  # has a file for each batch, such as `7` or `9.compact`
FORMATS = ("parquet", "json", "avro", "orc")
PARTITION_COLUMNS = ("topic", "partition", "date", "hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeLoadParameters(JobParameters):
    path: str
    format: str
    partition_by: list[str]
    binary: bool
    infer_schema: bool
    value_schema: str | None


def build(spark: SparkSession, parameters: LakeLoadParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if the folder has the output of another checkpoint, or for a schema."""
    newest_batch = Folder(spark, f"{parameters.path}/{_METADATA_LOG}").highest_number()
    refuse_foreign_output(spark, parameters, parameters.path, _METADATA_LOG, newest_batch=newest_batch)
    schema = _schema(spark, parameters)
    if schema is None:
        records, dead_letters = read_stream(spark, parameters), list[StreamingQuery]()
    else:
        rule = columns_rule(parameters, schema)
        records = read_input(spark, parameters, rule).withColumn("value", f.col("fields"))
        dead_letters = start_dead_letters(spark, parameters, rule)
    rows = to_rows(records, is_binary=parameters.binary, has_fields=schema is not None)
    writer = (
        rows.writeStream.format(parameters.format)
        .partitionBy(*parameters.partition_by)
        .queryName(parameters.app_id)
        .option("checkpointLocation", parameters.checkpoint)
        .trigger(**parameters.trigger)
    )
    return [writer.start(parameters.path), *dead_letters]


def _schema(spark: SparkSession, parameters: LakeLoadParameters) -> StructType | None:
    if parameters.infer_schema:
        return pinned_schema(spark, parameters, "--infer-schema")
    if parameters.value_schema is not None:
        return declared_schema(parameters.value_schema, "--value-schema")
    refuse_pinned(spark, parameters, "--infer-schema")
    return None


def to_rows(records: DataFrame, *, is_binary: bool, has_fields: bool = False) -> DataFrame:
    """Return the records of a Kafka source as rows of the table; with fields, `value` is a struct already."""
    key = f.col("key") if is_binary else f.col("key").cast("string")
    value = f.col("value") if is_binary or has_fields else f.col("value").cast("string")
    return records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        f.to_date("timestamp").alias("date"),
        f.hour("timestamp").alias("hour"),
        key,
        value,
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
    values = parser.add_mutually_exclusive_group().add_argument
    values("--binary", action="store_true", help="store keys and values as bytes")
    values("--infer-schema", action="store_true", help="store the fields of values; infer their schema once")
    values("--value-schema", metavar="FILE", help="store the fields of values, with this schema in Spark's DDL")


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
