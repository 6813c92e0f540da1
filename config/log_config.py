"""The settings of one partition log: a topic's overrides over the broker's values, as one frozen object.

Knows which topic settings a log reads and how they fall back; not where overrides are stored. A caller that changes a
topic's overrides or a broker's dynamic values builds a new LogConfig and hands it to the logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, cast

from config import topic_properties as rows
from config.broker import BrokerConfig
from config.definition import ConfigError, NoEffect, Property, UnknownTopicConfigError
from config.old_names import TOPIC_RENAMED
from config.topic_properties import BROKER_DEFAULTS, LONG_MAX, TOPIC_PROPERTIES

T = TypeVar("T")

_TIERED_STORAGE = (rows.REMOTE_STORAGE_ENABLE, rows.REMOTE_LOG_COPY_DISABLE, rows.REMOTE_LOG_DELETE_ON_DISABLE)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one partition log. Times and sizes of -1 mean no limit."""

    cleanup_policy: frozenset[str]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_timestamp_type: str
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    leader_throttled_replicas: frozenset[str] = frozenset()
    """The replicas that a leader throttles, as `partition:broker`, or `*` for all."""
    follower_throttled_replicas: frozenset[str] = frozenset()
    """The same for followers."""

    @classmethod
    def from_overrides(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> "LogConfig":
        """The settings of a topic's logs. Raises ConfigError for an override that does not parse."""

        def value(row: Property[T]) -> T:
            return topic_value(broker, overrides, row)

        # Earlier releases had one limit for both directions. It still applies where a newer one is unset.
        difference_max_ms = value(rows.MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS)
        before_max_ms = value(rows.MESSAGE_TIMESTAMP_BEFORE_MAX_MS)
        after_max_ms = value(rows.MESSAGE_TIMESTAMP_AFTER_MAX_MS)
        return cls(
            cleanup_policy=frozenset(value(rows.CLEANUP_POLICY)),
            compression_type=value(rows.COMPRESSION_TYPE),
            compression_gzip_level=value(rows.COMPRESSION_GZIP_LEVEL),
            compression_lz4_level=value(rows.COMPRESSION_LZ4_LEVEL),
            compression_zstd_level=value(rows.COMPRESSION_ZSTD_LEVEL),
            delete_retention_ms=value(rows.DELETE_RETENTION_MS),
            file_delete_delay_ms=value(rows.FILE_DELETE_DELAY_MS),
            flush_messages=value(rows.FLUSH_MESSAGES),
            flush_ms=value(rows.FLUSH_MS),
            index_interval_bytes=value(rows.INDEX_INTERVAL_BYTES),
            max_message_bytes=value(rows.MAX_MESSAGE_BYTES),
            message_downconversion_enable=value(rows.MESSAGE_DOWNCONVERSION_ENABLE),
            message_timestamp_type=value(rows.MESSAGE_TIMESTAMP_TYPE),
            timestamp_before_max_ms=difference_max_ms if before_max_ms == LONG_MAX else before_max_ms,
            timestamp_after_max_ms=difference_max_ms if after_max_ms == LONG_MAX else after_max_ms,
            min_cleanable_dirty_ratio=value(rows.MIN_CLEANABLE_DIRTY_RATIO),
            min_compaction_lag_ms=value(rows.MIN_COMPACTION_LAG_MS),
            max_compaction_lag_ms=value(rows.MAX_COMPACTION_LAG_MS),
            min_insync_replicas=value(rows.MIN_INSYNC_REPLICAS),
            preallocate=value(rows.PREALLOCATE),
            retention_bytes=max(value(rows.RETENTION_BYTES), -1),
            retention_ms=max(value(rows.RETENTION_MS), -1),
            segment_bytes=value(rows.SEGMENT_BYTES),
            segment_index_bytes=value(rows.SEGMENT_INDEX_BYTES),
            segment_jitter_ms=value(rows.SEGMENT_JITTER_MS),
            segment_ms=value(rows.SEGMENT_MS),
            unclean_leader_election_enable=value(rows.UNCLEAN_LEADER_ELECTION_ENABLE),
            leader_throttled_replicas=frozenset(value(rows.LEADER_REPLICATION_THROTTLED_REPLICAS)),
            follower_throttled_replicas=frozenset(value(rows.FOLLOWER_REPLICATION_THROTTLED_REPLICAS)),
        )


def topic_value(broker: BrokerConfig, overrides: Mapping[str, str], row: Property[T]) -> T:
    """The effective value of one topic setting. Raises ConfigError for an override that does not parse."""
    if (text := overrides.get(row.name)) is not None:
        return row.parse(text)
    for default in BROKER_DEFAULTS.get(row, ()):
        if (value := broker[default.property]) is not None:
            return cast(T, value if default.factor == 1 else cast(int, value) * default.factor)
    return row.default


class CompactionLag(NamedTuple):
    """The broker's minimum and maximum compaction lag, which apply to topics without overrides."""

    min_ms: int = rows.MIN_COMPACTION_LAG_MS.default
    max_ms: int = rows.MAX_COMPACTION_LAG_MS.default

    @classmethod
    def of(cls, broker: BrokerConfig) -> "CompactionLag":
        low, high = rows.MIN_COMPACTION_LAG_MS, rows.MAX_COMPACTION_LAG_MS
        return cls(topic_value(broker, {}, low), topic_value(broker, {}, high))


ANY_COMPACTION_LAG: Final = CompactionLag()
"""The defaults of a broker: no bounds."""


def validate_topic_overrides(overrides: Mapping[str, str], lag: CompactionLag = ANY_COMPACTION_LAG) -> dict[str, str]:
    """Validate overrides; return them under their current names.

    Creating and altering a topic use the same checks, also for settings without effect. `lag` is the broker's.

    Raises:
        ConfigError: for the first invalid override.
    """
    settings = {TOPIC_RENAMED.get(key, key): text for key, text in overrides.items()}
    for key, text in settings.items():
        row = TOPIC_PROPERTIES.get(key)
        if row is None:
            raise UnknownTopicConfigError(key, text)
        row.parse(text)
    for switch in _TIERED_STORAGE:
        if switch.name in settings and switch.parse(settings[switch.name]):
            raise ConfigError(switch.name, settings[switch.name], f"Expected false; {NoEffect.TIERED_STORAGE.value}")
    _check_compaction_lag(settings, lag)
    return settings


def _check_compaction_lag(settings: Mapping[str, str], lag: CompactionLag) -> None:
    low, high = rows.MIN_COMPACTION_LAG_MS, rows.MAX_COMPACTION_LAG_MS
    if low.name not in settings and high.name not in settings:
        return
    low_ms = low.parse(settings[low.name]) if low.name in settings else lag.min_ms
    high_ms = high.parse(settings[high.name]) if high.name in settings else lag.max_ms
    if low_ms > high_ms:
        raise ConfigError(low.name, str(low_ms), f"Value must be no more than {high.name} ({high_ms})")
