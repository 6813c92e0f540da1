"""Rows of a database reach topics once, and objects of a topic reach a table by key."""

import itertools
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import jdbc_sink, jdbc_source, lake_load
from spark_jobs.jdbc_source import Order, Positions, TableReader, poll
from spark_jobs.skeleton.database import AppliedBatches, Database
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.folders import Folder
from tests.spark_jobs.conftest import FAR_FROM_UTC, JobRunner, KeptSession, Sent, Topics, objects, record_ids, records

pytestmark = pytest.mark.spark

ROWS = 30


@pytest.fixture
def database(spark: SparkSession, empty_derby: Path, tmp_path: Path) -> Database:
    shutil.copytree(empty_derby, tmp_path / "db")
    return Database(spark, f"jdbc:derby:{tmp_path}/db")


def flags(topics: Topics, folder: Path, prefix: str, tables: str, *more: str) -> list[str]:
    return [
        "--bootstrap-servers", topics.bootstrap, "--jdbc-url", f"jdbc:derby:{folder}/db", "--topic-prefix", prefix,
        "--tables", tables, "--checkpoint", str(folder / "positions"), "--once", *more,
    ]  # fmt: skip


def test_new_rows_are_sent_once_in_connects_envelope(
    spark: SparkSession, database: Database, topics: Topics, tmp_path: Path
) -> None:
    database.execute(
        [
            "CREATE TABLE login (username VARCHAR(30), login_time TIMESTAMP, fee DECIMAL(5,2) DEFAULT 1.50)",
            "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(30))",
            "INSERT INTO login (username, login_time) VALUES ('ann', TIMESTAMP('2013-01-01 00:00:01'))",
            "INSERT INTO login (username, login_time) VALUES ('bob', TIMESTAMP('2013-01-01 00:00:03'))",
            "INSERT INTO items VALUES (7, 'seven'), (8, NULL)",
        ]
    )
    prefix = topics.new_name("mysql.")
    for table in ("login", "items"):
        topics.create_named(f"{prefix}{table}", 1)
    of_login = flags(topics, tmp_path, prefix, "login", "--mode", "timestamp", "--column", "login_time", "--envelope")
    of_items = flags(topics, tmp_path, prefix, "items", "--mode", "incrementing", "--column", "id")
    for arguments in (of_login, of_items, of_login, of_items):
        jdbc_source.run(spark, jdbc_source.parse(arguments), Event())
    database.execute(["INSERT INTO login (username, login_time) VALUES ('cy', TIMESTAMP('2013-01-01 00:00:09'))"])
    jdbc_source.run(spark, jdbc_source.parse(of_login), Event())
    found = topics.read(f"{prefix}login")
    values = [json.loads(str(value)) for _, value in records(found)]
    assert [value["payload"] for value in values] == [
        {"USERNAME": name, "LOGIN_TIME": 1_356_998_400_000 + second * 1000, "FEE": 1.5}
        for name, second in (("ann", 1), ("bob", 3), ("cy", 9))
    ]
    assert values[0]["schema"]["fields"][1] == {
        "type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp", "version": 1,
        "field": "LOGIN_TIME",
    }  # fmt: skip
    assert values[0]["schema"]["fields"][2] == {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
        "parameters": {"scale": "2"}, "field": "FEE",
    }  # fmt: skip
    items = topics.read(f"{prefix}items")
    assert [value for _, value in records(items)] == ['{"ID":7,"NAME":"seven"}', '{"ID":8,"NAME":null}']
    assert record_ids(items) == ["items/7", "items/8"]


def test_rows_with_the_same_time_have_different_ids_and_are_sent_once(
    spark: SparkSession, database: Database, topics: Topics, tmp_path: Path
) -> None:
    times = ["2024-01-01 00:00:00.123456789"] * 2 + ["2024-01-01 00:00:00.123457001"]
    rows = [f"({number}, TIMESTAMP('{time}'))" for number, time in enumerate(times)]
    database.execute(
        ["CREATE TABLE events (id INT, happened TIMESTAMP)", f"INSERT INTO events VALUES {rows[0]}, {rows[1]}"]
    )
    prefix = topics.new_name("mysql.")
    topics.create_named(f"{prefix}events", 1)
    of_events = flags(topics, tmp_path, prefix, "events", "--mode", "timestamp", "--column", "happened")
    for _ in range(2):
        jdbc_source.run(spark, jdbc_source.parse(of_events), Event())
    by_day = TableReader(database, "(SELECT id, DATE(happened) AS on_day FROM events) days", "timestamp", "on_day")
    of_days = by_day.to_records(by_day.new_rows(None), with_envelope=False)
    assert of_days.select("headers").distinct().count() == 2
    database.execute([f"INSERT INTO events VALUES {rows[2]}"])
    jdbc_source.run(spark, jdbc_source.parse(of_events), Event())
    found = topics.read(f"{prefix}events")
    assert sorted(json.loads(str(value))["ID"] for _, value in records(found)) == [0, 1, 2]
    ids = record_ids(found)
    assert len(set(ids)) == 3
    (
        tmp_path / "positions" / "position-app.events.json"
    ).unlink()  # as if the job was killed before it stored the position
    jdbc_source.run(spark, jdbc_source.parse(of_events), Event())
    assert set(record_ids(topics.read(f"{prefix}events"))) == set(ids)


def test_a_row_that_appears_while_rows_are_sent_is_not_lost_with_an_executor(
    spark: SparkSession, database: Database, topics: Topics, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE items (id INT)", "INSERT INTO items VALUES 1"])

    class LosesItsRows(TableReader):
        def position(self, rows: DataFrame) -> str | None:
            rows.unpersist()
            database.execute(["INSERT INTO items VALUES 2"])
            return super().position(rows)

    prefix = topics.new_name("mysql.")
    topics.create_named(f"{prefix}items", 1)
    of_items = jdbc_source.parse(flags(topics, tmp_path, prefix, "items", "--mode", "incrementing", "--column", "id"))
    folder, sink = Folder(spark, str(tmp_path / "positions")), {"kafka.bootstrap.servers": topics.bootstrap}
    poll({"items": LosesItsRows(database, "items", "incrementing", "id")}, folder, sink, of_items)
    poll({"items": TableReader(database, "items", "incrementing", "id")}, folder, sink, of_items)
    assert {value for _, value in records(topics.read(f"{prefix}items"))} == {'{"ID":1}', '{"ID":2}'}


def test_tables_of_the_same_name_in_two_schemas_have_a_position_each(
    spark: SparkSession, database: Database, topics: Topics, tmp_path: Path
) -> None:
    for schema, ids in (("a", "(1), (2)"), ("b", "(1)")):
        database.execute(
            [
                f"CREATE SCHEMA {schema}",
                f"CREATE TABLE {schema}.items (id INT)",
                f"INSERT INTO {schema}.items VALUES {ids}",
            ]
        )
    for schema, sent in (("a", [1, 2]), ("b", [1])):
        prefix = topics.new_name(f"{schema}.")
        topics.create_named(f"{prefix}items", 1)
        of_items = flags(topics, tmp_path, prefix, "items", "--mode", "incrementing", "--column", "id")
        for _ in range(2):
            jdbc_source.run(spark, jdbc_source.parse([*of_items, "--jdbc-option", f"user={schema}"]), Event())
        assert [json.loads(str(value))["ID"] for _, value in records(topics.read(f"{prefix}items"))] == sent
    here = f"jdbc:derby:{tmp_path}/db"
    for table, last in (("a.items", "2"), ("b.items", "1")):
        stored = json.loads((tmp_path / "positions" / f"position-{table}.json").read_text())
        assert stored == {"jdbc-url": here, "mode": "incrementing", "column": "id", "position": last}
    other = ["--jdbc-url", f"jdbc:derby:{tmp_path}/other;create=true", "--jdbc-option", "user=b"]
    elsewhere = jdbc_source.parse([*of_items, *other])
    Database(spark, elsewhere.jdbc_url, {"user": "b"}).execute(["CREATE TABLE items (id INT)"])
    with pytest.raises(JobError, match=f"--checkpoint: .*/positions has a position in {here}, not in .*/other: use"):
        jdbc_source.run(spark, elsewhere, Event())


def test_a_row_that_is_larger_than_a_producers_default_is_sent(
    spark: SparkSession, database: Database, topics: Topics, tmp_path: Path
) -> None:
    size = 1_500_000
    database.execute(["CREATE TABLE large (id INT, text CLOB)"])
    database.stage(spark.sql(f"SELECT 1 AS id, repeat('x', {size}) AS text"), "large", ["ID"])
    prefix = topics.new_name("mysql.")
    topics.create_named(f"{prefix}large", 1, {"max.message.bytes": "2097152"})
    of_table = flags(topics, tmp_path, prefix, "large", "--mode", "incrementing", "--column", "id")
    jdbc_source.run(spark, jdbc_source.parse(of_table), Event())
    ((_, value),) = records(topics.read(f"{prefix}large"))
    assert len(json.loads(str(value))["TEXT"]) == size


@pytest.fixture
def _far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Move this process to the time zone in which Spark was started."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", FAR_FROM_UTC)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_far_from_utc")
def test_a_driver_of_the_user_reads_times_as_utc_wherever_the_machine_is(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdbc_source, "spark_session", lambda _app_id, _settings: KeptSession(spark))
    prefix = topics.new_name("mysql.")
    topics.create_named(f"{prefix}login", 1)
    config = tmp_path / "jdbc.properties"
    config.write_text("date_string_format=yyyy-MM-dd HH:mm:ss\n")
    arguments = [
        "--bootstrap-servers", topics.bootstrap, "--jdbc-url", f"jdbc:sqlite:{tmp_path}/db", "--topic-prefix", prefix,
        "--jdbc-config", str(config), "--tables", "login", "--mode", "timestamp", "--column", "login_time",
        "--checkpoint", str(tmp_path / "positions"), "--once",
    ]  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as database:
        database.execute("CREATE TABLE login (username TEXT, login_time TIMESTAMP)")
        for second in (1, 3):
            database.execute(f"INSERT INTO login VALUES ('ann', '2013-01-01 00:00:0{second}')")
        assert jdbc_source.main(arguments) == 0
    values = [json.loads(str(value)) for _, value in records(topics.read(f"{prefix}login"))]
    assert values == [{"username": "ann", "login_time": 1_356_998_400_000 + 1_000 * second} for second in (1, 3)]


def test_a_url_without_a_driver_is_named_without_its_login(spark: SparkSession) -> None:
    with pytest.raises(JobError, match=r"--jdbc-url: jdbc:none://h/db has no JDBC driver: add its jar with"):
        Database(spark, "jdbc:none://user:secret@h/db?password=secret")


def test_every_row_of_a_table_reaches_the_files_through_a_topic(
    spark: SparkSession, database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    rows = ", ".join(f"({number})" for number in range(50))
    database.execute(["CREATE TABLE numbers (id INT PRIMARY KEY)", f"INSERT INTO numbers VALUES {rows}"])
    prefix = topics.new_name("hub.")
    topics.create_named(f"{prefix}numbers", 2)
    of_table = flags(topics, tmp_path, prefix, "numbers", "--mode", "incrementing", "--column", "id")
    jdbc_source.run(spark, jdbc_source.parse(of_table), Event())
    job_runner.run(lake_load.JOB, "--input", f"{prefix}numbers", "--path", str(tmp_path / "lake"))
    stored = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(json.loads(row.value)["ID"] for row in stored) == list(range(50))


def test_objects_replace_the_rows_with_their_key_and_a_repeated_batch_changes_nothing(
    spark: SparkSession, database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE prices (symbol VARCHAR(10) PRIMARY KEY, price DOUBLE, note VARCHAR(20))"])
    source, dead = topics.create("rows", 1), topics.create("dead", 1)
    arguments = ["--input", source, "--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "prices", "--keys", "symbol"]
    arguments += ["--dead-letter", dead]
    unfit = [Sent(b"{}"), *objects({"symbol": "C", "price": "much"})]
    topics.send(
        source,
        objects(
            {"symbol": "A", "price": 1.5, "note": "o'clock", "NOTE": "the first counts"}, {"symbol": "B", "price": 2}
        ),
    )
    job_runner.run(jdbc_sink.JOB, *arguments)
    topics.send(source, [*objects({"symbol": "A", "price": 3}, {"symbol": "A", "price": 4}), *unfit])
    job_runner.run(jdbc_sink.JOB, *arguments)
    assert sorted(tuple(row) for row in database.read("prices").collect()) == [("A", 4.0, None), ("B", 2.0, None)]
    assert [message.value() for message in topics.read(dead)] == [each.value for each in unfit]
    database.execute(["UPDATE prices SET note = 'later' WHERE symbol = 'A'"])
    (job_runner.folder / "checkpoint" / "commits" / "1").unlink()  # as if the driver was killed before the commit
    job_runner.run(jdbc_sink.JOB, *arguments)
    assert sorted(tuple(row) for row in database.read("prices").collect()) == [("A", 4.0, "later"), ("B", 2.0, None)]
    with pytest.raises(JobError, match="--keys: prices has no column id"):
        job_runner.run(jdbc_sink.JOB, *arguments, "--keys", "id", "--app-id", "other")


def test_rows_of_a_task_that_ran_twice_are_staged_once(
    spark: SparkSession, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(["CREATE TABLE items (id INT, line INT)"])
    rows = spark.sql("VALUES (1, 1), (1, 2) AS rows(ID, LINE)")
    repeats: Iterator[int] = iter([1, 0])
    append = Database._append

    def append_some_twice(self: Database, rows: DataFrame, table: str) -> None:
        append(self, rows, table)
        append(self, rows.limit(next(repeats)), table)

    monkeypatch.setattr(Database, "_append", append_some_twice)
    database.stage(rows, "items", ["ID", "LINE"])
    assert sorted(tuple(row) for row in database.read("items").collect()) == [(1, 1), (1, 2)]
    repeats = itertools.repeat(1)
    with pytest.raises(JobError, match=r"/db: items has rows twice after 3 attempts"):
        database.stage(rows, "items", ["ID", "LINE"])


def test_long_texts_are_stored_whole(database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    database.execute(["CREATE TABLE notes (name VARCHAR(6000) PRIMARY KEY, title VARCHAR(6000), body CLOB)"])
    rows = [("n" * 5000, "t" * 6000, "b" * 70_000), ("short", None, None)]
    source = topics.create("rows", 1)
    topics.send(source, objects(*({"name": name, "title": title, "body": body} for name, title, body in rows)))
    flags = ["--input", source, "--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "notes", "--keys", "name"]
    job_runner.run(jdbc_sink.JOB, *flags)
    assert sorted(tuple(row) for row in database.read("notes").collect()) == rows


def test_the_last_object_of_a_key_is_stored_with_columns_of_any_name(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE results (runner INT PRIMARY KEY, place INT, kafka_offset INT, partition_ INT)"])
    source = topics.create("rows", 2)
    first, second, third = ({"runner": 7, "place": place, "kafka_offset": 5} for place in (1, 2, 3))
    topics.send(source, [Sent(json.dumps(first).encode(), timestamp_ms=9_000)])
    topics.send(source, [Sent(json.dumps(second).encode(), timestamp_ms=6_000)])  # replaces the one before it
    topics.send(source, [Sent(json.dumps(third).encode(), partition=1, timestamp_ms=7_000)])
    flags = ["--input", source, "--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "results", "--keys", "runner"]
    job_runner.run(jdbc_sink.JOB, *flags)
    assert [tuple(row) for row in database.read("results").collect()] == [(7, 3, 5, None)]


def test_the_last_object_is_stored_of_keys_that_only_the_database_finds_equal(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    url = f"jdbc:derby:{tmp_path}/db;create=true;territory=en;collation=TERRITORY_BASED:PRIMARY"
    database = Database(spark, url)
    database.execute(["CREATE TABLE runners (name VARCHAR(9), team INT, place INT, PRIMARY KEY (name, team))"])
    source = topics.create("rows", 3)
    # name, team, partition, timestamp: in a partition the last one counts, and of these the one with the last time
    places = [
        ("Bob", 1, 0, 9), ("bob", 1, 0, 5), ("Ann", 1, 0, 9), ("ann", 1, 0, 4), ("ANN", 1, 1, 5), ("aNN", 1, 2, 5),
        ("Cy", 1, 0, 1), ("cy", 2, 0, 2),
    ]  # fmt: skip
    for place, (name, team, partition, seconds) in enumerate(places):
        text = json.dumps({"name": name, "team": team, "place": place})
        topics.send(source, [Sent(text.encode(), partition=partition, timestamp_ms=seconds * 1_000)])
    flags = ["--input", source, "--jdbc-url", url, "--table", "runners", "--keys", "name,team"]
    job_runner.run(jdbc_sink.JOB, *flags)
    assert sorted(tuple(row) for row in database.read("runners").collect()) == [
        ("Cy", 1, 6), ("aNN", 1, 5), ("bob", 1, 1), ("cy", 2, 7),
    ]  # fmt: skip


def test_keys_that_are_numbers_are_compared(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(
        ["CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(10))", "INSERT INTO items VALUES (1, 'old')"]
    )
    source = topics.create("rows", 1)
    topics.send(source, objects({"id": 1, "name": "new"}, {"id": 2, "name": None}))
    flags = ["--input", source, "--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "items", "--keys", "id"]
    job_runner.run(jdbc_sink.JOB, *flags)
    assert sorted(tuple(row) for row in database.read("items").collect()) == [(1, "new"), (2, None)]


def test_a_column_that_is_added_to_the_source_reaches_the_target_with_its_type(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spark_jobs")
    source, target = f"jdbc:sqlite:{tmp_path}/source", f"jdbc:sqlite:{tmp_path}/target"
    prefix = topics.new_name("hub.")
    topics.create_named(f"{prefix}items", 1)
    of_source = jdbc_source.parse(
        [
            *flags(topics, tmp_path, prefix, "items", "--mode", "incrementing", "--column", "id", "--envelope"),
            *("--jdbc-url", source, "--not-null"),
        ]
    )
    sink = ["--input", f"{prefix}items", "--jdbc-url", target, "--table", "items", "--keys", "id"]
    sink += ["--value-format", "json-envelope", "--create-table", "--add-columns"]
    with (
        closing(sqlite3.connect(tmp_path / "source", isolation_level=None)) as left,
        closing(sqlite3.connect(tmp_path / "target", isolation_level=None)) as right,
    ):
        left.execute("CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))")
        left.execute("INSERT INTO items VALUES (1, 'one')")
        reader = TableReader(
            Database(spark, source), "items", "incrementing", "id"
        )  # as of a job that runs all the time
        reader.refuse_nulls()
        folder, kafka = Folder(spark, of_source.checkpoint), {"kafka.bootstrap.servers": topics.bootstrap}
        poll({"items": reader}, folder, kafka, of_source)
        job_runner.run(jdbc_sink.JOB, *sink)
        left.execute("ALTER TABLE items ADD COLUMN weight DOUBLE")
        left.execute("ALTER TABLE items ADD COLUMN bought TIMESTAMP")
        left.execute("INSERT INTO items VALUES (2, 'two', 2.5, 1356998400000)")
        poll({"items": reader}, folder, kafka, of_source)
        job_runner.run(jdbc_sink.JOB, *sink)
        assert right.execute("SELECT id, name, weight, bought FROM items ORDER BY id").fetchall() == [
            (1, "one", None, None),
            (2, "two", 2.5, 1_356_998_400_000),
        ]
        kinds = {name: kind for _, name, kind, *_ in right.execute("PRAGMA table_info(items)")}
        keys = [name for _, name, _, _, _, is_key in right.execute("PRAGMA table_info(items)") if is_key]
    assert (kinds["weight"], kinds["bought"], keys) == ("DOUBLE PRECISION", "TIMESTAMP", ["id"])
    assert "table items has the new column weight of type double" in caplog.text
    assert "table items gets the column bought of type timestamp" in caplog.text


def test_fields_of_plain_objects_get_columns_unless_they_are_objects(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE items (id INT PRIMARY KEY)"])
    source = topics.create("rows", 1)
    arguments = ["--input", source, "--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "items", "--keys", "id"]
    arguments += ["--add-columns"]
    topics.send(source, objects({"id": 1, "Note": "new", "none": None}, {"id": 2, "count": 2**40, "is_sold": True}))
    job_runner.run(jdbc_sink.JOB, *arguments)
    assert sorted(tuple(row) for row in database.read("items").select("ID", "NOTE", "COUNT", "IS_SOLD").collect()) == [
        (1, "new", None, None),
        (2, None, 2**40, True),
    ]
    topics.send(source, objects({"id": 3, "place": {"x": 1}}))
    with pytest.raises(StreamingQueryException, match="the field 'place' needs a column that the table cannot get"):
        job_runner.run(jdbc_sink.JOB, *arguments)


def test_objects_are_appended_without_keys_and_get_fields_from_the_records_key(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE visits (page VARCHAR(10), visitor VARCHAR(10), seconds INT)"])
    source = topics.create("visits", 1)
    visit = {"visitor": "ann", "seconds": 3, "PAGE": "of the value"}
    topics.send(source, [Sent(json.dumps(visit).encode(), key) for key in (b"home", b"home", None)])
    flags = ["--input", source, "--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "visits", "--on-error", "skip"]
    job_runner.run(jdbc_sink.JOB, *flags, "--key-format", "text", "--key-fields", "page")
    assert [tuple(row) for row in database.read("visits").collect()] == [("home", "ann", 3)] * 2
    by_key = topics.create("by-key", 1)
    topics.send(by_key, [Sent(b'{"seconds": 4}', key) for key in (b'{"PAGE": "a", "visitor": "b"}', b'"a"')])
    more = ["--key-format", "json", "--key-fields", "page,visitor", "--keys", "page,visitor", "--app-id", "by-key"]
    job_runner.run(jdbc_sink.JOB, *flags, "--input", by_key, *more, "--checkpoint", str(tmp_path / "by-key"))
    assert sorted(tuple(row) for row in database.read("visits").collect())[0] == ("a", "b", 4)
    assert database.read("visits").count() == 3


def test_the_last_field_of_a_name_counts_in_an_object_that_gets_a_key(
    spark: SparkSession, job_runner: JobRunner
) -> None:
    flags = ["--jdbc-url", "x", "--table", "visits", "--key-format", "text", "--key-fields", "page"]
    parameters = job_runner.parse(jdbc_sink.JOB, *flags)
    records = spark.sql("""SELECT CAST('home' AS BINARY) AS key, '{"seconds": 3, "seconds": 4}' AS payload""")
    (found,) = records.select(jdbc_sink.with_key(parameters).alias("text")).collect()
    assert json.loads(found.text) == {"page": "home", "seconds": "4"}


def test_a_column_that_may_be_null_is_refused_with_not_null(
    spark: SparkSession, database: Database, topics: Topics, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE items (id INT)"])
    of_items = flags(topics, tmp_path, "", "items", "--mode", "incrementing", "--column", "id", "--not-null")
    with pytest.raises(JobError, match="--not-null: the column ID of items may be null"):
        jdbc_source.run(spark, jdbc_source.parse(of_items), Event())


def test_two_jobs_with_one_table_have_a_staging_table_each(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE prices (symbol VARCHAR(10) PRIMARY KEY, price DOUBLE)"])
    arguments = ["--jdbc-url", f"jdbc:derby:{tmp_path}/db", "--table", "prices", "--keys", "symbol"]
    staging = {app: database.new_staging_table("prices", app) for app in ("left", "right")}
    assert staging["left"] != staging["right"]
    for app in staging:
        database.execute([f"CREATE TABLE {staging[app]} (left_over INT)"])
    database.new_staging_table("prices", "left")
    assert [database.has_table(staging[app]) for app in staging] == [False, True]
    queries = []
    for number, app in enumerate(staging):
        source = topics.create(app, 1)
        topics.send(source, objects(*({"symbol": f"{app}{each}", "price": each} for each in range(ROWS))))
        flags = ["--input", source, "--app-id", app, "--checkpoint", str(job_runner.folder / app)]
        queries += job_runner.start(
            jdbc_sink.JOB, *arguments, *flags, "--max-offsets-per-trigger", str(ROWS // 2 + number)
        )
    job_runner.finish(queries)
    assert {row.SYMBOL for row in database.read("prices").collect()} == {
        f"{app}{each}" for app in staging for each in range(ROWS)
    }


def test_a_run_whose_staging_table_another_run_has_dropped_applies_no_part_of_a_batch(
    spark: SparkSession, database: Database, job_runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(["CREATE TABLE prices (symbol VARCHAR(10) PRIMARY KEY, price INT)"])
    parameters = job_runner.parse(jdbc_sink.JOB, "--jdbc-url", "x", "--table", "prices", "--keys", "symbol")
    batch = spark.sql(
        """SELECT to_json(named_struct('symbol', symbol, 'price', 1)) AS text, 't' AS topic, 0 AS partition,
        offset, current_timestamp() AS timestamp FROM VALUES ('a', 0), ('b', 1) AS symbols(symbol, offset)"""
    )

    def start() -> jdbc_sink.Target:
        return jdbc_sink.Target(database, parameters, AppliedBatches(database, "jdbc_sink"))

    def append_around_a_start(self: Database, _rows: DataFrame, table: str) -> None:
        self.execute([f"INSERT INTO {table} (symbol, price, KAFKA_PLACE) VALUES ('a', 1, 't/0/0')"])  # of one executor
        start()
        self.execute([f"INSERT INTO {table} (symbol, price, KAFKA_PLACE) VALUES ('b', 1, 't/0/1')"])  # of another one

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_append", append_around_a_start)
        with pytest.raises(JobError, match="PRICES_STAGING_"):
            start().apply(batch, 0)
    assert database.last_batch("jdbc_sink") == -1
    start().apply(batch, 0)
    assert sorted(tuple(row) for row in database.read("prices").collect()) == [("a", 1), ("b", 1)]


def test_a_position_of_another_mode_or_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    by_id, by_number = Order("incrementing", "id"), Order("incrementing", "seq")
    positions = Positions(Folder(spark, str(tmp_path)), "jdbc:derby:db")
    positions.store("app.items", by_id, "5000")
    assert positions.of("app.items", by_id) == "5000"
    for other in (by_number, Order("timestamp", "id"), Order("bulk", None)):
        with pytest.raises(
            JobError, match=f"app.items by --mode incrementing --column id, not by {other}: use another"
        ):
            positions.of("app.items", other)
    of_earlier_version = {"jdbc-url": "jdbc:derby:db", "position": "5000"}
    (tmp_path / "position-app.items.json").write_text(json.dumps(of_earlier_version))
    (tmp_path / ".position-app.items.json.crc").unlink(missing_ok=True)  # of Hadoop's local file system
    assert positions.of("app.items", by_id) == "5000"
    with pytest.raises(JobError, match="not by --mode incrementing --column seq"):
        positions.of("app.items", by_number)


def test_a_mode_without_its_column_is_refused(
    topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        jdbc_source.parse(flags(topics, tmp_path, "", "t", "--mode", "timestamp"))
    assert "argument --mode: timestamp needs --column" in capsys.readouterr().err
