"""Applies the changes of tables to the same tables of a warehouse, by JDBC.

Input, a change: `{"table": "customers", "op": "u", "position": 17, "before": {...}, "after": {...}}`. `op` is `c`,
`u` or `r` (insert, update, snapshot) with `after`, or `d` (delete) with `before`. `position` is the place of the
change in the log of the source; it rises with each change of a row. `--tables customers:id,orders:id+line` names the
tables and their keys. The tables exist; fields are written to the columns of the same name. A change whose row lacks a
key or a column that may not be null, or has a value that its column cannot store, is an unreadable record
(`--on-error`). An update whose `before` has another key removes the row with that key.

Changes may arrive out of order: the position of the last change of each row is kept in a table `NAME_POSITIONS`, also
for deleted rows, and an older change is ignored. A CRC replaces the end of a NAME that is too long for that.

Delivery: I and O. The changes of a batch and its number are one transaction, and an applied change is ignored by
position.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

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
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, is_sql_name
from spark_jobs.skeleton.records import InputRule, object_rule, read_input, start_dead_letters

_CHANGE = "table string, op string, position bigint, before string, after string"
_IS_CHANGE = """body.table IS NOT NULL AND body.position IS NOT NULL AND (
    body.op IN ('c', 'u', 'r') AND json_object_keys(body.after) IS NOT NULL
    OR body.op = 'd' AND json_object_keys(body.before) IS NOT NULL)"""

# Columns of the staging table beside those of the target.
_OP = "CDC_OP"
_POSITION = "CDC_POSITION"

Tables = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseCdcParameters(JobParameters):
    jdbc_url: str
    jdbc_option: dict[str, str]
    tables: Tables


def build(spark: SparkSession, parameters: WarehouseCdcParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if a table does not exist or lacks a key."""
    database = Database(spark, parameters.jdbc_url, parameters.jdbc_option)
    batches = AppliedBatches(database, parameters.app_id)
    refuse_old_batches(spark, parameters, batches.last, BATCHES)
    targets = [Target(database, name, keys, parameters.app_id) for name, keys in parameters.tables.items()]
    rule = change_rule(parameters, targets)

    def write(changes: DataFrame, batch: int) -> None:
        if batch <= batches.last:
            return  # this batch was applied before the restart
        changes.persist()
        try:
            statements = [statement for target in targets for statement in target.stage(changes)]
        finally:
            changes.unpersist()
        batches.apply(batch, statements)

    changes = read_input(spark, parameters, rule).select("body.*")
    return [start_batch_query(changes, parameters, write), *start_dead_letters(spark, parameters, rule)]


def change_rule(parameters: WarehouseCdcParameters, targets: "Sequence[Target]") -> InputRule:
    """Return the rule that accepts changes of tables; those of `targets` fit their columns."""
    rule = object_rule(parameters, _CHANGE, _IS_CHANGE, "a change of a table")

    def read(records: DataFrame) -> DataFrame:
        changes = rule.read(records)
        return changes.withColumn("fits", reduce(and_, [target.fits("body.") for target in targets]))

    return InputRule(read, f"{rule.accepts} AND fits", "a change that fits its table")


class Target:
    """One table of the warehouse, with its table of positions."""

    def __init__(self, database: Database, name: str, keys: Sequence[str], app_id: str) -> None:
        self._database = database
        self._name = name
        self._schema = database.schema(name)
        self._keys = key_columns("--tables", name, self._schema, keys)
        self._key = StructType([self._schema[key] for key in self._keys])
        self._positions = database.table_beside(name, "_POSITIONS")
        self._staging = database.new_staging_table(name, app_id)
        position = StructField(_POSITION, LongType())
        database.make(
            self._staging, name, self._schema, self._keys, StructType([StructField(_OP, StringType()), position])
        )
        if not database.has_table(self._positions):
            database.make(self._positions, name, self._key, self._keys, StructType([position]))

    def fits(self, prefix: str) -> Column:
        """Return whether a change is of another table, or its row can be stored; of a deleted row only the keys count.

        `prefix` is that of the columns with the change.
        """
        deletes = fits(f.col(f"{prefix}before"), self._key, self._keys)
        stores = fits(f.col(f"{prefix}after"), self._schema, self._keys)
        return ~self._is_of_table(prefix) | f.when(f.col(f"{prefix}op") == "d", deletes).otherwise(stores)

    def _is_of_table(self, prefix: str) -> Column:
        return f.lower(f"{prefix}table") == self._name.lower()

    def stage(self, changes: DataFrame) -> list[str]:
        """Write the last change of each row to the staging table; return the statements that apply it."""
        rows = self._last_changes(changes.where(self._is_of_table("")))
        self._database.stage(rows, self._staging, self._keys)
        staging, positions, target = self._staging, self._positions, self._name
        names, matches = self._database.names, self._database.matches
        values = self._database.staged(self._schema)
        columns, stored = names(self._schema.names), names([*self._keys, _POSITION])
        return [
            f"DELETE FROM {staging} WHERE {matches(positions, staging, self._keys, newer=_POSITION)}",
            f"DELETE FROM {target} WHERE {matches(staging, target, self._keys)}",
            f"INSERT INTO {target} ({columns}) SELECT {values} FROM {staging} WHERE {names([_OP])} <> 'd'",
            f"DELETE FROM {positions} WHERE {matches(staging, positions, self._keys)}",
            f"INSERT INTO {positions} ({stored}) SELECT {stored} FROM {staging}",
        ]

    def _last_changes(self, changes: DataFrame) -> DataFrame:
        """Return the columns of the table, operation and position: the change of each row with the highest position."""
        op, before, after = f.col("op"), f.col("before"), f.col("after")
        old, new = (f.struct(*columns_of(row, self._key)) for row in (before, after))
        moved = changes.where((op == "u") & fits(before, self._key, self._keys) & (old != new))
        rows = self._rows(changes, f.when(op == "d", before).otherwise(after), op).unionByName(
            self._rows(moved, before, f.lit("d"))
        )
        newest_first = Window.partitionBy(*self._keys).orderBy(f.desc(_POSITION))
        numbered = rows.select(f.struct("*").alias("row"), f.row_number().over(newest_first).alias("place"))
        return numbered.where("place = 1").select("row.*")

    def _rows(self, changes: DataFrame, row: Column, op: Column) -> DataFrame:
        return changes.select(*columns_of(row, self._schema), op.alias(_OP), f.col("position").alias(_POSITION))


def _tables(text: str) -> Tables:
    tables = {}
    for entry in text.split(","):
        name, _, keys = entry.partition(":")
        if not is_sql_name(name) or not all(map(is_sql_name, keys.split("+"))):
            raise argparse.ArgumentTypeError(f"expected TABLE:KEY+KEY,..., not {entry!r}")
        tables[name] = keys.split("+")
    return tables


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add_database_flags(add)
    add("--tables", type=_tables, required=True, metavar="TABLE:KEY,...", help="tables and keys, keys joined by +")


JOB = Job(
    name="warehouse_cdc",
    doc=__doc__,
    parameters=WarehouseCdcParameters,
    build=build,
    input="changes",
    output="",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
