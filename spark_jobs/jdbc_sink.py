"""Writes objects to a table of a database, by key: JdbcSink of Connect.

Input: JSON objects; `--keys` names the fields that are the key of the table. The last object of a key replaces the
row with that key: the order is that of a partition, so objects of one key belong in one partition. Without `--keys`
each object is a new row. With `--key-format` the fields `--key-fields` are read from the record's key: an object, or
the value of the only field.

The table exists, or `--create-table` creates it; fields are written to the columns of the same name, without regard to
case. A time is a text, or a number of milliseconds. An object without a key or a column that may not be null, or with a
value that its column cannot store, is an unreadable record (`--on-error`). A field without a column is dropped; with
`--add-columns` the table gets the column, with the type that Connect's envelope declares or that the values have. A
field that is an object or an array, and a value that a column added by the same run cannot store, end the job.

Delivery: O. The rows of a batch and its number are one transaction. With `--keys` I as well: a repeated batch replaces
the same rows.
"""

import argparse
import logging
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_jobs.skeleton.database import (
    BATCHES,
    AppliedBatches,
    Database,
    add_database_flags,
    columns_of,
    fits,
    key_columns,
)
from spark_jobs.skeleton.delivery import refuse_old_batches, start_batch_query
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.formats.schemas import value_text
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import EARLIEST, JobParameters, checked, is_sql_name
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters
from spark_jobs.skeleton.table_columns import missing_columns

_LOG = logging.getLogger(__name__)
_PLACE_COLUMNS = ("topic", "partition", "offset")
# Columns of a staging table beside those of the target. The first one differs in all rows.
_PLACE, _PARTITION, _OFFSET, _TIME = "KAFKA_PLACE", "KAFKA_PLACE_PARTITION", "KAFKA_PLACE_OFFSET", "KAFKA_PLACE_TIME"
_PLACE_SCHEMA = StructType(
    [StructField(_PLACE, StringType()), *(StructField(name, LongType()) for name in (_PARTITION, _OFFSET, _TIME))]
)
_ORDERS = ((_PARTITION, _OFFSET), (_TIME,), (_PARTITION,))  # that of `last_rows`
_SAMPLED_RECORDS = 10_000
_WAIT_S = 5.0
_FIELDS = "map<string,string>"
KEY_FORMATS = ("text", "json", "json-envelope")


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSinkParameters(JobParameters):
    jdbc_url: str
    jdbc_option: dict[str, str]
    table: str
    keys: list[str]
    key_format: str | None
    key_fields: list[str]
    create_table: bool
    add_columns: bool


def build(spark: SparkSession, parameters: JdbcSinkParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if the table does not exist or lacks a key."""
    database = Database(spark, parameters.jdbc_url, parameters.jdbc_option)
    batches = AppliedBatches(database, parameters.app_id)
    refuse_old_batches(spark, parameters, batches.last, BATCHES)
    if parameters.create_table and not database.has_table(parameters.table):
        create_table(spark, parameters, database)
    target = Target(database, parameters, batches)

    def write(objects: DataFrame, batch: int) -> None:
        if batch <= batches.last:
            return  # this batch was applied before the restart
        if not parameters.add_columns:
            target.apply(objects, batch)
            return
        objects.persist()  # the columns are found in them before they are written
        try:
            target.add_columns(objects)
            target.apply(objects, batch)
        finally:
            objects.unpersist()

    rule = object_of_table(parameters, target.schema, target.keys)
    columns = ["text", *_PLACE_COLUMNS, "timestamp", *(["payload", "value"] if parameters.add_columns else [])]
    objects = read_input(spark, parameters, rule).select(*columns)
    return [start_batch_query(objects, parameters, write), *start_dead_letters(spark, parameters, rule)]


class Target:
    """The table, and the staging table beside it."""

    def __init__(self, database: Database, parameters: JdbcSinkParameters, batches: AppliedBatches) -> None:
        """Raises JobError if the table does not exist or lacks a key."""
        self._database = database
        self._batches = batches
        self._parameters = parameters
        self._read()
        self._first_columns = set(self.schema.names)
        """Of these, the query has checked the values."""

    def _read(self) -> None:
        """Read the columns of the table, and make a staging table with them."""
        table = self._parameters.table
        self.schema = self._database.schema(table)
        self.keys = key_columns("--keys", table, self.schema, self._parameters.keys)
        self._staging = self._database.new_staging_table(table, self._parameters.app_id)
        self._database.make(self._staging, table, self.schema, self.keys, _PLACE_SCHEMA)

    def add_columns(self, objects: DataFrame) -> None:
        """Add columns for fields that the table does not have.

        Raises JobError for a field that no column can store, and for a value that a column added by this run cannot.
        """
        table = self._parameters.table
        added = missing_columns(objects, self.schema.names, self._parameters.value_format)
        if added.fields:
            self._database.add_columns(table, added)
            for each in added:
                _LOG.info("table %s gets the column %s of type %s", table, each.name, each.dataType.simpleString())
            self._read()
        later = StructType([each for each in self.schema if each.name not in self._first_columns])
        if not later.fields:
            return
        unfit = objects.where(~fits(f.col("text"), later, [])).select(*_PLACE_COLUMNS).head()
        if unfit is not None:
            raise JobError(
                f"record at {unfit.topic}-{unfit.partition} offset {unfit.offset} does not fit the new columns "
                f"{', '.join(later.names)} of {table}: start again with --on-error to have it skipped"
            )

    def apply(self, objects: DataFrame, batch: int) -> None:
        """Write the objects of a batch, and its number, in one transaction."""
        database, table = self._database, self._parameters.table
        place = (f.concat_ws("/", *_PLACE_COLUMNS), f.col("partition"), f.col("offset"), f.unix_millis("timestamp"))
        named = [value.alias(name) for value, name in zip(place, _PLACE_SCHEMA.names, strict=True)]
        rows = objects.withColumn("row", f.struct(*columns_of(f.col("text"), self.schema), *named))
        if not self.keys:
            database.stage(rows.select("row.*"), self._staging, [_PLACE])
            self._batches.apply(batch, database.insert(self._staging, table, self.schema))
            return
        database.stage(last_rows(rows, self.keys), self._staging, [_PLACE])
        statements = database.upsert(self._staging, table, self.keys, self.schema)
        if database.repeats(self._staging, self.keys):  # by its own rules, such as a collation that ignores case
            statements = [*database.delete_superseded(self._staging, self.keys, _ORDERS), *statements]
        self._batches.apply(batch, statements)


def create_table(spark: SparkSession, parameters: JdbcSinkParameters, database: Database) -> None:
    """Create the table with the columns that the first objects need; wait for one. Raises JobError."""
    options = {**parameters.source_options(), "startingOffsets": EARLIEST}
    options.pop("maxOffsetsPerTrigger", None)  # batches refuse it
    columns = StructType([])
    while not columns.fields:
        records = spark.read.format("kafka").options(**options).load().limit(_SAMPLED_RECORDS)
        objects = records.select("value", value_text(parameters).alias("payload"))
        columns = missing_columns(objects, [], parameters.value_format)
        if not columns.fields:
            _LOG.warning("--create-table: %s has no object yet; waiting for the first", parameters.input)
            time.sleep(_WAIT_S)
    keys = key_columns("--keys", f"the first object of {parameters.input}", columns, parameters.keys)
    database.create(parameters.table, columns, keys)
    _LOG.info("table %s is created with the columns %s", parameters.table, columns.simpleString())


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
        payload = records.withColumn("payload", value_text(parameters))
        text = payload.withColumn("text", f.col("payload") if parameters.key_format is None else with_key(parameters))
        is_object = f.lit(True) if keys else f.expr("json_object_keys(text) IS NOT NULL")
        return text.withColumn("fits", is_object & fits(f.col("text"), schema, keys))

    with_keys = f" with the keys {', '.join(parameters.keys)}" if keys else ""
    return InputRule(read, "fits", f"an object of {parameters.table}{with_keys}")


def with_key(parameters: JdbcSinkParameters) -> Column:
    """Return the object in the column `payload` with the key's fields; null if the record has not all of them.

    A key is an object, or the value of the only field.
    """
    key = f.try_validate_utf8(f.col("key").cast("string"))
    match parameters.key_format:
        case "json":
            key = f.get_json_object(f.concat(f.lit('{"key":'), key, f.lit("}")), "$.key")
        case "json-envelope":
            key = f.get_json_object(key, "$.payload")
    wanted = parameters.key_fields
    of_object = f.map_filter(f.from_json(key, _FIELDS), lambda name, _: f.lower(name).isin(wanted))
    found = of_object
    if len(wanted) == 1:
        alone = f.create_map(f.lit(wanted[0]), key)
        found = alone if parameters.key_format == "text" else f.coalesce(of_object, alone)
    others = f.map_filter(f.from_json("payload", _FIELDS), lambda name, _: ~f.lower(name).isin(wanted))
    has_all = f.size(found) == len(wanted)
    return f.when(key.isNotNull() & has_all, f.to_json(f.map_concat(found, others)))


def _keys(text: str) -> list[str]:
    return [checked(is_sql_name, "names of columns")(key).lower() for key in text.split(",")]


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add_database_flags(add)
    add("--table", type=checked(is_sql_name, "the name of a table"), required=True, help="table to write")
    add(
        "--keys", type=_keys, default=[], metavar="FIELD,...", help="the key of the table (default: append all objects)"
    )
    add("--key-format", choices=KEY_FORMATS, help="format of the records' keys, whose fields join those of the value")
    add("--key-fields", type=_keys, default=[], metavar="FIELD,...", help="the fields of --key-format")
    add("--create-table", action="store_true", help="create a missing table for the first objects")
    add("--add-columns", action="store_true", help="add columns for fields that the table does not have")


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
