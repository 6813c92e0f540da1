"""Loads the Python classes that settings name as `package.module:Class`.

Owns how a name becomes an object, and the error messages. `config` checks the form of the name. Must not know any kind
of plug-in.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator
from typing import Any

from config import broker_properties as rows
from config.broker import BrokerConfig, base_row
from config.definition import ConfigError, Property

SINGLE: tuple[Property[str | None], ...] = (
    rows.ALTER_CONFIG_POLICY_CLASS_NAME,
    rows.CLIENT_QUOTA_CALLBACK_CLASS,
    rows.CREATE_TOPIC_POLICY_CLASS_NAME,
)
NAMED_OF_SAME: tuple[tuple[Property[str | None], Collection[str]], ...] = (
    (rows.PRINCIPAL_BUILDER_CLASS, (rows.DEFAULT_PRINCIPAL_BUILDER,)),
    (rows.REPLICA_SELECTOR_CLASS, (rows.LEADER_SELECTOR, rows.RACK_AWARE_SELECTOR)),
    (rows.SASL_CLIENT_CALLBACK_HANDLER_CLASS, ()),
    (rows.SASL_LOGIN_CALLBACK_HANDLER_CLASS, rows.TOKEN_LOGINS),
    (rows.SASL_SERVER_CALLBACK_HANDLER_CLASS, rows.TOKEN_VALIDATORS),
)
"""Settings that may also name a class of Kafka, which the broker implements itself."""
LISTS: tuple[Property[tuple[str, ...]], ...] = (rows.METRIC_REPORTERS, rows.KAFKA_METRICS_REPORTERS)


class InvalidPlugInError(ConfigError):
    """A plug-in cannot be used."""


def plug_in_class(row: Property[Any], name: str) -> Any:
    """Return the class that the setting `row` names as `package.module:Class`. Raises InvalidPlugInError."""
    module, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except Exception as error:
        raise InvalidPlugInError(
            row.name,
            name,
            f"{error!r}; expected package.module:Class of a Python class on the broker's PYTHONPATH",
        ) from error
    if not isinstance(found, type):
        raise InvalidPlugInError(row.name, name, f"{class_name} is not a class")
    return found


def plug_in_names(config: BrokerConfig, row: Property[tuple[str, ...]]) -> Iterator[str]:
    """Yield the names of a list, without those of Java classes that are accepted and have no effect."""
    return (name for name in config[row] if name not in (*rows.JMX_REPORTERS, *rows.JAVA_REPORTERS))


def has_reporters(config: BrokerConfig) -> bool:
    """Return whether the configuration names a metrics reporter."""
    return any(True for row in LISTS for _ in plug_in_names(config, row))


def plug_in_problems(config: BrokerConfig) -> Iterator[InvalidPlugInError]:
    """Yield an error for each plug-in that is no class. Imports the modules, and creates no instance."""
    named: list[tuple[Property[Any], str]] = [(row, name) for row in SINGLE if (name := config[row])]
    named += [
        (row, name)
        for key, text in config.static.items()
        for row, own in NAMED_OF_SAME
        if base_row(key) is row and (name := row.parse(text)) and name not in own
    ]
    named += [(row, name) for row in LISTS for name in plug_in_names(config, row)]
    assignors = rows.GROUP_CONSUMER_ASSIGNORS
    named += [(assignors, name) for name in config[assignors] if name not in rows.OWN_ASSIGNORS]
    for row, name in named:
        try:
            plug_in_class(row, name)
        except InvalidPlugInError as error:
            yield error


def new_plug_in(row: Property[Any], name: str, *arguments: object) -> Any:
    """Return a new instance of the class that the setting `row` names. Raises InvalidPlugInError."""
    plug_in = plug_in_class(row, name)
    try:
        return plug_in(*arguments)
    except Exception as error:
        raise InvalidPlugInError(row.name, name, f"the class cannot be created: {error!r}") from error


def configured_plug_in(config: BrokerConfig, row: Property[Any], name: str, method: str) -> Any:
    """Return a new plug-in that has `method`, after its `configure(settings)` if it has one.

    Raises:
        InvalidPlugInError: The class cannot be used.
    """
    plug_in = new_plug_in(row, name)
    if not callable(getattr(plug_in, method, None)):
        raise InvalidPlugInError(row.name, name, f"the class has no method {method}")
    try:
        if hasattr(plug_in, "configure"):
            plug_in.configure(dict(config.static))
    except Exception as error:
        raise InvalidPlugInError(row.name, name, f"the class cannot be configured: {error!r}") from error
    return plug_in
