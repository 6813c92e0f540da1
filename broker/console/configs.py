"""Configurations of topics and brokers for the console, with their sources, and their changes.

Owns what the page of a configuration contains. Values of sensitive settings never leave the broker: DescribeConfigs
has none. Must not know HTTP.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from broker.console.console import Console
from broker.console.problem import bad_request, of_code
from broker.console.topics import require_topic
from config.definition import text_of
from config.describe import describe_topic, own_setting
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

ResourceKind = Literal["topic", "broker"]
TYPES: dict[ResourceKind, int] = {"topic": 2, "broker": 4}
SOURCES = {
    1: "topic",
    2: "this broker",
    3: "all brokers",
    4: "server.properties",
    5: "default",
    6: "logger",
}
DEFAULT_SOURCE = 5


class ConfigSource(TypedDict):
    """A value that one source has for a setting."""

    source: str
    name: str
    value: str | None


class ConfigRow(TypedDict):
    """One setting with its effective value; a sensitive one has none, and one that Kafka lacks only on its own broker.

    `default` is Kafka's; if that derives from several settings, as of retention.ms, the value without an override.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    differs: bool
    is_read_only: bool
    is_sensitive: bool
    doc: str
    sources: list[ConfigSource]


class Configs(TypedDict):
    """The configuration of a topic or a broker."""

    kind: ResourceKind
    name: str
    configs: list[ConfigRow]
    is_writing_enabled: bool


async def configs(console: Console, *, kind: ResourceKind, name: str) -> Configs:
    """Return all settings. Raises ProblemError."""
    broker = broker_of(console, kind, name)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TYPES[kind], resource_name=name, configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    result = (await console.client.ask(broker, request)).results[0]
    if result.error_code:
        raise of_code(result.error_code, result.error_message or "")
    inherited: dict[str, str | None] = {}
    if kind == "topic":
        inherited = {row.name: row.value for row in describe_topic(console.services.config, {}, None)}
    is_this_broker = kind == "broker" and broker == console.services.broker_id
    rows = []
    for one in result.configs:
        defaults = [each.value for each in one.synonyms if each.source == DEFAULT_SOURCE]
        default = defaults[0] if defaults else inherited.get(one.name)
        own = own_setting(one.name) if is_this_broker else None
        is_sensitive = one.is_sensitive and own is None
        value = text_of(console.services.config[own]) if own else one.value
        if own:
            default = text_of(own.default)
        rows.append(
            ConfigRow(
                name=one.name,
                value=None if is_sensitive else value,
                source=SOURCES.get(one.config_source, str(one.config_source)),
                default=None if is_sensitive else default,
                differs=one.config_source != DEFAULT_SOURCE and (is_sensitive or value != default),
                is_read_only=one.read_only,
                is_sensitive=is_sensitive,
                doc=own.doc if own else one.documentation or "",
                sources=[
                    ConfigSource(
                        source=SOURCES.get(each.source, str(each.source)),
                        name=each.name,
                        value=None if is_sensitive else each.value,
                    )
                    for each in one.synonyms
                ],
            )
        )
    return Configs(
        kind=kind,
        name=name,
        configs=sorted(rows, key=lambda row: (not row["differs"], row["name"])),
        is_writing_enabled=console.is_writing_enabled,
    )


def broker_of(console: Console, kind: ResourceKind, name: str) -> int:
    """Return whom to ask: the broker itself, or this one about topics. Raises ProblemError."""
    if kind == "topic":
        require_topic(console, name)
        return console.services.broker_id
    if not (name.isascii() and name.isdecimal() and len(name) < 11):
        raise bad_request(f"broker {name[:40]!r}: expected a number")
    return int(name)
