"""The log lines about settings that are accepted and have no effect.

The tables say which settings these are and why (`Property.no_effect`); a key may also be without effect because of its
prefix. Each line names the setting and the reason.

Owns the wording, and the bound of the number of lines. Must not know layers, or when the lines are logged.
"""

from collections.abc import Iterator, Mapping

from config import broker_properties as broker
from config import topic_properties as topic
from config.definition import NoEffect, Property
from config.versions import is_at_least

LINES_MAX = 50
"""Settings with a line of their own; more of them share one line for each reason."""

PER_LISTENER: frozenset[Property[object]] = frozenset((broker.MAX_CONNECTIONS, broker.MAX_CONNECTION_CREATION_RATE))
"""Settings that are read with the prefix of a listener as well."""

PLUG_IN_PREFIXES: Mapping[str, NoEffect] = {
    "rsm.config.": NoEffect.TIERED_STORAGE,
    "rlmm.config.": NoEffect.TIERED_STORAGE,
}
"""Beginnings of settings that only a plug-in knows."""

_FIRST_OF_RECORD_FORMAT_2 = "0.11.0-IV0"
_FIRST_TO_IGNORE_FORMAT_VERSIONS = "3.0-IV1"


def why_without_effect(key: str, row: Property[object] | None) -> NoEffect | None:
    """The reason why a broker's setting has no effect, None if it has one; `row` is that of the key without prefix."""
    if row is None:
        return next((reason for prefix, reason in PLUG_IN_PREFIXES.items() if key.startswith(prefix)), None)
    if row.no_effect is None and key != row.name and row not in PER_LISTENER:
        return NoEffect.NOT_PER_LISTENER
    return row.no_effect


def broker_lines(reasons: Mapping[str, NoEffect], settings: Mapping[str, str], protocol_version: str) -> list[str]:
    """A line for each key of `reasons`, those of one reason together; the bound leaves out lines, but no key."""
    order = list(NoEffect)
    keys = sorted(reasons, key=lambda key: (order.index(reasons[key]), key))
    lines = [_broker_line(key, reasons[key], settings[key].strip(), protocol_version) for key in keys[:LINES_MAX]]
    rest: dict[NoEffect, list[str]] = {}
    for key in keys[LINES_MAX:]:
        rest.setdefault(reasons[key], []).append(key)
    return lines + [f"{', '.join(others)} have no effect: {reason.value}" for reason, others in rest.items()]


def topic_lines(name: str, overrides: Mapping[str, str], protocol_version: str) -> Iterator[str]:
    """A line for each override of the topic `name` that has no effect; every override parses."""
    for key in sorted(overrides):
        reason, text = topic.TOPIC_PROPERTIES[key].no_effect, overrides[key].strip()
        if reason is None:
            continue
        if key == topic.MESSAGE_FORMAT_VERSION.name and _is_for_old_records(text, protocol_version):
            yield _format_version_warning(f"Topic configuration {key}", text, f" for `{name}`", protocol_version)
        else:
            yield f"{key} of topic {name} has no effect: {reason.value}"


def _broker_line(key: str, reason: NoEffect, text: str, protocol_version: str) -> str:
    if key == broker.LOG_MESSAGE_FORMAT_VERSION.name and _is_for_old_records(text, protocol_version):
        return _format_version_warning(f"Broker configuration {key}", text, "", protocol_version)
    return f"{key} has no effect: {reason.value}"


def _is_for_old_records(format_version: str, protocol_version: str) -> bool:
    """Whether Kafka warns: of a format that it would have written while brokers spoke an older protocol."""
    return is_at_least(protocol_version, _FIRST_TO_IGNORE_FORMAT_VERSIONS) and not is_at_least(
        format_version, _FIRST_OF_RECORD_FORMAT_2
    )


def _format_version_warning(setting: str, value: str, where: str, protocol_version: str) -> str:
    """Kafka's own words."""
    return (
        f"{setting} with value `{value}` is ignored{where} because the inter-broker protocol version "
        f"`{protocol_version}` is greater or equal than 3.0. This configuration is deprecated and it will be removed "
        "in Apache Kafka 4.0."
    )
