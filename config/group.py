"""The table of the settings of a group of the consumer protocol (KIP-848), which default to those of the broker.

Owns the rows and the bounds that a broker sets. Must not know which groups exist.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from config import broker_properties as broker
from config.broker import BrokerConfig
from config.definition import ConfigType, Importance, Property, Rows, UpdateMode
from config.validators import Range

_integer = Rows[int](ConfigType.INT)

CONSUMER_HEARTBEAT_INTERVAL_MS = _integer(
    "consumer.heartbeat.interval.ms",
    broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS.default,
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    Range(1),
    doc="Heartbeat interval of the members.",
)
CONSUMER_SESSION_TIMEOUT_MS = _integer(
    "consumer.session.timeout.ms",
    broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS.default,
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    Range(1),
    doc="Milliseconds without a heartbeat after which a member is removed.",
)


class Bounds(NamedTuple):
    """The settings of a broker for one of a group: its default, and the bounds of a value."""

    default: Property[int]
    least: Property[int]
    most: Property[int]


BOUNDS: Mapping[Property[int], Bounds] = MappingProxyType(
    {
        CONSUMER_HEARTBEAT_INTERVAL_MS: Bounds(
            broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
            broker.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            broker.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        CONSUMER_SESSION_TIMEOUT_MS: Bounds(
            broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
            broker.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
            broker.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
        ),
    }
)
GROUP_PROPERTIES: Mapping[str, Property[object]] = MappingProxyType({row.name: row for row in BOUNDS})


def value_of_group(config: BrokerConfig, settings: Mapping[str, str], row: Property[int]) -> int:
    """Return a setting of a group, from what was set of it or else from the broker. Raises ConfigError."""
    text = settings.get(row.name)
    return config[BOUNDS[row].default] if text is None else row.parse(text)


def group_problems(config: BrokerConfig, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the settings of a group. Raises ConfigError for a value that is no number."""
    for key in settings:
        if key not in GROUP_PROPERTIES:
            yield f"Unknown group config name: {key}"
    for row, bounds in BOUNDS.items():
        value = value_of_group(config, settings, row)
        if row.name not in settings:
            continue
        if value < config[bounds.least]:
            yield f"{row.name} must be greater than or equal to {bounds.least.name}"
        if value > config[bounds.most]:
            yield f"{row.name} must be less than or equal to {bounds.most.name}"
    session_ms = value_of_group(config, settings, CONSUMER_SESSION_TIMEOUT_MS)
    if session_ms <= value_of_group(config, settings, CONSUMER_HEARTBEAT_INTERVAL_MS):
        yield f"{CONSUMER_SESSION_TIMEOUT_MS.name} must be greater than {CONSUMER_HEARTBEAT_INTERVAL_MS.name}"
