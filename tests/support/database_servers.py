"""PostgreSQL and MariaDB as processes on 127.0.0.1, from the packages of the system."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.java import UnavailableError
from tests.support.jdbc_driver import mariadb_jar, postgresql_jar
from tests.support.ports import free_port

START_TIMEOUT_S = 60
_UNPRIVILEGED = 65534  # PostgreSQL does not run as root


class DatabaseServer(NamedTuple):
    """A running server with an empty database."""

    url: str  # for JDBC, with user
    driver: Path  # its jar
    client: Sequence[str]  # a command that takes statements as its last argument, and prints rows as CSV

    def run(self, statements: str) -> list[list[str]]:
        """Run statements; return the rows of queries among them. A null is an empty text."""
        done = subprocess.run([*self.client, statements], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return list(csv.reader(done.stdout.splitlines(), delimiter="|"))


@contextmanager
def postgresql() -> Iterator[DatabaseServer]:
    """Raises UnavailableError if there is no PostgreSQL."""
    programs = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), shutil.which("initdb")]
    if programs == [None]:
        raise UnavailableError("needs PostgreSQL: apt-get install postgresql")
    programs_folder, client = Path(str(programs[0])).parent, ["psql", "-h", "127.0.0.1", "-U", "postgres"]
    with _folder_of_user() as (folder, user):
        port = free_port()
        data = folder / "data"
        initialize = [programs_folder / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8"]
        subprocess.run(initialize, user=user, check=True, capture_output=True, cwd=folder)
        command = [programs_folder / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", folder]
        with _process(command, folder, user):
            server = DatabaseServer(
                f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=postgres",
                postgresql_jar(),
                [*client, "-p", str(port), "-v", "ON_ERROR_STOP=1", "-q", "-A", "-t", "-c"],
            )
            _wait_until_ready(server)
            yield server


@contextmanager
def mariadb() -> Iterator[DatabaseServer]:
    """MariaDB as MySQL: Spark knows only the URLs of MySQL. Raises UnavailableError if there is no MariaDB."""
    if shutil.which("mariadbd") is None:
        raise UnavailableError("needs MariaDB: apt-get install mariadb-server")
    with _folder_of_user() as (folder, user):
        port = free_port()
        data = folder / "data"
        initialize = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
        ]
        subprocess.run(initialize, user=user, check=True, capture_output=True, cwd=folder)
        flags = [f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket"]
        with _process(["mariadbd", "--no-defaults", *flags], folder, user):
            server = DatabaseServer(
                f"jdbc:mysql://127.0.0.1:{port}/test?user=root&permitMysqlScheme",
                mariadb_jar(),
                ["sh", "-c", f'mariadb -h 127.0.0.1 -P {port} -u root -N -B test -e "$0" | sed "s/\\t/|/g; s/NULL//g"'],
            )
            _wait_until_ready(server)
            yield server


@contextmanager
def _folder_of_user() -> Iterator[tuple[Path, int]]:
    """Yield a temporary folder and the number of the user who owns it, who is never root."""
    folder = Path(tempfile.mkdtemp())
    user = os.getuid() or _UNPRIVILEGED
    os.chown(folder, user, -1)
    try:
        yield folder, user
    finally:
        shutil.rmtree(folder)


@contextmanager
def _process(command: Sequence[str | Path], folder: Path, user: int) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, user=user, cwd=folder, process_group=0)
    try:
        yield
    finally:
        process.kill()  # its data goes with its folder
        process.wait()


def _wait_until_ready(server: DatabaseServer) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while subprocess.run([*server.client, "SELECT 1"], capture_output=True, check=False).stdout.strip() != b"1":
        assert time.monotonic() < deadline, server.url
        time.sleep(0.1)
