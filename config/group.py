"""The table of the settings of a group of the consumer protocol (KIP-848) or a share group (KIP-932).

Those that are numbers default to settings of the broker, which also bounds them. Owns the rows and the bounds. Must not
know which groups exist.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from config import broker_properties as broker
from config.broker import BrokerConfig
from config.definition import ConfigType, Importance, Property, Rows, UpdateMode
from config.durations import parse_duration
from config.validators import Check, OneOf, Range

_integer, _string = Rows[int](ConfigType.INT), Rows[str](ConfigType.STRING)

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"


def age_of_first_record(reset: str) -> timedelta:
    """Return how old the records may be from which a share group begins, of a value `by_duration:`.

    Raises ValueError if the value is none of these.
    """
    age = parse_duration(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else timedelta(-1)
    if age < timedelta():
        raise ValueError(f"expected {EARLIEST}, {LATEST} or {BY_DURATION}PnDTnHnMnS")
    return age


def _reset_problem(reset: str) -> str | None:
    if reset not in (EARLIEST, LATEST):
        try:
            age_of_first_record(reset)
        except ValueError as error:
            return str(error)
    return None


def _row(name: str, default: int, doc: str) -> Property[int]:
    return _integer(name, default, UpdateMode.CLUSTER_WIDE, Importance.MEDIUM, Range(1), doc=doc)


CONSUMER_HEARTBEAT_INTERVAL_MS = _row(
    "consumer.heartbeat.interval.ms",
    broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS.default,
    "Heartbeat interval of the members.",
)
CONSUMER_SESSION_TIMEOUT_MS = _row(
    "consumer.session.timeout.ms",
    broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS.default,
    "Milliseconds without a heartbeat after which a member is removed.",
)
SHARE_HEARTBEAT_INTERVAL_MS = _row(
    "share.heartbeat.interval.ms",
    broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS.default,
    "Heartbeat interval of the members of a share group.",
)
SHARE_SESSION_TIMEOUT_MS = _row(
    "share.session.timeout.ms",
    broker.GROUP_SHARE_SESSION_TIMEOUT_MS.default,
    "Milliseconds without a heartbeat after which a member of a share group is removed.",
)
SHARE_RECORD_LOCK_DURATION_MS = _row(
    "share.record.lock.duration.ms",
    broker.GROUP_SHARE_RECORD_LOCK_DURATION_MS.default,
    "Milliseconds for which a record is locked for the member of a share group that got it.",
)
SHARE_AUTO_OFFSET_RESET = _string(
    "share.auto.offset.reset",
    LATEST,
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    Check(_reset_problem, f"[{LATEST}, {EARLIEST}, {BY_DURATION}PnDTnHnMnS]"),
    doc="Where a share group begins to read a partition.",
)
SHARE_ISOLATION_LEVEL = _string(
    "share.isolation.level",
    "read_uncommitted",
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    OneOf((READ_COMMITTED, "read_uncommitted")),
    doc="Whether a share group gets records of transactions that are open or aborted.",
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
        SHARE_HEARTBEAT_INTERVAL_MS: Bounds(
            broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
            broker.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
            broker.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        SHARE_SESSION_TIMEOUT_MS: Bounds(
            broker.GROUP_SHARE_SESSION_TIMEOUT_MS,
            broker.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
            broker.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
        ),
        SHARE_RECORD_LOCK_DURATION_MS: Bounds(
            broker.GROUP_SHARE_RECORD_LOCK_DURATION_MS,
            broker.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
            broker.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
        ),
    }
)
GROUP_PROPERTIES: Mapping[str, Property[object]] = MappingProxyType(
    {row.name: row for row in (*BOUNDS, SHARE_AUTO_OFFSET_RESET, SHARE_ISOLATION_LEVEL)}
)
_SHORTER_THAN: Final = (
    (CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_SESSION_TIMEOUT_MS),
    (SHARE_HEARTBEAT_INTERVAL_MS, SHARE_SESSION_TIMEOUT_MS),
)


def value_of_group(config: BrokerConfig, settings: Mapping[str, str], row: Property[int]) -> int:
    """Return a number that is set of a group, or else the broker's. Raises ConfigError."""
    text = settings.get(row.name)
    return config[BOUNDS[row].default] if text is None else row.parse(text)


def text_of_group(settings: Mapping[str, str], row: Property[str]) -> str:
    """Return a word that is set of a group, or else the default. Raises ConfigError."""
    text = settings.get(row.name)
    return row.default if text is None else row.parse(text)


def shown_of_group(config: BrokerConfig, settings: Mapping[str, str], name: str) -> str:
    """Return a setting of a group as text. Raises ConfigError."""
    for row in BOUNDS:
        if row.name == name:
            return str(value_of_group(config, settings, row))
    return settings.get(name, str(GROUP_PROPERTIES[name].default))


def group_problems(config: BrokerConfig, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the settings of a group. Raises ConfigError for a value that cannot be parsed."""
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
    text_of_group(settings, SHARE_AUTO_OFFSET_RESET), text_of_group(settings, SHARE_ISOLATION_LEVEL)
    for interval, timeout in _SHORTER_THAN:
        if value_of_group(config, settings, timeout) <= value_of_group(config, settings, interval):
            yield f"{timeout.name} must be greater than {interval.name}"
