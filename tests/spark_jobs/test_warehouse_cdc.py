"""Changes of tables reach the warehouse in any order, once."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.skeleton.database import AppliedBatches, Database
from spark_jobs.skeleton.errors import JobError
from spark_jobs.warehouse_cdc import JOB
from tests.spark_jobs.conftest import JobRunner, Topics, objects

pytestmark = pytest.mark.spark


@pytest.fixture
def database(spark: SparkSession, empty_derby: Path, tmp_path: Path) -> Database:
    shutil.copytree(empty_derby, tmp_path / "warehouse")
    made = Database(spark, url(tmp_path))
    made.execute(
        [
            "CREATE SCHEMA old",
            "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(50), email VARCHAR(50))",
            "CREATE TABLE orders (id INT, line INT, amount DECIMAL(10,2), PRIMARY KEY (id, line))",
        ]
    )
    return made


def url(folder: Path) -> str:
    return f"jdbc:derby:{folder}/warehouse"


def rows(database: Database, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in database.read(table).collect())


def customer_changes(seed: int) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """Return changes of ten customers in the order of the source, and the rows that they leave."""
    choose = random.Random(seed)
    stored: dict[int, dict[str, Any]] = {}
    changes = []
    for position in range(120):
        customer = choose.randrange(10)
        before = stored.get(customer)
        if before is not None and choose.random() < 0.3:
            del stored[customer]
            changes.append({"table": "customers", "op": "d", "position": position, "before": before, "after": None})
            continue
        stored[customer] = {"id": customer, "name": f"n{position}", "email": choose.choice((None, "it's@x"))}
        op = "c" if before is None else "u"
        changes.append(
            {"table": "customers", "op": op, "position": position, "before": before, "after": stored[customer]}
        )
    return changes, sorted((row["id"], row["name"], row["email"]) for row in stored.values())


def test_inserts_updates_and_deletes_in_any_order_leave_the_rows_of_the_source(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source = topics.create("changes", 2)
    flags = ["--input", source, "--jdbc-url", url(tmp_path), "--tables", "customers:id,orders:id+line"]
    flags += ["--on-error", "skip"]
    changes, expected = customer_changes(seed=4)
    random.Random(1).shuffle(changes)
    line = {"id": 1, "line": 2, "amount": 12.5}
    changes.append({"table": "orders", "op": "r", "position": 1, "before": None, "after": line})
    changes.append({"table": "ignored", "op": "r", "position": 1, "before": None, "after": {"id": "any"}})
    changes.append({"table": "orders", "op": "r", "position": 2, "before": None, "after": {"id": 1}})
    changes.append({"table": "orders", "op": "d", "position": 2, "before": {"id": 1, "line": "no"}, "after": None})
    malformed = 0
    for part in (changes[:60], changes[60:]):
        topics.send(source, objects(*part))
        malformed += sum(batch.malformed for batch in job_runner.run(JOB, *flags))
    assert malformed == 2
    assert rows(database, "customers") == expected
    assert [tuple(map(float, row)) for row in rows(database, "orders")] == [(1, 2, 12.5)]
    job_runner.run(JOB, *flags, "--checkpoint", str(tmp_path / "again"), "--app-id", "again")
    assert rows(database, "customers") == expected


def test_sqlite_has_the_rows_of_the_source(topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    """In several batches, by the driver of a user."""
    source = topics.create("changes", 1)
    changes, expected = customer_changes(seed=5)
    topics.send(source, objects(*changes))
    flags = ["--input", source, "--jdbc-url", f"jdbc:sqlite:{tmp_path}/db", "--tables", "customers:id"]
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as stored:
        stored.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(50), email VARCHAR(50))")
        assert len(job_runner.run(JOB, *flags, "--max-offsets-per-trigger", "60")) == 2
        assert sorted(stored.execute("SELECT id, name, email FROM customers")) == expected


def test_a_batch_that_was_applied_before_the_checkpoint_knew_is_skipped(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source = topics.create("changes", 1)
    flags = ["--input", source, "--jdbc-url", url(tmp_path), "--tables", "customers:id"]
    topics.send(source, objects({"table": "customers", "op": "c", "position": 1, "after": {"id": 1, "name": "x"}}))
    job_runner.run(JOB, *flags)
    database.execute(["DELETE FROM customers", "DELETE FROM customers_POSITIONS"])
    (job_runner.folder / "checkpoint" / "commits" / "0").unlink()
    job_runner.run(JOB, *flags)
    assert rows(database, "customers") == []
    with pytest.raises(JobError, match=r"has batch 0 of warehouse_cdc, but checkpoint .*/new is new"):
        job_runner.run(JOB, *flags, "--checkpoint", str(tmp_path / "new"))
    database.apply_batch("warehouse_cdc", 0, 1, [])
    with pytest.raises(JobError, match=r"has batch 1 of warehouse_cdc, but checkpoint .* ends at batch 0: name"):
        job_runner.run(JOB, *flags)


def test_a_run_applies_nothing_after_another_one_with_its_id(database: Database) -> None:
    insert = ["INSERT INTO customers (id) VALUES (1)"]
    first, second = AppliedBatches(database, "app"), AppliedBatches(database, "app")
    first.apply(0, [])
    with pytest.raises(JobError, match="should have no batch as the last one of app, but another run"):
        second.apply(0, insert)
    after_restart = AppliedBatches(database, "app")
    assert after_restart.last == 0
    after_restart.apply(1, [])
    with pytest.raises(JobError, match="should have batch 0 as the last one of app, but another run"):
        first.apply(1, insert)
    assert (AppliedBatches(database, "app").last, rows(database, "customers")) == (1, [])


def test_tables_of_a_schema_get_changes_in_several_batches(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(["CREATE TABLE old.orders_POSITIONS (id INT)"])
    source = topics.create("changes", 1)
    flags = ["--input", source, "--jdbc-url", url(tmp_path), "--tables", "APP.Customers:id,orders:id+line"]
    for number in (1, 2):
        change = {"op": "c", "position": number, "after": {"id": number, "line": 1, "name": "x", "amount": 1}}
        topics.send(source, objects({"table": "app.customers", **change}, {"table": "orders", **change}))
        job_runner.run(JOB, *flags)
    assert rows(database, "customers") == [(1, "x", None), (2, "x", None)]
    assert len(rows(database, "orders")) == 2


def test_an_update_of_the_key_moves_the_row(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    source = topics.create("changes", 1)
    moves = [(0, None, 1), (1, 1, 2), (2, 3, 4), (3, 4, 4), (4, 5, 1)]
    changes = [
        {
            "table": "customers",
            "op": "c" if before is None else "u",
            "position": position,
            "before": None if before is None else {"id": before, "name": "old"},
            "after": {"id": after, "name": f"n{position}"},
        }
        for position, before, after in moves
    ]
    topics.send(source, objects(*reversed(changes)))
    job_runner.run(JOB, "--input", source, "--jdbc-url", url(tmp_path), "--tables", "customers:id")
    assert rows(database, "customers") == [(1, "n4", None), (2, "n1", None), (4, "n3", None)]


def test_values_that_a_column_cannot_store_are_unreadable(
    database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    database.execute(
        ["CREATE TABLE kinds (id INT PRIMARY KEY, t VARCHAR(3) NOT NULL, d DOUBLE, r REAL, seen TIMESTAMP, born DATE)"]
    )
    source = topics.create("changes", 1)
    unfit = [
        {"t": "long"}, {"t": None}, {"d": "NaN"}, {"d": "Infinity"}, {"r": 1e300}, {"seen": "+12345-01-01 00:00:00"},
        {"born": "-0044-03-15"},
    ]  # fmt: skip
    fit = [{}, {"t": "äöü"}, {"d": 1e300}, {"r": -1.5}, {"seen": "2024-02-29 12:00:00"}, {"born": "9999-12-31"}]
    changes = [
        {"table": "kinds", "op": "c", "position": 1, "after": {"id": number, "t": "abc", **values}}
        for number, values in enumerate([*unfit, *fit])
    ]
    topics.send(source, objects(*changes, {"table": "kinds", "op": "d", "position": 2, "before": {"id": 7}}))
    flags = ["--input", source, "--jdbc-url", url(tmp_path), "--tables", "kinds:id", "--on-error", "skip"]
    assert sum(batch.malformed for batch in job_runner.run(JOB, *flags)) == len(unfit)
    assert [row[0] for row in rows(database, "kinds")] == list(range(len(unfit) + 1, len(changes)))


@pytest.mark.usefixtures("database")
def test_missing_tables_and_keys_are_named_before_the_start(job_runner: JobRunner, tmp_path: Path) -> None:
    for tables, message in (("nothing:id", "table nothing of jdbc:derby:"), ("orders:key", "orders has no column key")):
        with pytest.raises(JobError, match=message):
            job_runner.run(JOB, "--jdbc-url", url(tmp_path), "--tables", tables)


def test_a_table_without_a_key_is_refused(job_runner: JobRunner, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job_runner.parse(JOB, "--jdbc-url", "x", "--tables", "orders")
    assert "expected TABLE:KEY+KEY,..., not 'orders'" in capsys.readouterr().err


def test_columns_may_have_any_name(database: Database, topics: Topics, job_runner: JobRunner, tmp_path: Path) -> None:
    database.execute(["CREATE TABLE results (runner INT PRIMARY KEY, place INT, op VARCHAR(5))"])
    source = topics.create("changes", 1)
    change = {
        "table": "results",
        "op": "c",
        "position": 1,
        "before": None,
        "after": {"runner": 7, "place": 3, "op": "x"},
    }
    topics.send(source, objects(change))
    job_runner.run(JOB, "--input", source, "--jdbc-url", url(tmp_path), "--tables", "results:runner")
    assert rows(database, "results") == [(7, 3, "x")]
