"""Writes objects to a table of a database, by key: JdbcSink of Connect.

Input: JSON objects; `--keys` names the fields that are the key of the table. The last object of a key replaces the
row with that key: the order is that of a partition, so objects of one key belong in one partition. The table exists;
fields are written to the columns of the same name, without regard to case. An object without a key or a column that
may not be null, or with a value that its column cannot store, is an unreadable record (`--on-error`).

Delivery: O. The rows of a batch and its number are one transaction. I as well: a repeated batch replaces the same rows.
"""

import argparse
import sys
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from spark_jobs.skeleton.database import (
    BATCHES,
    Database,
    add_database_flags,
    columns_of,
    fits,
    is_name,
    key_columns,
    staging_table,
)
from spark_jobs.skeleton.delivery import refuse_old_batches, start_batch_query
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, checked
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters
from spark_jobs.skeleton.schemas import value_text


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSinkParameters(JobParameters):
    jdbc_url: str
    jdbc_option: dict[str, str]
    table: str
    keys: list[str]


def build(spark: SparkSession, parameters: JdbcSinkParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if the table does not exist or lacks a key."""
    database = Database(spark, parameters.jdbc_url, parameters.jdbc_option)
    last_batch = database.last_batch(parameters.app_id)
    refuse_old_batches(spark, parameters, last_batch, BATCHES)
    schema = database.schema(parameters.table)
    keys = key_columns("--keys", parameters.table, schema, parameters.keys)
    staging = staging_table(parameters.table, parameters.app_id)
    database.drop_left_over(staging)
    database.make(staging, parameters.table, schema, keys)

    def write(rows: DataFrame, batch: int) -> None:
        if batch <= last_batch:
            return  # this batch was applied before the restart
        database.stage(last_rows(rows, keys), staging, keys)
        database.apply_batch(parameters.app_id, batch, database.upsert(staging, parameters.table, keys, schema))

    rule = object_of_table(parameters, schema, keys)
    row = f.struct(*columns_of(f.col("text"), schema)).alias("row")
    rows = read_input(spark, parameters, rule).select(row, "partition", "offset", "timestamp")
    return [start_batch_query(rows, parameters, write), *start_dead_letters(spark, parameters, rule)]


def last_rows(rows: DataFrame, keys: Collection[str]) -> DataFrame:
    """Return the last one of the structs `row` of each key, as columns.

    In a partition the last one has the highest offset; the last ones of several partitions are in the order of their
    timestamps.
    """
    key = [f.col("row")[name] for name in keys]
    in_partition = Window.partitionBy(*key, "partition").orderBy(f.desc("offset"))
    in_all = Window.partitionBy(*key).orderBy(f.desc("timestamp"), f.desc("partition"))
    last = rows.withColumn("place", f.row_number().over(in_partition)).where("place = 1")
    return last.withColumn("place", f.row_number().over(in_all)).where("place = 1").select("row.*")


def object_of_table(parameters: JdbcSinkParameters, schema: StructType, keys: Collection[str]) -> InputRule:
    """Return the rule that accepts objects with all keys, whose fields fit the columns of the table."""

    def read(records: DataFrame) -> DataFrame:
        text = records.withColumn("text", value_text(parameters))
        return text.withColumn("fits", fits(f.col("text"), schema, keys))

    return InputRule(read, "fits", f"an object of {parameters.table} with the keys {', '.join(parameters.keys)}")


def _keys(text: str) -> list[str]:
    return [checked(is_name, "names of columns")(key).lower() for key in text.split(",")]


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add_database_flags(add)
    add("--table", type=checked(is_name, "the name of a table"), required=True, help="table to write")
    add("--keys", type=_keys, required=True, metavar="FIELD,...", help="fields that are the key of the table")


JOB = Job(
    name="jdbc_sink",
    doc=__doc__,
    parameters=JdbcSinkParameters,
    build=build,
    input="rows",
    output="",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
