"""Overrides over the broker's values, and overrides that cannot be used."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from base.pause import never, whole
from broker.cluster.topic_configs import WARNINGS_MAX, TopicConfigs
from config.broker import BrokerConfig
from config.definition import NoEffect
from controller.store.state_store import StoreUnavailable

STORED = {
    "t": {"retention.ms": "5", "segment.bytes": "many", "nosuch": "1", "cleanup.policy": "compact"},
    "u": {},
}


async def _read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    return {topic: STORED[topic] for topic in topics}


async def load(configs: TopicConfigs, *topics: str) -> None:
    await configs.load(topics, never)


async def test_invalid_override_is_ignored() -> None:
    configs = TopicConfigs(BrokerConfig.from_properties({"log.segment.bytes": "1000"}), _read)
    await load(configs, *STORED)
    assert configs.overrides("t") == {"retention.ms": "5", "cleanup.policy": "compact"}
    effective = configs.effective("t")
    assert (effective.retention_ms, effective.segment_bytes) == (5, 1000)


async def test_overrides_without_effect_are_named_when_they_are_set(caplog: pytest.LogCaptureFixture) -> None:
    stored = {"message.format.version": "0.9.0", "local.retention.ms": "1"}

    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {topic: dict(stored) for topic in topics}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    await load(configs, "t")
    assert [record.message.split(" with value ")[0] for record in caplog.records] == [
        f"local.retention.ms of topic t has no effect: {NoEffect.TIERED_STORAGE.value}",
        "Topic configuration message.format.version",
    ]
    caplog.clear()
    await load(configs, "t")
    assert caplog.records == [], "nothing was changed"
    stored["local.retention.ms"] = "2"
    await load(configs, "t")
    assert len(caplog.records) == 1


async def test_start_with_many_overrides_without_effect_logs_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {topic: {"local.retention.ms": "1"} for topic in topics}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    await load(configs, *(str(number) for number in range(WARNINGS_MAX + 7)))
    assert len(caplog.records) == WARNINGS_MAX + 1
    assert caplog.records[-1].message == "7 more warnings about overrides of topics"


async def test_changed_defaults_apply_to_topics_without_an_override() -> None:
    config = BrokerConfig.from_properties({})
    configs = TopicConfigs(config, _read)
    await load(configs, *STORED)
    assert configs.effective("u").retention_ms == 604_800_000
    config.apply_dynamic(default={"log.retention.ms": "9"}, broker={})
    configs.defaults_changed()
    assert configs.effective("u").retention_ms == 9
    assert configs.effective("t").retention_ms == 5


async def test_overrides_are_cached_until_the_topic_is_forgotten() -> None:
    asked: list[Sequence[str]] = []

    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        asked.append(topics)
        return {topic: {} for topic in topics}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    assert whole(configs.unknown(["t", "u"], never)) == ["t", "u"]
    await load(configs, "t", "u")
    assert asked == [["t", "u"]], "one round trip"
    assert whole(configs.unknown(["t", "u"], never)) == []
    configs.forget("t")
    assert whole(configs.unknown(["t", "u"], never)) == ["t"]


async def test_overrides_that_cannot_be_read_stay_as_they_are_known() -> None:
    stored = {"t": {"retention.ms": "5"}}

    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {topic: stored[topic] for topic in topics if topic in stored}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    await load(configs, "t")
    del stored["t"]
    await load(configs, "t")
    assert configs.effective("t").retention_ms == 5
    assert configs.effective("t").cleanup_policy == {"delete"}


async def test_no_record_is_removed_until_the_overrides_are_read() -> None:
    stored: dict[str, dict[str, str]] = {"t": {}}

    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {topic: stored[topic] for topic in topics if topic in stored}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    await configs.load_all(["t", "plain", "compacted"], never)
    assert whole(configs.unknown(["plain", "compacted"], never)) == [], "they are served"
    configs.defaults_changed()
    assert [configs.effective(topic).cleanup_policy for topic in ("t", "plain", "compacted")] == [
        {"delete"},
        set(),
        set(),
    ]
    assert await configs.read_unread(never) == []
    stored["plain"] = {}
    assert await configs.read_again(never) == ["plain"]
    stored["compacted"] = {"cleanup.policy": "compact"}
    assert await configs.read_unread(never) == ["compacted"]
    assert configs.effective("plain").cleanup_policy == {"delete"}
    assert configs.effective("compacted").cleanup_policy == {"compact"}
    assert await configs.read_unread(never) == []


async def test_a_start_fails_if_the_store_refuses_the_overrides_of_every_topic() -> None:
    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    await configs.load_all([], never)
    with pytest.raises(StoreUnavailable, match="all 2 topics"):
        await configs.load_all(["t", "u"], never)


async def test_what_was_read_of_a_topic_that_is_deleted_before_the_read_ends_is_dropped() -> None:
    reading, deleted = asyncio.Event(), asyncio.Event()

    async def read(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        reading.set()
        await deleted.wait()
        return {"t": {"retention.ms": "5"}}

    configs = TopicConfigs(BrokerConfig.from_properties({}), read)
    loading = asyncio.ensure_future(load(configs, "t", "u"))
    await reading.wait()
    configs.forget("t")
    configs.forget("u")
    deleted.set()
    await loading
    assert whole(configs.unknown(["t", "u"], never)) == ["t", "u"]
    await load(configs, "t")
    assert configs.effective("t").retention_ms == 5
