"""A JDBC driver that pyspark does not contain: SQLite's, whose database is a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.ivy import Library, fetch

_NAME = "sqlite-jdbc-3.46.1.3"
DRIVERS: Mapping[str, Sequence[Library]] = {_NAME: (Library("org.xerial", "sqlite-jdbc", "3.46.1.3"),)}


def sqlite_jar() -> Path:
    """Return the driver's jar, fetched on first use."""
    return fetch(_NAME, DRIVERS[_NAME]) / DRIVERS[_NAME][0].file_name
