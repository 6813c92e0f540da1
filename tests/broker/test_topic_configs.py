"""Overrides over the broker's values, and overrides that cannot be used."""

from collections.abc import Mapping

from broker.topic_configs import TopicConfigs
from config.broker import BrokerConfig

STORED = {
    "t": {"retention.ms": "5", "segment.bytes": "many", "nosuch": "1", "cleanup.policy": "compact"},
    "u": {},
}


async def _read(topic: str) -> Mapping[str, str]:
    return STORED[topic]


async def test_an_override_that_cannot_be_used_is_left_out() -> None:
    configs = TopicConfigs(BrokerConfig.from_properties({"log.segment.bytes": "1000"}), _read)
    await configs.load_all(STORED)
    assert configs.overrides("t") == {"retention.ms": "5", "cleanup.policy": "compact"}
    effective = configs.effective("t")
    assert (effective.retention_ms, effective.segment_bytes) == (5, 1000)


async def test_changed_defaults_show_where_nothing_overrides_them() -> None:
    config = BrokerConfig.from_properties({})
    configs = TopicConfigs(config, _read)
    await configs.load_all(STORED)
    assert configs.effective("u").retention_ms == 604_800_000
    config.apply_dynamic(default={"log.retention.ms": "9"}, broker={})
    configs.defaults_changed()
    assert configs.effective("u").retention_ms == 9
    assert configs.effective("t").retention_ms == 5


async def test_overrides_are_read_once_unless_asked_again() -> None:
    asked = []

    async def read(topic: str) -> Mapping[str, str]:
        asked.append(topic)
        return {}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    assert [await configs.load("t"), await configs.load("t"), await configs.load("t", again=True)] == [
        True,
        False,
        True,
    ]
    configs.forget("t")
    assert await configs.load("t")
    assert asked == ["t"] * 3
