"""Rows of a database reach another one through a topic, by two connectors of a worker that run Spark jobs."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.spark_jobs.quick_drivers import job_environment, quick_settings
from tests.support.broker import ROOT, BrokerProcess
from tests.support.connect_workers import Client
from tests.support.jdbc_driver import sqlite_jar
from tests.support.parts import skip_when_unavailable
from tests.support.ports import free_port
from tests.support.waiting import wait_until

START_S = 240.0

SOURCE = {
    "name": "source", "connector.class": "JdbcSource", "mode": "incrementing", "incrementing.column.name": "id",
    "table.whitelist": "items", "topic.prefix": "hub.", "poll.interval.ms": "1000",
    "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1",
}  # fmt: skip
SINK = {
    "name": "sink", "connector.class": "JdbcSink", "topics": "hub.items", "table.name.format": "copies",
    "insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id", "auto.create": "true", "auto.evolve": "true",
}  # fmt: skip


class StandaloneWorker(Client):
    """A worker with the two connectors."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        super().__init__(f"http://127.0.0.1:{free_port()}/")
        self._temporary = folder / "temporary"
        self._temporary.mkdir()
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        settings = {
            "bootstrap.servers": bootstrap, "listeners": self.url.rstrip("/"),
            "key.converter": json_converter, "value.converter": json_converter,
            "offset.storage.file.filename": str(folder / "offsets"), "task.shutdown.graceful.timeout.ms": "30000",
            "spark.conf.spark.jars": str(sqlite_jar()),
            **{f"spark.conf.{name}": value for name, value in quick_settings().items()},
        }  # fmt: skip
        files = {"worker": settings}
        for config, name in ((SOURCE, "from"), (SINK, "to")):
            files[config["name"]] = {**config, "connection.url": f"jdbc:sqlite:{folder / name}"}
        self._files = [self._write(*each) for each in files.items()]

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker; it gets SIGTERM at the end."""
        command = [sys.executable, "-P", "-m", "spark_jobs.connect.cli.standalone", *map(str, self._files)]
        environment = {**job_environment(), "PYTHONPATH": str(ROOT), "TMPDIR": str(self._temporary)}
        with (self._folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def job_processes(self) -> list[int]:
        """Return the processes of jobs, with their JVMs: they have inherited the folder for temporary files."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or is another user's
                if f"{self._temporary}/connect-job-".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_rows_and_new_columns_reach_the_other_database_and_go_on_after_a_kill(tmp_path: Path) -> None:
    with skip_when_unavailable():
        quick_settings()
        sqlite_jar()
    with (
        closing(sqlite3.connect(tmp_path / "from", isolation_level=None)) as left,
        closing(sqlite3.connect(tmp_path / "to", isolation_level=None, timeout=30)) as right,
        BrokerProcess(tmp_path / "broker") as broker,
    ):
        left.execute("CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, name TEXT)")
        left.execute("INSERT INTO items VALUES (1, 'one')")
        worker = StandaloneWorker(tmp_path, broker.bootstrap)

        def has(count: int) -> bool:
            try:
                return bool(right.execute("SELECT count(*) FROM copies").fetchone()[0] == count)
            except sqlite3.OperationalError:
                return False  # the table does not exist yet

        with worker.running() as process:
            wait_until(lambda: has(1), "the first row", timeout_s=START_S)
            left.execute("ALTER TABLE items ADD COLUMN weight DOUBLE")
            left.execute("INSERT INTO items VALUES (2, 'two', 2.5)")
            wait_until(lambda: has(2), "a row with a new column", timeout_s=START_S)
            assert right.execute("SELECT id, name, weight FROM copies ORDER BY id").fetchall() == [
                (1, "one", None), (2, "two", 2.5),
            ]  # fmt: skip
            offsets: Any = [
                {"partition": {"kafka_topic": "hub.items", "kafka_partition": 0}, "offset": {"kafka_offset": 2}}
            ]
            wait_until(
                lambda: worker.get("/connectors/sink/offsets") == {"offsets": offsets}, "offsets of the sink's group"
            )
            for name in ("source", "sink"):
                assert worker.states(name) == ["RUNNING"] * 2
            assert worker.job_processes()
            process.kill()
            wait_until(lambda: not worker.job_processes(), "the end of the jobs")
        left.execute("INSERT INTO items VALUES (3, 'three', 3.5)")
        with worker.running():
            wait_until(lambda: has(3), "a row after the kill", timeout_s=START_S)
            offsets[0]["offset"]["kafka_offset"] = 3  # no row was sent twice
            wait_until(
                lambda: worker.get("/connectors/sink/offsets") == {"offsets": offsets}, "offsets of the sink's group"
            )
        assert not worker.job_processes()
