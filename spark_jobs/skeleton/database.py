"""Tables of a database by JDBC: reading, and applying a batch together with its number in one transaction (argument O).

The rows go to a staging table through Spark's JDBC writer, from all executors in parallel. Then one transaction on the
driver applies the staging table and replaces the number of the batch in `SPARK_JOB_BATCHES`. A batch whose number is
there is skipped. The transaction fails if the number is not the one that this run knows, because another run or
another job has the same `--app-id`.

Staging tables have the columns of their target, so that nothing is converted on the way. The statements are of standard
SQL: databases without CREATE TABLE AS, such as SQL Server, are not supported.

The drivers' jars are the user's: `--spark-conf spark.jars=...`. Derby's is part of pyspark. Java's DriverManager does
not see jars that Spark adds, so this module finds the driver of a URL itself.
"""

import argparse
import re
import secrets
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.skeleton.errors import JobError, cause_of
from spark_jobs.skeleton.parameters import add_client_settings

BATCHES = "SPARK_JOB_BATCHES"
_APP, _BATCH = "APP", "BATCH"  # its columns
_BATCHES_SCHEMA = StructType([StructField(_APP, StringType()), StructField(_BATCH, LongType())])
_COLUMN_OF = {type(field.dataType): field.name for field in _BATCHES_SCHEMA}
_CLOB = "CLOB"
_LENGTH_MAX = 4000  # of a text that is compared, if its column states no length
_KEY_LENGTH_MAX = 255  # of a text that is a primary key: MySQL's keys have at most 3072 bytes
_MILLISECONDS = r"^-?\d{5,15}$"  # a time as a number; texts with fewer digits are years
_PROPERTIES = re.compile(r"[?;(]|:\w+=")  # what begins the properties of a URL
_LOGIN = re.compile(r"((?>jdbc:[\w.+-]+:(?:(?:thin|oci):)?(?://)?))[^@]*[:/].*@")  # USER:PASSWORD@ or USER/PASSWORD@
_SQL_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps the length of a text
_LENGTH = re.compile(r"(?:var)?char\((\d+)\)")
_POSTGRESQL = "PostgreSQL"  # the name of the product
_MYSQL = ("MySQL", "MariaDB")  # either is the name that a driver may give to both
_HAS_NO_NUL = "without_nul"  # of a column whose texts cannot have the character NUL
_NO_NULLS = 0  # ResultSetMetaData.columnNoNulls
_ROWS_AT_ONCE = "1000"  # some drivers would load a whole table into memory
_STAGE_ATTEMPTS = 3
NO_OPTIONS: Mapping[str, str] = {}


def add_database_flags(add: Callable[..., argparse.Action]) -> None:
    """Add `--jdbc-url`, `--jdbc-option` and `--jdbc-config` by the `add_argument` of a parser or of a group."""
    add("--jdbc-url", required=True, metavar="URL", help="the database, such as jdbc:postgresql://host/name")
    add_client_settings(add, "jdbc", "the JDBC driver, such as user and password")


class Database:
    """One database; each call opens a connection of its own."""

    def __init__(self, spark: SparkSession, url: str, options: Mapping[str, str] = NO_OPTIONS) -> None:
        """`options` are properties for the driver. Raises JobError if there is no driver for the URL."""
        self._spark = spark
        self._url = url
        self._properties = spark._jvm.java.util.Properties()
        for key, value in options.items():
            self._properties.setProperty(key, value)
        self._name = without_login(url)
        self._driver = _driver_of(spark, url)
        fixed = {"url": url, "driver": self._driver.getClass().getName()}
        self._spark_options = {"fetchsize": _ROWS_AT_ONCE, **options, **fixed}
        self._has_clobs = _sql_type(spark, url, StringType()) == _CLOB
        self._quote: str | None = None
        self._stores_upper_case: bool | None = None
        self._escapes_by_backslash: bool | None = None

    def read(self, table_or_query: str) -> DataFrame:
        """Return a table, or a query in parentheses with an alias."""
        return self._spark.read.format("jdbc").options(**self._spark_options, dbtable=table_or_query).load()

    def schema(self, table: str) -> StructType:
        """Return the columns of a table as a schema of Spark. Raises JobError if the table does not exist."""
        connection = self._connect()
        try:
            fields = self.read(table).schema.fields
            # Spark calls all columns nullable.
            columns = connection.createStatement().executeQuery(f"SELECT * FROM {table} WHERE 1=0").getMetaData()
            is_nullable = [columns.isNullable(number) != _NO_NULLS for number in range(1, len(fields) + 1)]
            further = {_HAS_NO_NUL: True} if connection.getMetaData().getDatabaseProductName() == _POSTGRESQL else {}
        except (PySparkException, Py4JJavaError) as error:
            raise JobError(f"table {table} of {self._name} cannot be read: {cause_of(error)}") from error
        finally:
            connection.close()
        return StructType(
            [
                StructField(each.name, each.dataType, nullable, {**each.metadata, **further})
                for each, nullable in zip(fields, is_nullable, strict=True)
            ]
        )

    def names(self, columns: Iterable[str]) -> str:
        """Return the names of columns as SQL: Spark quotes the columns of the tables that it makes."""
        return ", ".join(map(self._quoted, columns))

    def matches(self, other: str, table: str, keys: Iterable[str], newer: str | None = None) -> str:
        """Return the condition that `other` has a row with the keys of the row of `table`.

        With `newer`, only a row whose column of that name is not below the one of `table`.
        """
        pairs = [f"{other}.{self._quoted(key)} = {table}.{self._quoted(key)}" for key in keys]
        if newer is not None:
            pairs.append(f"{other}.{self._quoted(newer)} >= {table}.{self._quoted(newer)}")
        return f"EXISTS (SELECT 1 FROM {other} WHERE {' AND '.join(pairs)})"

    def literal(self, text: str) -> str:
        """Return a text as an SQL literal."""
        if self._escapes_by_backslash is None:
            connection = self._connect()
            try:
                self._escapes_by_backslash = _escapes_by_backslash(connection)
            finally:
                connection.close()
        if self._escapes_by_backslash:
            text = text.replace("\\", "\\\\")
        return "'" + text.replace("'", "''") + "'"

    def delete_superseded(self, staging: str, keys: Sequence[str], orders: Sequence[Sequence[str]]) -> list[str]:
        """Return the statements that keep one of the rows of a staging table whose keys are equal for the database.

        For each of `orders` in turn, they delete a row if another one has equal values in all columns of the order but
        the last one, and a higher value in that one.
        """
        statements = []
        for *same, rising in orders:
            # MySQL does not delete rows of a table that a subquery reads, except from a copy such as DISTINCT makes.
            rows = f"(SELECT DISTINCT {self.names([*keys, *same, rising])} FROM {staging}) later"
            pairs = [f"later.{column} = {staging}.{column}" for column in map(self._quoted, [*keys, *same])]
            pairs.append(f"later.{self._quoted(rising)} > {staging}.{self._quoted(rising)}")
            statements.append(f"DELETE FROM {staging} WHERE EXISTS (SELECT 1 FROM {rows} WHERE {' AND '.join(pairs)})")
        return statements

    def upsert(self, staging: str, table: str, keys: Sequence[str], schema: StructType) -> list[str]:
        """Return the statements that replace the rows of `table` whose keys are in `staging` by the rows there."""
        return [f"DELETE FROM {table} WHERE {self.matches(staging, table, keys)}", *self.insert(staging, table, schema)]

    def insert(self, staging: str, table: str, schema: StructType) -> list[str]:
        """Return the statement that adds the rows of `staging` to `table`."""
        return [f"INSERT INTO {table} ({self.names(schema.names)}) SELECT {self.staged(schema)} FROM {staging}"]

    def qualified(self, table: str) -> str:
        """Return the name of a table in lower case with its catalog and schema, where the database has them.

        Those that `table` does not name are the connection's.
        """
        connection = self._connect()
        try:
            place = [str(each) for each in (connection.getCatalog(), connection.getSchema()) if each]
        finally:
            connection.close()
        return qualified_name(table, place)

    def has_table(self, table: str) -> bool:
        """Whether a table exists; names are compared without regard to case."""
        schema, _, name = table.rpartition(".")
        return name.lower() in map(str.lower, self._tables_of(schema))

    def _tables_of(self, schema: str) -> list[str]:
        """Return the names of the tables of a schema, as the database spells them.

        An empty text is the connection's schema, which is called a catalog in MySQL.
        """
        connection = self._connect()
        try:
            place = schema.rpartition(".")[2] or connection.getSchema() or connection.getCatalog()
            tables = connection.getMetaData().getTables(None, None, None, None)
            names = []
            while tables.next():
                places = {str(tables.getString(column)).lower() for column in ("TABLE_SCHEM", "TABLE_CAT")}
                if place is None or place.lower() in places:
                    names.append(str(tables.getString("TABLE_NAME")))
            return names
        finally:
            connection.close()

    def create(self, table: str, columns: StructType, keys: Collection[str]) -> None:
        """Create a table whose primary key is `keys`; none without. Raises JobError."""
        parts = [f"{self._new_name(each.name)} {self._type_of(each, is_key=each.name in keys)}" for each in columns]
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(map(self._new_name, keys))})")
        self.execute([f"CREATE TABLE {table} ({', '.join(parts)})"])

    def add_columns(self, table: str, columns: StructType) -> None:
        """Add columns, which are null in the rows that exist. Raises JobError."""
        self.execute(
            [f"ALTER TABLE {table} ADD COLUMN {self._new_name(each.name)} {self._type_of(each)}" for each in columns]
        )

    def _new_name(self, name: str) -> str:
        """Return a name as SQL, spelled as if a user had created the column without quotes."""
        if self._stores_upper_case is None:
            connection = self._connect()
            try:
                self._stores_upper_case = bool(connection.getMetaData().storesUpperCaseIdentifiers())
            finally:
                connection.close()
        return self._quoted(name.upper() if self._stores_upper_case else name)

    def _type_of(self, field: StructField, *, is_key: bool = False) -> str:
        """Return the type of a new column."""
        if is_key and isinstance(field.dataType, StringType):
            kind = f"VARCHAR({_KEY_LENGTH_MAX})"
        else:
            kind = _sql_type(self._spark, self._url, field.dataType)
        return f"{kind} NOT NULL" if is_key else kind

    def new_staging_table(self, table: str, app_id: str) -> str:
        """Return the name of the staging table of one run of a job, and drop those of earlier runs. Raises JobError.

        A run that still uses one of these fails, and its batch is rolled back. If both runs had one table, the earlier
        would apply the rows that it wrote after the start of the later, as if they were the whole batch.
        """
        of_run = f"_{secrets.token_hex(4).upper()}"
        staging = self.table_beside(table, f"_STAGING_{zlib.crc32(app_id.encode()):08X}{of_run}")
        schema, dot, name = staging.removesuffix(of_run).rpartition(".")
        left_over = [each for each in self._tables_of(schema) if each.lower().startswith(name.lower())]
        self.execute([f"DROP TABLE {schema}{dot}{each}" for each in left_over])
        return staging

    def table_beside(self, table: str, suffix: str) -> str:
        """Return the name of `table` with a suffix, in the length that the database allows."""
        connection = self._connect()
        try:
            size_max = int(connection.getMetaData().getMaxTableNameLength())
        finally:
            connection.close()
        return with_suffix(table, suffix, size_max)

    def execute(self, statements: Sequence[str]) -> None:
        """Run statements in one transaction. Raises JobError."""
        with self._transaction() as statement:
            for text in statements:
                statement.executeUpdate(text)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Give a statement of a transaction, which is rolled back if the block raises. Raises JobError."""
        connection = self._connect()
        try:
            connection.setAutoCommit(False)
            yield connection.createStatement()
            connection.commit()
        except Py4JJavaError as error:
            connection.rollback()
            raise JobError(f"{self._name}: {cause_of(error)}") from error
        except JobError:
            connection.rollback()
            raise
        finally:
            connection.close()

    def make(self, name: str, table: str, columns: StructType, keys: Sequence[str], added: StructType) -> None:
        """Create an empty table with columns of `table`, which may be null in it.

        Statements may compare the columns `keys`, and those `added`, which are texts and numbers.
        """
        if self._has_clobs:
            never_null = [*keys, *added.names]
            self._make_by_spark(name, StructType([*columns, *added]), never_null)
            return
        # Columns of the right side of an outer join may be null, which a copy in MySQL otherwise keeps from being so.
        copied = [f"t.{self._quoted(each)}" for each in columns.names]
        copied += [f"b.{self._quoted(_COLUMN_OF[type(each.dataType)])} AS {self._quoted(each.name)}" for each in added]
        source = f"{BATCHES} b LEFT JOIN {table} t ON 1=0"
        self.execute([f"CREATE TABLE {name} AS SELECT {', '.join(copied)} FROM {source} WHERE 1=0"])

    def stage(self, rows: DataFrame, staging: str, keys: Sequence[str]) -> None:
        """Replace the rows of a staging table. Raises JobError, or what Spark raises.

        No two of `rows` have equal `keys`, also by the rules of the database, which may ignore the case of texts.
        """
        for _ in range(_STAGE_ATTEMPTS):
            self.execute([f"DELETE FROM {staging}"])
            self._append(rows, staging)
            if not self.repeats(staging, keys):
                return
        raise JobError(f"{self._name}: {staging} has rows twice after {_STAGE_ATTEMPTS} attempts")

    def _append(self, rows: DataFrame, table: str) -> None:
        rows.write.format("jdbc").options(**self._spark_options, dbtable=table).mode("append").save()

    def repeats(self, table: str, keys: Sequence[str]) -> bool:
        """Whether a table has a key twice. Spark repeats the part of an executor that is lost after it has written."""
        names = self.names(keys)
        connection = self._connect()
        try:
            query = f"SELECT {names} FROM {table} GROUP BY {names} HAVING COUNT(*) > 1"
            return bool(connection.createStatement().executeQuery(query).next())
        finally:
            connection.close()

    def _make_by_spark(self, name: str, schema: StructType, never_null: Sequence[str]) -> None:
        nullable = StructType([StructField(each.name, each.dataType, metadata=each.metadata) for each in schema])
        writer = self._spark.createDataFrame([], nullable).write.format("jdbc")
        # Where texts are CLOBs, nulls are bound as CLOBs too: a column with another type cannot have them.
        types = [f"`{each}` {_varchar(schema[each])}" for each in never_null if self._is_clob(schema[each])]
        if types:
            writer = writer.option("createTableColumnTypes", ", ".join(types))
        writer.options(**self._spark_options, dbtable=name).mode("append").save()

    def _is_clob(self, field: StructField) -> bool:
        """Whether Spark makes the column a CLOB, which can neither be compared nor be stored as another text."""
        return self._has_clobs and isinstance(field.dataType, StringType)

    def staged(self, schema: StructType) -> str:
        """Return the columns of a staging table as SQL, with values that the columns of `schema` can store."""
        return ", ".join(
            f"CAST({self._quoted(field.name)} AS {_varchar(field)})"
            if self._is_clob(field) and _length(field) is not None
            else self._quoted(field.name)
            for field in schema
        )

    def last_batch(self, app_id: str) -> int:
        """Return the number of the last batch that was applied, or -1. Creates the table of batches."""
        if not self.has_table(BATCHES):
            self._make_by_spark(BATCHES, _BATCHES_SCHEMA, [_APP])
        number, app = self.names([_BATCH]), self.names([_APP])
        rows = self.read(f"(SELECT {number} FROM {BATCHES} WHERE {app} = {self.literal(app_id)}) last_batch").collect()
        if len(rows) > 1:
            raise JobError(
                f"{self._name}: {BATCHES} has {len(rows)} rows of {app_id}, expected one: two jobs with this --app-id "
                "have begun at the same time. Delete the rows, and give each job an --app-id of its own"
            )
        return int(rows[0][0]) if rows else -1

    def apply_batch(self, app_id: str, last_batch: int, batch: int, statements: Sequence[str]) -> None:
        """Run statements, and replace the number of the last batch, -1 for none, in one transaction.

        Raises JobError, also if the table of batches has another number.
        """
        app = self.literal(app_id)
        is_app = f"{self.names([_APP])} = {app}"
        is_last = is_app if last_batch < 0 else f"{is_app} AND {self.names([_BATCH])} = {last_batch}"
        with self._transaction() as statement:
            for text in statements:
                statement.executeUpdate(text)
            # Last, because databases that search the table row by row keep all its rows locked from here on.
            if statement.executeUpdate(f"DELETE FROM {BATCHES} WHERE {is_last}") != (last_batch >= 0):
                expected = "no batch" if last_batch < 0 else f"batch {last_batch}"
                raise JobError(
                    f"{self._name}: {BATCHES} should have {expected} as the last one of {app_id}, but another run "
                    "has changed it: end that run, or give each job an --app-id of its own"
                )
            statement.executeUpdate(f"INSERT INTO {BATCHES} ({self.names([_APP, _BATCH])}) VALUES ({app}, {batch})")

    def _quoted(self, name: str) -> str:
        if self._quote is None:
            connection = self._connect()
            self._quote = str(connection.getMetaData().getIdentifierQuoteString()).strip()
            connection.close()
        return f"{self._quote}{name}{self._quote}"

    def _connect(self) -> Any:
        try:
            return self._driver.connect(self._url, self._properties)
        except Py4JJavaError as error:
            raise JobError(f"{self._name}: {cause_of(error)}") from error


class AppliedBatches:
    """The number of the last batch that a job has applied to a database."""

    def __init__(self, database: Database, app_id: str) -> None:
        self._database = database
        self._app_id = app_id
        self.last = database.last_batch(app_id)

    def apply(self, batch: int, statements: Sequence[str]) -> None:
        """Run statements, and store the number of their batch, in one transaction.

        Raises JobError, also if another run has changed the number since this one has read or stored it.
        """
        self._database.apply_batch(self._app_id, self.last, batch, statements)
        self.last = batch


def qualified_name(table: str, place: Sequence[str]) -> str:
    """Return the name of a table in lower case, with those parts of `place` in front of it that it does not have.

    `place` is the catalog and the schema of a connection; some databases have only one of them, or none.
    """
    given = table.split(".")
    missing = place[: max(0, len(place) + 1 - len(given))]
    return ".".join([*missing, *given]).lower()


def with_suffix(table: str, suffix: str, size_max: int) -> str:
    """Return the name of a table with a suffix, of at most `size_max` bytes after its schema; 0 is no limit.

    In a name that is too long, a CRC replaces the end of `table`, in which other tables may differ. PostgreSQL would
    drop the suffix instead.
    """
    schema, dot, name = table.rpartition(".")
    if 0 < size_max < len(name) + len(suffix):
        suffix = f"_{zlib.crc32(name.lower().encode()):08X}{suffix}"
        name = name[: size_max - len(suffix)]
    return f"{schema}{dot}{name}{suffix}"


def without_login(url: str) -> str:
    """Return a JDBC URL without user, password and properties, for messages."""
    return _LOGIN.sub(r"\1", _PROPERTIES.split(url)[0])


def _driver_of(spark: SparkSession, url: str) -> Any:
    """Return the JDBC driver for a URL. Raises JobError if no jar has one."""
    java = spark._jvm.java
    loader = java.lang.Thread.currentThread().getContextClassLoader()  # it has the jars that Spark added
    drivers = java.util.ServiceLoader.load(java.lang.Class.forName("java.sql.Driver"), loader).iterator()
    while drivers.hasNext():
        driver = drivers.next()
        if driver.acceptsURL(url):
            return driver
    raise JobError(
        f"--jdbc-url: {without_login(url)} has no JDBC driver: add its jar with --spark-conf spark.jars=FILE"
    )


def _escapes_by_backslash(connection: Any) -> bool:
    """Whether a backslash in a literal escapes the next character, beside standard SQL."""
    if connection.getMetaData().getDatabaseProductName() not in _MYSQL:
        return False
    modes = connection.createStatement().executeQuery("SELECT @@sql_mode")
    modes.next()
    return "NO_BACKSLASH_ESCAPES" not in modes.getString(1).split(",")


def _sql_type(spark: SparkSession, url: str, kind: DataType) -> str:
    """Return the type that Spark gives to columns in tables that it makes."""
    java = spark._jvm.org.apache.spark.sql
    java_kind = java.types.DataType.fromDDL(kind.simpleString())
    found = java.jdbc.JdbcDialects.get(url).getJDBCType(java_kind)
    if not found.isDefined():
        found = java.execution.datasources.jdbc.JdbcUtils.getCommonJDBCType(java_kind)
    return str(found.get().databaseTypeDefinition())


def columns_of(text: Column, schema: StructType) -> list[Column]:
    """Return the fields of a JSON object as the columns of a table; names are compared without regard to case."""
    return [_typed(_value(text, each), each).alias(each.name) for each in schema]


def _typed(value: Column, field: StructField) -> Column:
    """Return a text as a value of a column; null if it is none. Times may be numbers of milliseconds, as Connect has
    them."""
    typed = value.try_cast(field.dataType)
    if not isinstance(field.dataType, TimestampType | TimestampNTZType):
        return typed
    milliseconds = f.timestamp_millis(value.try_cast("bigint")).cast(field.dataType)
    return f.when(value.rlike(_MILLISECONDS), milliseconds).otherwise(typed)


def key_columns(flag: str, table: str, schema: StructType, keys: Sequence[str]) -> list[str]:
    """Return the columns of a table that `keys` name in any case. Raises JobError, which names the flag."""
    column_of = {name.lower(): name for name in schema.names}
    if missing := [key for key in keys if key.lower() not in column_of]:
        raise JobError(f"{flag}: {table} has no column {missing[0]}")
    return [column_of[key.lower()] for key in keys]


def fits(text: Column, schema: StructType, keys: Collection[str]) -> Column:
    """Return whether a JSON object has the fields `keys`, and its values can be stored in their columns."""
    conditions = []
    for field in schema:
        value = _value(text, field)
        is_storable = _is_storable(value, field)
        needs_value = field.name in keys or not field.nullable
        conditions.append(is_storable if needs_value else value.isNull() | is_storable)
    return reduce(and_, conditions)


def _is_storable(value: Column, field: StructField) -> Column:
    """Return whether a text can be stored in a column; false for null. Databases have no NaN, and four-digit years."""
    typed = _typed(value, field)
    condition = typed.isNotNull()
    if isinstance(field.dataType, DoubleType | FloatType):
        condition = typed.between(-sys.float_info.max, sys.float_info.max)
    elif isinstance(field.dataType, DateType | TimestampType | TimestampNTZType):
        condition = f.year(typed).between(1, 9999)
    elif isinstance(field.dataType, StringType):
        if field.metadata.get(_HAS_NO_NUL):
            condition = ~f.contains(typed, f.lit("\0"))
        if (length := _length(field)) is not None:
            condition &= f.char_length(typed) <= length
    return f.coalesce(condition, f.lit(False))


def _length(field: StructField) -> int | None:
    """Return the length that the column of a text states. SQLite's driver states 0 for a column without one."""
    length = _LENGTH.fullmatch(field.metadata.get(_SQL_TYPE, ""))
    return None if length is None else int(length[1]) or None


def _varchar(field: StructField) -> str:
    return f"VARCHAR({_length(field) or _LENGTH_MAX})"


def _value(text: Column, field: StructField) -> Column:
    """Return the text of the first field of a JSON object with that name; null if there is none."""
    named = f.map_filter(f.from_json(text, "map<string, string>"), lambda name, _: f.lower(name) == field.name.lower())
    return f.get(f.map_values(named), f.lit(0))
