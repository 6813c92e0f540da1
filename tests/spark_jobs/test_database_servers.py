"""The jobs with databases beside PostgreSQL and MariaDB, as processes of their own."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from spark_jobs.skeleton.database import BATCHES
from tests.spark_jobs.conftest import Topics, objects, record_ids, records
from tests.spark_jobs.quick_drivers import job_environment, quick_flags
from tests.spark_jobs.test_warehouse_cdc import customer_changes
from tests.support.database_servers import DatabaseServer, mariadb, postgresql
from tests.support.parts import skip_when_unavailable

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROJECT = Path(__file__).parents[2]
SERVERS = {"postgresql": postgresql, "mariadb": mariadb}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with skip_when_unavailable(), SERVERS[request.param]() as started:
        yield started


@pytest.fixture(autouse=True)
def without_batches(server: DatabaseServer) -> None:
    server.run(f"DROP TABLE IF EXISTS {BATCHES}")


def run(job: str, server: DatabaseServer, topics: Topics, flags: Sequence[str]) -> None:
    """Run a job to its end, on a machine whose local time is not UTC."""
    common = ["--bootstrap-servers", topics.bootstrap, "--jdbc-url", server.url]
    jar = ["--spark-conf", f"spark.jars={server.driver}"]
    command = [sys.executable, "-P", "-m", "spark_jobs", job, *common, *flags, *quick_flags(), *jar]
    environment = {**job_environment(), "PYTHONPATH": str(PROJECT), "TZ": "America/New_York"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_values_of_each_kind_are_stored_as_they_are(server: DatabaseServer, topics: Topics, tmp_path: Path) -> None:
    server.run(
        "CREATE TABLE kinds (name VARCHAR(6000) NOT NULL, title VARCHAR(6000), body TEXT, price NUMERIC(12,4),"
        " happened TIMESTAMP(6) NULL, on_day DATE, number BIGINT, ratio DOUBLE PRECISION, is_new BOOLEAN)"
    )
    long = {"name": "n" * 5000, "title": "t" * 6000, "body": "b" * 60_000}
    kinds = {
        "name": "o'clock", "price": 1.0001, "happened": "2024-01-02T03:04:05.678901Z", "on_day": "2024-02-29",
        "number": 2**62, "ratio": 0.1, "is_new": True,
    }  # fmt: skip
    source = topics.create("rows", 2)
    flags = ["--input", source, "--table", "kinds", "--keys", "name", "--trigger", "availableNow"]
    for number, rows in enumerate(([{**kinds, "price": 2}, long], [kinds])):
        topics.send(source, objects(*rows, key="name"))
        run("jdbc_sink", server, topics, [*flags, "--checkpoint", str(tmp_path / "checkpoint")])
        if number:
            (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as if the driver was killed before the commit
            run("jdbc_sink", server, topics, [*flags, "--checkpoint", str(tmp_path / "checkpoint")])
    stored = server.run(
        "SELECT name, title, body, price, happened, on_day, number, ratio, is_new FROM kinds ORDER BY 1"
    )
    assert stored[0] == [*long.values(), "", "", "", "", "", ""]
    assert stored[1][:8] == [
        "o'clock", "", "", "1.0001", "2024-01-02 03:04:05.678901", "2024-02-29", str(2**62), "0.1",
    ]  # fmt: skip
    assert stored[1][8] in ("t", "1")
    assert len(stored) == 2
    server.run("DROP TABLE kinds")


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_texts_without_nul_are_stored_in_columns_of_types_that_spark_does_not_know(
    server: DatabaseServer, topics: Topics, tmp_path: Path
) -> None:
    server.run("CREATE TABLE typed (id UUID PRIMARY KEY, body JSONB)")
    row = {"id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "body": '{"a": 1}'}
    source = topics.create("rows", 1)
    topics.send(source, objects({"id": "a\0", "body": None}, {**row, "body": None}))
    flags = ["--input", source, "--table", "typed", "--keys", "id", "--trigger", "availableNow", "--on-error", "skip"]
    flags += ["--checkpoint", str(tmp_path / "checkpoint"), "--jdbc-option", "stringtype=unspecified"]
    run("jdbc_sink", server, topics, flags)
    topics.send(source, objects(row))
    run("jdbc_sink", server, topics, flags)
    assert server.run("SELECT id, body FROM typed") == [[*row.values()]]


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_the_last_object_is_stored_of_keys_that_differ_in_case(
    server: DatabaseServer, topics: Topics, tmp_path: Path
) -> None:
    server.run("CREATE TABLE runners (name VARCHAR(9) PRIMARY KEY, place INT)")
    source = topics.create("rows", 1)
    topics.send(source, objects(*({"name": name, "place": place} for place, name in enumerate(("Bob", "ann", "bob")))))
    flags = ["--input", source, "--table", "runners", "--keys", "name", "--trigger", "availableNow"]
    run("jdbc_sink", server, topics, [*flags, "--checkpoint", str(tmp_path / "checkpoint")])
    assert server.run("SELECT name, place FROM runners ORDER BY name") == [["ann", "1"], ["bob", "2"]]
    server.run("DROP TABLE runners")


def test_changes_in_any_order_leave_the_rows_of_the_source(
    server: DatabaseServer, topics: Topics, tmp_path: Path
) -> None:
    server.run("CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(50) NOT NULL, email VARCHAR(50))")
    changes, expected = customer_changes(seed=6)
    random.Random(1).shuffle(changes)
    source = topics.create("changes", 2)
    topics.send(source, objects(*changes))
    flags = ["--input", source, "--tables", "customers:id", "--trigger", "availableNow"]
    flags += ["--max-offsets-per-trigger", "50"]
    for application in ("first", "again"):
        run(
            "warehouse_cdc",
            server,
            topics,
            [*flags, "--app-id", application, "--checkpoint", str(tmp_path / application)],
        )
        stored = server.run("SELECT id, name, email FROM customers ORDER BY id")
        assert stored == [[str(number), name, email or ""] for number, name, email in expected]
    server.run("DROP TABLE customers")


def test_tables_of_long_names_are_kept_apart(server: DatabaseServer, topics: Topics, tmp_path: Path) -> None:
    tables = [f"customer_lifetime_value_snapshots_by_region_and_currency_{currency}" for currency in ("eur", "usd")]
    for table in tables:
        server.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(70))")
    source = topics.create("changes", 1)
    flags = ["--input", source, "--tables", ",".join(f"{table}:id" for table in tables), "--trigger", "availableNow"]
    for position in (2, 1):  # the second one is older
        changes = [
            {"table": table, "op": "r", "position": position, "after": {"id": 1, "name": f"{table} {position}"}}
            for table in tables
        ]
        topics.send(source, objects(*changes))
        run("warehouse_cdc", server, topics, [*flags, "--checkpoint", str(tmp_path / "checkpoint")])
    for table in tables:
        assert server.run(f"SELECT name FROM {table}") == [[f"{table} 2"]]
        server.run(f"DROP TABLE {table}")


def test_rows_are_read_once(server: DatabaseServer, topics: Topics, tmp_path: Path) -> None:
    server.run("CREATE TABLE events (id INT PRIMARY KEY, note TEXT, happened TIMESTAMP(6))")
    prefix = topics.new_name("db.")
    topics.create_named(f"{prefix}events", 1)
    of_events = ["--tables", "events", "--topic-prefix", prefix, "--once", "--checkpoint"]
    for number in range(2):
        server.run(f"INSERT INTO events VALUES ({number}, 'it''s', '2024-01-02 03:04:05.00000{number}')")
        for _ in range(2):
            flags = ["--mode", "timestamp", "--column", "happened", *of_events, str(tmp_path / "by-time")]
            run("jdbc_source", server, topics, flags)
    run(
        "jdbc_source", server, topics, ["--mode", "incrementing", "--column", "id", *of_events, str(tmp_path / "by-id")]
    )
    found = topics.read(f"{prefix}events")
    happened = 1_704_164_645_000
    rows = [{"id": number, "note": "it's", "happened": happened} for number in range(2)]
    assert [json.loads(str(value)) for _, value in records(found)] == [*rows, *rows]
    assert record_ids(found)[2:] == ["events/0", "events/1"]
    server.run("DROP TABLE events")


def test_a_row_whose_id_ends_in_a_backslash_is_read_once(
    server: DatabaseServer, topics: Topics, tmp_path: Path
) -> None:
    server.run("CREATE TABLE paths (id VARCHAR(20) PRIMARY KEY)")
    prefix = topics.new_name("db.")
    topics.create_named(f"{prefix}paths", 1)
    flags = ["--tables", "paths", "--topic-prefix", prefix, "--once", "--checkpoint", str(tmp_path / "checkpoint")]
    flags += ["--mode", "incrementing", "--column", "id"]
    server.run("INSERT INTO paths VALUES (CONCAT('a', CHR(92)))")
    for _ in range(2):
        run("jdbc_source", server, topics, flags)
    assert [json.loads(str(value)) for _, value in records(topics.read(f"{prefix}paths"))] == [{"id": "a\\"}]
    server.run("DROP TABLE paths")
