"""Names of older releases: what they become, and that each costs one warning."""

import pytest

from config import broker_properties as rows
from config.broker import BrokerConfig
from config.broker_properties import BROKER_PROPERTIES
from config.old_names import DEPRECATED, IGNORED, REMOVED, RENAMED


@pytest.mark.parametrize("new", RENAMED.values())
def test_new_names_are_defined(new: str) -> None:
    assert new in BROKER_PROPERTIES


@pytest.mark.parametrize("old", DEPRECATED)
def test_deprecated_names_still_work(old: str) -> None:
    assert old in BROKER_PROPERTIES


def test_renamed_setting_takes_effect_with_a_warning() -> None:
    config = BrokerConfig.from_properties({"log.delete.delay.ms": "7"})
    assert config[rows.LOG_SEGMENT_DELETE_DELAY_MS] == 7
    assert config.warnings == ["log.delete.delay.ms is deprecated; use log.segment.delete.delay.ms"]


def test_new_name_overrides_the_old_one() -> None:
    config = BrokerConfig.from_properties({"min.isr": "3", "min.insync.replicas": "2"})
    assert config[rows.MIN_INSYNC_REPLICAS] == 2
    assert config.warnings == ["min.isr is deprecated and ignored, because min.insync.replicas is set"]


@pytest.mark.parametrize(
    ("settings", "listeners", "advertised"),
    [
        ({"port": "9093"}, "PLAINTEXT://:9093", "PLAINTEXT://:9093"),
        ({"host.name": "a"}, "PLAINTEXT://a:9092", "PLAINTEXT://a:9092"),
        ({"host.name": "::1", "port": "1"}, "PLAINTEXT://[::1]:1", "PLAINTEXT://[::1]:1"),
        ({"port": "9093", "advertised.host.name": "a"}, "PLAINTEXT://:9093", "PLAINTEXT://a:9093"),
        ({"advertised.port": "7"}, "PLAINTEXT://:9092", "PLAINTEXT://:7"),
        ({"listeners": "PLAINTEXT://:5", "port": "9093"}, "PLAINTEXT://:5", "PLAINTEXT://:5"),
    ],
)
def test_old_address_settings_become_listeners(settings: dict[str, str], listeners: str, advertised: str) -> None:
    config = BrokerConfig.from_properties(settings)
    assert [str(listener) for listener in config.listeners] == [listeners]
    assert [str(listener) for listener in config.advertised_listeners] == [advertised]
    assert len(config.warnings) == len(settings.keys() - {"listeners"})


@pytest.mark.parametrize("key", [*DEPRECATED, *IGNORED, *REMOVED, "topic.metadata.refresh.interval.ms"])
def test_each_old_name_is_warned_about_once(key: str) -> None:
    value = "-1" if key == "offsets.commit.required.acks" else "1"
    warning, *others = BrokerConfig.from_properties({key: value}).warnings
    assert warning.startswith(key)
    row = BROKER_PROPERTIES.get(key)
    assert len(others) == (row is not None and row.no_effect is not None)


@pytest.mark.parametrize(("key", "replacement"), REMOVED.items())
def test_removed_names_point_at_the_topic_setting(key: str, replacement: str) -> None:
    (warning,) = BrokerConfig.from_properties({key: "a:1"}).warnings
    assert replacement in warning
