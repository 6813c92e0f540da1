"""A log's settings: topic over broker, units, and what a topic may be given."""

import pytest

from config.broker import BrokerConfig
from config.definition import ConfigError, UnknownTopicConfigError
from config.log_config import CompactionLag, LogConfig, validate_topic_overrides

HOUR_MS = 3_600_000


def log_config(broker: dict[str, str] | None = None, topic: dict[str, str] | None = None) -> LogConfig:
    return LogConfig.from_overrides(BrokerConfig.from_properties(broker or {}), topic or {})


def test_defaults_are_those_of_the_broker() -> None:
    config = log_config()
    assert config.cleanup_policy == frozenset({"delete"})
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == config.segment_ms == 168 * HOUR_MS
    assert config.retention_bytes == -1
    assert config.flush_ms == config.flush_messages == (1 << 63) - 1
    assert config.min_cleanable_dirty_ratio == 0.5


@pytest.mark.parametrize(
    ("broker", "topic", "field", "value"),
    [
        ({"log.retention.hours": "2"}, {}, "retention_ms", 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}, "retention_ms", 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, {}, "retention_ms", 4),
        ({"log.retention.ms": "4"}, {"retention.ms": "5"}, "retention_ms", 5),
        ({"log.retention.ms": "-1"}, {}, "retention_ms", -1),
        ({"log.retention.hours": "-1"}, {}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, {}, "segment_ms", HOUR_MS),
        ({"log.roll.ms": "9"}, {}, "segment_ms", 9),
        ({"log.roll.jitter.hours": "1"}, {}, "segment_jitter_ms", HOUR_MS),
        ({"log.flush.scheduler.interval.ms": "7"}, {}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}, {}, "flush_ms", 8),
        ({"message.max.bytes": "9"}, {}, "max_message_bytes", 9),
        ({"log.cleanup.policy": "compact, delete"}, {}, "cleanup_policy", frozenset({"compact", "delete"})),
        ({"compression.type": "zstd"}, {"compression.type": "lz4"}, "compression_type", "lz4"),
        ({"log.message.timestamp.difference.max.ms": "5"}, {}, "timestamp_before_max_ms", 5),
        ({"log.message.timestamp.difference.max.ms": "5"}, {}, "timestamp_after_max_ms", 5),
        (
            {"log.message.timestamp.difference.max.ms": "5", "log.message.timestamp.after.max.ms": "6"},
            {},
            "timestamp_after_max_ms",
            6,
        ),
        ({}, {"message.timestamp.difference.max.ms": "7"}, "timestamp_before_max_ms", 7),
    ],
)
def test_topic_setting_overrides_the_broker_setting_in_any_unit(
    broker: dict[str, str], topic: dict[str, str], field: str, value: object
) -> None:
    assert getattr(log_config(broker, topic), field) == value


def test_dynamic_default_takes_effect_at_once() -> None:
    broker = BrokerConfig.from_properties({})
    broker.apply_dynamic(default={"log.retention.ms": "11", "log.segment.bytes": "1000"}, broker={})
    config = LogConfig.from_overrides(broker, {"segment.bytes": "2000"})
    assert (config.retention_ms, config.segment_bytes) == (11, 2000)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"nosuch": "1"}, "Unknown topic config name: nosuch"),
        ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ({"segment.bytes": "13"}, "Invalid value 13 for configuration segment.bytes: Value must be at least 14"),
        (
            {"cleanup.policy": "shred"},
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ({"message.format.version": "0.7"}, "Invalid value 0.7 for configuration message.format.version: Version 0.7"),
        (
            {"remote.storage.enable": "true"},
            "Invalid value true for configuration remote.storage.enable: Expected false",
        ),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "Invalid value 2 for configuration min.compaction.lag.ms: Value must be no more than max.",
        ),
    ],
)
def test_invalid_overrides_are_rejected(overrides: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as failure:
        validate_topic_overrides(overrides)
    assert str(failure.value).startswith(text)


def test_unknown_name_raises_its_own_error() -> None:
    with pytest.raises(UnknownTopicConfigError) as failure:
        validate_topic_overrides({"log.segment.bytes": "100"})
    assert failure.value.key == "log.segment.bytes"


def test_valid_overrides_are_returned_under_current_names() -> None:
    given = {"log.cleanup.policy": "compact", "retention.ms": "5", "remote.storage.enable": "false"}
    assert validate_topic_overrides(given) == {
        "cleanup.policy": "compact",
        "retention.ms": "5",
        "remote.storage.enable": "false",
    }


@pytest.mark.parametrize(
    ("overrides", "is_refused"),
    [
        ({"min.compaction.lag.ms": "6"}, True),
        ({"min.compaction.lag.ms": "5"}, False),
        ({"max.compaction.lag.ms": "2"}, True),
        ({"max.compaction.lag.ms": "3"}, False),
        ({"min.compaction.lag.ms": "1", "max.compaction.lag.ms": "2"}, False),
        ({"retention.ms": "1"}, False),
    ],
)
def test_compaction_lag_of_the_broker_applies_without_an_override(overrides: dict[str, str], is_refused: bool) -> None:
    broker = BrokerConfig.from_properties(
        {"log.cleaner.min.compaction.lag.ms": "3", "log.cleaner.max.compaction.lag.ms": "5"}
    )
    lag = CompactionLag.of(broker)
    if is_refused:
        with pytest.raises(ConfigError):
            validate_topic_overrides(overrides, lag)
    else:
        assert validate_topic_overrides(overrides, lag) == overrides
