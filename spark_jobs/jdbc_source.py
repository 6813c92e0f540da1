"""Sends the rows of database tables to topics, and new or changed rows later: JdbcSource of Connect.

`--mode incrementing` reads rows whose `--column` is above the last one, `timestamp` those whose time is, and `bulk`
reads the whole tables each time. The topic of a table is `--topic-prefix` and its name. Values are JSON objects, or
with `--envelope` Connect's envelope with a schema; times are epoch milliseconds. `--checkpoint` holds a file with the
last value of each table of one database, by its name with catalog and schema: several jobs with different tables may
share it. Another --mode or --column of a table needs another folder, because its values differ. A column that is added
to a table, dropped or changed while the job runs is so in the values after that.

Delivery: at-least-once, U. The header `record-id` is `TABLE/VALUE OF THE COLUMN`, in timestamp mode followed by a
digest of the row, because several rows may have the same time; there is none in bulk mode. A row is missed if its value
is committed later than a higher one, or in timestamp mode than the same one, as in Connect: choose a column that never
goes back. Parts of a microsecond do not count.
"""

import json
import logging
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DecimalType, StructType

from spark_jobs.skeleton.clients import sink_options
from spark_jobs.skeleton.database import Database, add_database_flags, key_columns, without_login
from spark_jobs.skeleton.delivery import RECORD_ID, header
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.formats.schemas import envelope
from spark_jobs.skeleton.parameters import (
    add_session_settings,
    checked,
    client_parser,
    is_sql_name,
    positive,
    session_settings,
)
from spark_jobs.skeleton.programs import prepare_topics, run_program, stop_request
from spark_jobs.skeleton.session import spark_session
from spark_jobs.skeleton.topics import TopicSpec

_LOG = logging.getLogger(__name__)
_POSITION, _DATABASE, _MODE, _COLUMN = "position", "jdbc-url", "mode", "column"  # the keys of the file of a table
_CONNECT_TYPES = {
    "tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64", "float": "float", "double": "double",
    "boolean": "boolean", "binary": "bytes", "timestamp": "int64", "timestamp_ntz": "int64",
}  # fmt: skip
_CONNECT_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
_CONNECT_TIMESTAMP = {"name": "org.apache.kafka.connect.data.Timestamp", "version": 1}


Columns = Mapping[str, str]
"""The types of columns by name."""


class Order(NamedTuple):
    """What a position is of."""

    mode: str
    column: str | None
    """In lower case; None in bulk mode."""

    def __str__(self) -> str:
        return f"--mode {self.mode}" + ("" if self.column is None else f" --column {self.column}")


class TableReader:
    """Reads the new rows of one table."""

    def __init__(self, database: Database, table: str, mode: str, column: str | None) -> None:
        self._database = database
        self._table = table
        self.schema = database.schema(table)
        self.qualified_table = database.qualified(table)
        self._is_unique = mode == "incrementing"  # each value of the column
        self._wanted = None if mode == "bulk" else column
        self.order = Order(mode, None if self._wanted is None else self._wanted.lower())
        self._column = self._find_column()
        self._columns: Columns = {}

    def refuse_nulls(self) -> None:
        """Raise JobError if the column that rises may be null."""
        if self._column is not None and self.schema[self._column].nullable:
            raise JobError(f"--not-null: the column {self._column} of {self._table} may be null")

    def _find_column(self) -> str | None:
        """Return the column that rises, as the table spells it. Raises JobError."""
        if self._wanted is None:
            return None
        return key_columns("--column", self._table, self.schema, [self._wanted])[0]

    def new_rows(self, position: str | None) -> DataFrame:
        """Return the rows above the position, in their order; all without one. They have the columns of `schema`, which
        this updates. Raises JobError if the column that rises is missing now."""
        while True:
            rows = self._rows(position)
            columns = _types(rows)
            if rows.schema.names == self.schema.names and columns == (self._columns or columns):
                self._columns = columns
                return rows
            self._follow(columns)

    def has_same_columns(self) -> bool:
        """Whether the table still has the columns of the last `new_rows`."""
        return _types(self._rows(None)) == self._columns

    def _follow(self, columns: Columns) -> None:
        """Read the schema again, because the table has other columns now."""
        before, self._columns = self._columns or dict.fromkeys(self.schema.names, ""), columns
        self.schema = self._database.schema(self._table)
        self._column = self._find_column()
        for name in columns.keys() - before.keys():
            _LOG.info("table %s has the new column %s of type %s", self._table, name, columns[name])
        for name in before.keys() - columns.keys():
            _LOG.warning("table %s has no column %s any more", self._table, name)
        for name in columns.keys() & before.keys():
            if before[name] not in ("", columns[name]):
                _LOG.warning("table %s: %s is %s now, not %s", self._table, name, columns[name], before[name])

    def _rows(self, position: str | None) -> DataFrame:
        if self._column is None:
            return self._database.read(self._table)
        name = self._database.names([self._column])
        is_number = self._kind().startswith(("int", "bigint", "smallint", "tinyint", "decimal"))
        value = position if position is None or is_number else self._database.literal(position)
        condition = f"{name} IS NOT NULL" if value is None else f"{name} > {value}"
        rows = self._database.read(f"(SELECT * FROM {self._table} WHERE {condition}) new_rows")
        if position is not None and self._is_time():
            # Spark drops nanoseconds: to the database, the last rows are above their own position.
            rows = rows.where(_micros(f.col(self._column)) > _micros(f.lit(position)))
        return rows.orderBy(self._column)

    def position(self, rows: DataFrame) -> str | None:
        """Return the highest value of the column in `rows`, as a text that SQL reads."""
        if self._column is None:
            return None
        last = f.max(self._column)
        text = _sql_time(last) if self._is_time() else last.cast("string")
        row = rows.agg(text.alias("last")).collect()[0]
        return None if row.last is None else str(row.last)

    def _kind(self) -> str:
        """Return the type of the column that rises."""
        assert self._column is not None
        return str(self.schema[self._column].dataType.simpleString())

    def _is_time(self) -> bool:
        return self._kind().startswith("timestamp")

    def to_records(self, rows: DataFrame, *, with_envelope: bool) -> DataFrame:
        """Return value and headers of the records of `rows`."""
        row: Column = f.to_json(f.struct(*map(self._field, self.schema.names)), {"ignoreNullFields": "false"})
        value = envelope(row, json.dumps(connect_schema(self._table, self.schema))) if with_envelope else row
        ids = f.array().cast("array<struct<key:string,value:binary>>")
        if self._column is not None:
            parts = [f.lit(self._table), f.col(self._column).cast("string"), *([] if self._is_unique else [f.md5(row)])]
            ids = f.array(header(RECORD_ID, f.concat_ws("/", *parts)))
        return rows.select(value.alias("value"), ids.alias("headers"))

    def _field(self, name: str) -> Column:
        kind = self.schema[name].dataType.simpleString()
        column = f.unix_millis(f.col(name).cast("timestamp")) if kind.startswith("timestamp") else f.col(name)
        return column.alias(name)


def _types(rows: DataFrame) -> Columns:
    return {field.name: field.dataType.simpleString() for field in rows.schema}


def _sql_time(time: Column) -> Column:
    """Return a time as text for a condition: with milliseconds, or with microseconds if it has any.

    SQLite compares times as texts, so digits may not be missing. SQL Server's `datetime` refuses more than three.
    """
    has_micros = _micros(time) % 1000 != 0
    texts = [f.date_format(time, f"yyyy-MM-dd HH:mm:ss.{digits}") for digits in ("SSSSSS", "SSS")]
    return f.when(has_micros, texts[0]).otherwise(texts[1])


def _micros(time: Column) -> Column:
    return f.unix_micros(time.cast("timestamp"))


def connect_schema(table: str, schema: StructType) -> dict[str, Any]:
    """Return the schema of a table as Connect writes it."""
    fields = []
    for field in schema:
        kind = field.dataType.simpleString()
        logical: Mapping[str, Any] = {}
        if kind.startswith("timestamp"):
            logical = _CONNECT_TIMESTAMP
        elif isinstance(field.dataType, DecimalType):
            # The payload is a number, as Connect's converter reads and, with decimal.format=NUMERIC, writes it.
            logical = {**_CONNECT_DECIMAL, "parameters": {"scale": str(field.dataType.scale)}}
        fields.append(
            {"type": _CONNECT_TYPES.get(kind, "string"), "optional": field.nullable, **logical, "field": field.name}
        )
    return {"type": "struct", "name": table, "optional": False, "fields": fields}


def poll(readers: Mapping[str, TableReader], folder: Folder, sink: dict[str, str], flags: Any) -> int:
    """Send the new rows of all tables; return their number. The position is stored after the broker has the rows.

    Raises JobError if the positions are those of another database, mode or column.
    """
    positions = Positions(folder, without_login(flags.jdbc_url))
    count = 0
    for table, reader in readers.items():
        rows, found = _read(reader, positions.of(reader.qualified_table, reader.order))
        try:
            if found:
                # Before the rows are sent: if an executor is lost, Spark reads its rows again, with newer ones.
                position = reader.position(rows)
                records = reader.to_records(rows, with_envelope=flags.envelope).coalesce(1)
                options = {**sink, "topic": f"{flags.topic_prefix}{table}", "includeHeaders": "true"}
                records.write.format("kafka").options(**options).save()
                positions.store(reader.qualified_table, reader.order, position)
                _LOG.info("%d rows of %s are in %s%s", found, table, flags.topic_prefix, table)
            count += found
        finally:
            rows.unpersist()
    return count


def _read(reader: TableReader, position: str | None) -> tuple[DataFrame, int]:
    """Return the new rows, kept by Spark, and their number. The caller releases them."""
    while True:
        rows = reader.new_rows(position).persist()
        found = rows.count()
        # Spark asks for the columns first: one that is added after that is missing, though rows have a value in it.
        if not found or reader.has_same_columns():
            return rows, found
        rows.unpersist()


class Positions:
    """The last values of tables, by qualified name: a file each, because several jobs may share the folder."""

    def __init__(self, folder: Folder, database: str) -> None:
        self._folder = folder
        self._database = database

    def of(self, table: str, order: Order) -> str | None:
        """Return the position of a table; None if it has none.

        Raises JobError if it is one of another database, mode or column. A file that names neither mode nor column, as
        earlier versions wrote it, gets those of this run.
        """
        name = _file_name(table)
        if not self._folder.has(name):
            return None
        stored = json.loads(self._folder.read_text(name))
        if stored[_DATABASE] != self._database:
            raise JobError(
                f"--checkpoint: {self._folder} has a position in {stored[_DATABASE]}, not in {self._database}: use "
                f"another folder; if the database has moved, change {_DATABASE} in {name}"
            )
        position: str | None = stored[_POSITION]
        if _MODE not in stored:
            self.store(table, order, position)
        elif (of := Order(stored[_MODE], stored[_COLUMN])) != order:
            raise JobError(
                f"--checkpoint: {self._folder} has a position of {table} by {of}, not by {order}: use another folder"
            )
        return position

    def store(self, table: str, order: Order, position: str | None) -> None:
        content = {_DATABASE: self._database, _MODE: order.mode, _COLUMN: order.column, _POSITION: position}
        self._folder.write_text(_file_name(table), json.dumps(content))


def _file_name(table: str) -> str:
    """Return the name of a table's file; the names of catalogs and schemas may have characters that files do not."""
    safe = re.sub(r"[^\w.-]", "_", table)
    return f"position-{safe if safe == table else f'{safe}-{zlib.crc32(table.encode()):08x}'}.json"


def run(spark: SparkSession, flags: Any, stop_requested: Event) -> None:
    """Poll the tables until a stop is requested; once with --once. Raises JobError."""
    database = Database(spark, flags.jdbc_url, flags.jdbc_option)
    readers = {table: TableReader(database, table, flags.mode, flags.column) for table in flags.tables}
    if flags.not_null:
        for reader in readers.values():
            reader.refuse_nulls()
    folder = Folder(spark, flags.checkpoint)
    sink = sink_options(flags.bootstrap_servers, flags.kafka_option)
    while not stop_requested.is_set():
        poll(readers, folder, sink, flags)
        if flags.once:
            return
        stop_requested.wait(flags.interval_seconds)


def _tables(text: str) -> list[str]:
    return [checked(is_sql_name, "names of tables")(table) for table in text.split(",")]


def parse(arguments: Sequence[str] | None) -> Any:
    parser = client_parser("jdbc_source", __doc__)
    add = parser.add_argument
    add_database_flags(add)
    add_session_settings(add)
    add("--tables", type=_tables, required=True, metavar="TABLE,...", help="tables to read")
    add("--mode", choices=("incrementing", "timestamp", "bulk"), required=True, help="how new rows are found")
    add("--column", type=checked(is_sql_name, "a column"), help="the column that rises, except in bulk mode")
    add("--not-null", action="store_true", help="refuse a table whose --column may be null")
    add("--topic-prefix", default="", help="put before the names of the tables (default: none)")
    add("--envelope", action="store_true", help="write values in Connect's envelope")
    add("--checkpoint", required=True, metavar="DIR", help="where the positions are kept: a folder or a URI")
    add("--interval-seconds", type=positive, default=5, metavar="N", help="time between polls (default %(default)s)")
    add("--once", action="store_true", help="end after the first poll")
    flags = parser.parse_args(arguments)
    if flags.mode != "bulk" and flags.column is None:
        parser.error(f"argument --mode: {flags.mode} needs --column")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    flags = parse(arguments)
    topics = [
        TopicSpec(f"{flags.topic_prefix}{table}", flags.partitions, flags.replication_factor) for table in flags.tables
    ]

    def prepare() -> SparkSession:
        prepare_topics(flags, topics)
        return spark_session("jdbc_source", session_settings(flags.master, flags.spark_conf))

    def work(spark: SparkSession) -> None:
        try:
            run(spark, flags, stop_request())
        finally:
            spark.stop()

    return run_program("jdbc_source", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
