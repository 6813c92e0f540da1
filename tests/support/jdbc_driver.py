"""JDBC drivers that pyspark does not contain."""

from pathlib import Path

from tests.support.ivy import Library, fetch

_SQLITE = Library("org.xerial", "sqlite-jdbc", "3.46.1.3")  # its database is a file
_POSTGRESQL = Library("org.postgresql", "postgresql", "42.7.4")
_MARIADB = Library("org.mariadb.jdbc", "mariadb-java-client", "3.4.1")
DRIVERS = {f"{each.module}-{each.revision}": (each,) for each in (_SQLITE, _POSTGRESQL, _MARIADB)}
SQLITE, *_ = DRIVERS
"""The name of the set that a run without soak tests needs."""


def sqlite_jar() -> Path:
    """Return the driver's jar, fetched on first use."""
    return _jar(_SQLITE)


def postgresql_jar() -> Path:
    """Return the driver's jar, fetched on first use."""
    return _jar(_POSTGRESQL)


def mariadb_jar() -> Path:
    """Return the jar of a driver for MariaDB and MySQL, fetched on first use."""
    return _jar(_MARIADB)


def _jar(library: Library) -> Path:
    name = f"{library.module}-{library.revision}"
    return fetch(name, DRIVERS[name]) / library.file_name
