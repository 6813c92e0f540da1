"""Users of SASL listeners in the environment of a container, as Bitnami's image has them.

Owns the names of these variables, and the settings and SCRAM users that follow from them. Must not know how settings
are read, or how users are created. Messages never contain a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from config.broker import LISTENER_PREFIX
from config.broker_properties import (
    ADVERTISED_LISTENERS,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
)
from config.definition import ConfigError

CLIENT_USERS, CLIENT_PASSWORDS = "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS"
INTER_BROKER_USER, INTER_BROKER_PASSWORD = "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"
_FILE: Final = "_FILE"
VARIABLES: Final = frozenset(
    name + suffix
    for name in (CLIENT_USERS, CLIENT_PASSWORDS, INTER_BROKER_USER, INTER_BROKER_PASSWORD)
    for suffix in ("", _FILE)
)

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
_USER: Final = re.compile(r"[A-Za-z0-9._-]+")


class ContainerUsers(NamedTuple):
    """The users that the variables define, with their passwords."""

    clients: Mapping[str, str] = {}
    inter_broker: tuple[str, str] | None = None
    """User and password with which brokers log in to each other."""

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def all(self) -> dict[str, str]:
        return dict(self.clients) | ({} if self.inter_broker is None else dict([self.inter_broker]))

    def __repr__(self) -> str:
        return f"ContainerUsers({', '.join(self.all)})"


def read_users(variables: Mapping[str, str]) -> ContainerUsers:
    """Return the users. Raises ConfigError, without passwords."""
    names = _words(_value(variables, CLIENT_USERS))
    passwords = _words(_value(variables, CLIENT_PASSWORDS))
    if len(names) != len(passwords):
        raise ConfigError(
            f"{CLIENT_USERS} (environment)",
            ",".join(names),
            f"Expected as many names as {CLIENT_PASSWORDS} has passwords, which has {len(passwords)}",
        )
    inter_broker = None
    if user := _value(variables, INTER_BROKER_USER):
        password = _value(variables, INTER_BROKER_PASSWORD)
        if not password:
            raise ConfigError(f"{INTER_BROKER_USER} (environment)", user, f"Expected {INTER_BROKER_PASSWORD} beside it")
        inter_broker = user, password
    users = ContainerUsers(dict(zip(names, passwords, strict=True)), inter_broker)
    for name in users.all:
        if not _USER.fullmatch(name):
            raise ConfigError(f"{CLIENT_USERS} (environment)", name, "Expected letters, digits, '.', '_' and '-'")
    return users


def settings_of_users(users: ContainerUsers, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the users need beside `given`, which win; none if no listener has SASL."""
    settings = {}
    lower = {key.lower(): value for key, value in given.items()}
    common = lower.get(SASL_ENABLED_MECHANISMS.name, ",".join((PLAIN, *SCRAM)))
    for listener in _sasl_listeners(given):
        settings[SASL_ENABLED_MECHANISMS.name] = common
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for mechanism in _words(lower.get(prefix + SASL_ENABLED_MECHANISMS.name, common)):
            if mechanism in _LOGIN_MODULES:
                settings[f"{prefix}{mechanism.lower()}.{SASL_JAAS_CONFIG.name}"] = _jaas_entry(mechanism, users)
    return {key: value for key, value in settings.items() if key not in lower}


def has_sasl(given: Mapping[str, str]) -> bool:
    """Return whether a listener has SASL."""
    return next(_sasl_listeners(given), None) is not None


def _jaas_entry(mechanism: str, users: ContainerUsers) -> str:
    options = []
    if users.inter_broker is not None:
        user, password = users.inter_broker
        options += [("username", user), ("password", password)]
    if mechanism == PLAIN:
        options += [(f"user_{name}", password) for name, password in users.all.items()]
    return (
        " ".join([_LOGIN_MODULES[mechanism], "required", *(f"{key}={_quoted(value)}" for key, value in options)]) + ";"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _sasl_listeners(given: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of the listeners whose protocol has SASL."""
    protocols = dict(
        entry.strip().rpartition(":")[::2]
        for entry in given.get(LISTENER_SECURITY_PROTOCOL_MAP.name, "").split(",")
        if entry.strip()
    )
    listeners = given.get(LISTENERS.name) or given.get(ADVERTISED_LISTENERS.name, "")
    for entry in filter(None, map(str.strip, listeners.split(","))):
        name = entry.partition("://")[0]
        if protocols.get(name, name).upper().startswith("SASL_"):
            yield name


def _value(variables: Mapping[str, str], name: str) -> str:
    """Return the value of a variable, or of the file that its twin names. Raises ConfigError."""
    path = variables.get(name + _FILE)
    if name in variables or path is None:
        return variables.get(name, "")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{name}{_FILE} (environment)", path, f"The file cannot be read: {reason}") from error


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,; ]", text) if word]
