"""Settings with which clients connect to the brokers of a test, for each library in its own names.

Owns these names. Must not know how brokers are secured beyond a certificate authority and users.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from milena_broker.testing import arguments

__tracebackhide__ = True

Library = Literal["librdkafka", "kafka-python", "aiokafka", "java"]
Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Login(NamedTuple):
    """Who a client is."""

    mechanism: str
    user: str
    password: str


def login_of(users: Mapping[str, str], user: object, mechanism: object) -> Login | None:
    """Return the login of one of `users`, by default of the first; None if there are none.

    Raises TypeError and ValueError.
    """
    if mechanism not in get_args(Mechanism):
        raise ValueError(f"mechanism is {mechanism!r}: expected one of {', '.join(get_args(Mechanism))}")
    if user is None:
        if not users:
            return None
        user = next(iter(users))
    name = arguments.text("user", user, "the name of a user")
    if name not in users:
        known = f"one of {', '.join(users)}" if users else "none, because the brokers have no users"
        raise ValueError(f"user is {name!r}: expected {known}")
    return Login(str(mechanism), name, users[name])


def settings_for(library: object, servers: str, authority: Path | None, login: Login | None) -> dict[str, Any]:
    """Return the settings of a client. `authority` is the file of the certificate authority; None: without TLS."""
    protocol = f"{'SASL_' if login else ''}{'SSL' if authority else 'PLAINTEXT'}"
    match library:
        case "librdkafka":
            return _of_librdkafka(servers, protocol, authority, login)
        case "java":
            return _of_java(servers, protocol, authority, login)
        case "kafka-python" | "aiokafka":
            settings = _of_python(servers, protocol, login)
            if authority is not None and library == "kafka-python":
                settings["ssl_cafile"] = str(authority)
            elif authority is not None:
                settings["ssl_context"] = ssl.create_default_context(cafile=authority)
            return settings
    raise ValueError(f"library is {library!r}: expected one of {', '.join(get_args(Library))}")


def _of_librdkafka(servers: str, protocol: str, authority: Path | None, login: Login | None) -> dict[str, Any]:
    settings = {"bootstrap.servers": servers, "security.protocol": protocol}
    if authority is not None:
        settings["ssl.ca.location"] = str(authority)
    if login is not None:
        settings["sasl.mechanism"] = login.mechanism
        settings["sasl.username"], settings["sasl.password"] = login.user, login.password
    return settings


def _of_python(servers: str, protocol: str, login: Login | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": protocol}
    if login is not None:
        settings["sasl_mechanism"] = login.mechanism
        settings["sasl_plain_username"], settings["sasl_plain_password"] = login.user, login.password
    return settings


def _of_java(servers: str, protocol: str, authority: Path | None, login: Login | None) -> dict[str, Any]:
    settings = {"bootstrap.servers": servers, "security.protocol": protocol}
    if authority is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
    if login is not None:
        module = _PLAIN_MODULE if login.mechanism == "PLAIN" else _SCRAM_MODULE
        user, password = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (login.user, login.password))
        settings["sasl.mechanism"] = login.mechanism
        settings["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return settings
