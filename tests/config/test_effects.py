"""Every row of the tables says truthfully whether the broker reads it: the source is the witness.

A row that is read has no `no_effect`; a row that nothing reads says why. A row is read where the broker's source refers
to its constant, or to what `config` makes of it: a field of LogConfig, an attribute of BrokerConfig (`READ_THROUGH`).
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from broker.settings.client_login import Surroundings
from broker.settings.component_settings import connection_limits
from broker.settings.listener_security import sasl_listeners
from broker.settings.listener_tls import ListenerTls
from broker.settings.principal_builder import principal_builder
from broker.settings.sasl_settings import LOGIN_MODULES, broker_login, login_settings
from broker.settings.security_sources import InvalidSecurityError, Sources
from config import broker_properties as broker
from config import topic_properties as topic
from config.broker import BrokerConfig
from config.definition import NoEffect, Property
from config.log_config import LogConfig
from config.no_effect import PER_LISTENER
from config.topic_properties import BROKER_DEFAULTS, TOPIC_PROPERTIES
from tests.support.certificates import Stores

ROOT = Path(__file__).parents[2]
READERS = ("base", "broker", "controller", "protocol", "storage", "tools")
# It validates changes of settings and applies none.
NOT_A_READER = ROOT / "broker" / "settings" / "dynamic_config.py"

READ_THROUGH: Mapping[str, tuple[Property[object], ...]] = {
    "log_dirs": (broker.LOG_DIRS, broker.LOG_DIR),
    "listeners": (broker.LISTENERS, broker.LISTENER_SECURITY_PROTOCOL_MAP, broker.CONTROLLER_LISTENER_NAMES),
    "advertised_listeners": (broker.ADVERTISED_LISTENERS,),
    "inter_broker_listener": (broker.INTER_BROKER_LISTENER_NAME, broker.SECURITY_INTER_BROKER_PROTOCOL),
    "control_plane_listener": (broker.CONTROL_PLANE_LISTENER_NAME,),
    "inter_broker_protocol": (broker.INTER_BROKER_PROTOCOL_VERSION,),
    "group_protocols": (broker.GROUP_COORDINATOR_REBALANCE_PROTOCOLS,),
}
"""Attributes of BrokerConfig that the broker reads in place of rows, and the rows that they are made of."""

READ_BY_CONFIG: tuple[Property[object], ...] = (
    broker.CONFIG_PROVIDERS,  # resolves references in the file
    broker.NODE_ID,  # gives broker.id its value
    broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS,  # defaults of the settings of groups, and their bounds
    broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    broker.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    broker.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    broker.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    broker.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    broker.GROUP_SHARE_SESSION_TIMEOUT_MS,
    broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    broker.GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    broker.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    broker.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    broker.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    broker.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    broker.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    broker.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
)

TABLES: Mapping[str, Mapping[str, Property[object]]] = {
    module.__name__: {name: row for name, row in vars(module).items() if isinstance(row, Property)}
    for module in (broker, topic)
}


Node = ast.Attribute | ast.Name | ast.ImportFrom


@cache
def sources() -> tuple[list[Node], ...]:
    """Return the nodes of each module that may refer to a row; the four searches below walk no tree again."""
    paths = sorted(path for package in READERS for path in (ROOT / package).rglob("*.py"))
    return tuple(
        [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, Node)]
        for path in paths
        if path != NOT_A_READER
    )


@cache
def rows_read() -> frozenset[Property[object]]:
    """Rows that the broker reads, directly or through what `config` makes of them."""
    read = {row for nodes in sources() for row in _rows_named(nodes)} | set(READ_BY_CONFIG)
    attributes = {node.attr for nodes in sources() for node in nodes if isinstance(node, ast.Attribute)}
    of_logs = {row for field, rows in rows_of_log_config().items() if field in attributes for row in rows}
    of_config = {node.attr for nodes in sources() for node in nodes if _is_of_config(node)}
    read |= of_logs | {default.property for row in of_logs for default in BROKER_DEFAULTS.get(row, ())}
    read |= {row for attribute, rows in READ_THROUGH.items() if attribute in of_config for row in rows}
    return frozenset(read)


def _rows_named(nodes: list[Node]) -> Iterator[Property[object]]:
    """Rows of which a module names the constant, whatever it calls the table."""
    modules: dict[str, str] = {}
    constants: dict[str, Property[object]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                known_as = name.asname or name.name
                if f"{node.module}.{name.name}" in TABLES:
                    modules[known_as] = f"{node.module}.{name.name}"
                elif node.module in TABLES and name.name in TABLES[node.module]:
                    constants[known_as] = TABLES[node.module][name.name]
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules:
                if name in TABLES[modules[module]]:
                    yield TABLES[modules[module]][name]
            case ast.Name(id=name, ctx=ast.Load()) if name in constants:
                yield constants[name]


def _is_of_config(node: ast.AST) -> TypeGuard[ast.Attribute]:
    match node:
        case ast.Attribute(value=ast.Name(id="config") | ast.Attribute(attr="config" | "_config")):
            return True
    return False


@cache
def rows_of_log_config() -> Mapping[str, frozenset[Property[object]]]:
    """For each field of LogConfig the rows that `from_overrides` makes it of."""
    tree = ast.parse((ROOT / "config" / "log_config.py").read_text(encoding="utf-8"))
    (function,) = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "from_overrides"
    )
    variables = {
        node.targets[0].id: _topic_rows(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    (construction,) = (node for node in ast.walk(function) if isinstance(node, ast.Call) and _is_name(node.func, "cls"))
    return {
        keyword.arg: _topic_rows(keyword.value).union(
            *(rows for name, rows in variables.items() if any(_is_name(node, name) for node in ast.walk(keyword.value)))
        )
        for keyword in construction.keywords
        if keyword.arg is not None
    }


def _topic_rows(tree: ast.AST) -> frozenset[Property[object]]:
    table = TABLES[topic.__name__]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(table[name] for name in names & table.keys())


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def test_exactly_the_settings_that_no_code_reads_have_a_reason() -> None:
    read = rows_read()
    for row in (row for table in TABLES.values() for row in table.values()):
        if row in read:
            assert row.no_effect is None, f"{row.name} is read outside config: remove no_effect from its row"
        else:
            assert row.no_effect is not None, f"nothing outside config reads {row.name}: add no_effect to its row"


def test_the_rows_behind_each_field_of_a_log_are_found() -> None:
    assert rows_of_log_config().keys() == {field.name for field in fields(LogConfig)}
    assert all(rows_of_log_config().values())


def test_a_topic_setting_and_the_broker_settings_behind_it_agree() -> None:
    for row in TOPIC_PROPERTIES.values():
        assert {default.property.no_effect for default in BROKER_DEFAULTS.get(row, ())} <= {row.no_effect}


def test_every_reason_is_in_use() -> None:
    of_rows = {row.no_effect for table in TABLES.values() for row in table.values()}
    assert of_rows | {NoEffect.NOT_PER_LISTENER} == {*NoEffect, None}


def test_settings_of_one_listener_are_those_that_the_broker_reads_so(tmp_path: Path) -> None:
    asked: set[Property[object]] = set()

    class Recorder(BrokerConfig):
        def of_listener(self, name: str, row: Property[object], mechanism: str = "") -> object:  # type: ignore[override]
            asked.add(row)
            return super().of_listener(name, row, mechanism)

    settings = {
        "listeners": "SASL_PLAINTEXT://:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "file:///none",
    }
    config = Recorder(settings, {}, {})
    connection_limits(config, {})
    sasl_listeners(config, Sources(lambda *_: None, random.Random(1), lambda: 0, lambda *_: None))
    with pytest.raises(InvalidSecurityError):
        broker_login(config, Surroundings(random.Random(1), lambda: 0), lambda work: work())
    of_broker = login_settings(config, config.inter_broker_listener, "OAUTHBEARER")
    of_broker.kerberos_renewal()
    of_broker.token_renewal()
    module = f'{LOGIN_MODULES["GSSAPI"]} required useKeyTab="true" keyTab="{tmp_path}/none" principal="kafka/x";'
    settings = {
        "listeners": "SASL_PLAINTEXT://:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": module,
    }
    with pytest.raises(InvalidSecurityError):
        sasl_listeners(
            Recorder(settings, {}, {}), Sources(lambda *_: None, random.Random(1), lambda: 0, lambda *_: None)
        )
    stores = Stores(tmp_path)
    settings = {
        "listeners": "SSL://:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("server", "server")),
        "ssl.allow.dn.changes": "true",
    }
    config = Recorder(settings, {}, {})
    tls = ListenerTls(config)
    of_another_host = stores.authority.issue_cert("another").private_key_and_cert_chain_pem
    of_another_host.write_to_path(settings["ssl.keystore.location"])
    tls.reload(config)
    assert principal_builder(config, "SSL") is None
    assert asked == PER_LISTENER
