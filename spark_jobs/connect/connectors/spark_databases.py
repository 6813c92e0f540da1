"""What the connectors of databases have in common: how the database and its login are named.

The login and all other properties of the driver reach the job in a file: no command line has them. Owns the settings
`connection.*`. Must not know what is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.connect.base.definitions import HIDDEN, REQUIRED, Definition, Importance, Kind, Setting, invalid
from spark_jobs.connect.connectors.spark_settings import properties_text

_PREFIX: Final = "connection."
_URL: Final = "connection.url"
_NOT_OF_DRIVERS: Final = frozenset({_URL, "connection.attempts", "connection.backoff.ms"})
_PASSWORD: Final = re.compile(r"password\s*=|jdbc:[\w.+-]+:(?:thin:|oci:)?(?://)?[^/@:]+[:/][^@/]+@", re.IGNORECASE)


def _check_url(name: str, value: Any) -> None:
    if not value.startswith("jdbc:"):
        raise invalid(name, value if "@" not in value else HIDDEN, "Expected a URL that begins with jdbc:")
    if _PASSWORD.search(value):
        raise invalid(name, HIDDEN, "Other processes would see the password: use connection.password")


CONNECTION: Final = Definition(
    [
        Setting(_URL, Kind.STRING, REQUIRED, Importance.HIGH, "The database, such as jdbc:sqlite:FILE.", _check_url),
        Setting("connection.user", Kind.STRING, None, Importance.HIGH, "The user of the database."),
        Setting("connection.password", Kind.PASSWORD, None, Importance.HIGH, "The user's password."),
    ]
)
"""Further properties of the driver have the prefix `connection.` as well."""


def database_flags(config: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the flags of a job for its database, and the file with the properties of the driver."""
    properties = {
        name.removeprefix(_PREFIX): value
        for name, value in config.items()
        if name.startswith(_PREFIX) and name not in _NOT_OF_DRIVERS
    }
    return ["--jdbc-url", config[_URL]], {"--jdbc-config": properties_text(properties)} if properties else {}
