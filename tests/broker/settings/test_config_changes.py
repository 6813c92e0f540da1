"""Changes that come through the store, by this broker or by others, and layers that cannot be used as they stand."""

import asyncio
import logging
from functools import partial
from hashlib import pbkdf2_hmac
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from base.pause import never, whole
from broker.cluster.metadata_cache import MetadataCache, TopicState
from broker.cluster.topic_configs import TopicConfigs
from broker.loop.slices import SlicedWork
from broker.security import password_encoder
from broker.settings.config_changes import Alteration, ConfigChanges, KeyChange, Operation, ResourceType
from config import broker_properties as rows
from config.broker import BrokerConfig
from controller.coordination.memory_store import MemoryStore
from controller.store.state_store import StoreUnavailable
from controller.tree import paths
from controller.tree.entity_configs import change_overrides, entity_overrides, overrides_of_topics
from controller.tree.paths import ConfigEntity
from protocol.errors import ErrorCode, KafkaError
from tests.support.manual_clock import ManualClock

BROKER_ID, OTHER_ID = 1, 2
TOPIC = "t"
PASSWORDS = [f"listener.name.a.ssl.{name}.password" for name in ("key", "keystore", "truststore")]


class Here:
    """Configuration changes of a broker, with the recorded callbacks."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.config = BrokerConfig.from_properties({"password.encoder.secret": "s"})
        self.topic_configs = TopicConfigs(self.config, partial(overrides_of_topics, store))
        self.reported: list[str] = []
        self.metadata = MetadataCache("cluster")
        self.metadata.topics[TOPIC] = TopicState(TOPIC, uuid4())
        self.changes = ConfigChanges(
            BROKER_ID,
            store,
            self.config,
            self.topic_configs,
            self.metadata,
            SlicedWork(ManualClock().monotonic_ms),
            on_topic_changed=self.report,
            on_broker_changed=lambda: self.report("broker"),
            own_entities={},
            check_broker=lambda config: None,
            check_policy=lambda kind, name, configs: None,
        )

    async def report(self, changed: str) -> None:
        self.reported.append(changed)

    async def write(self, entity: ConfigEntity, values: dict[str, str]) -> None:
        """As another broker does: the store changes, and then this one learns of it."""
        await change_overrides(self.store, entity, lambda _: values)
        await self.changes.apply(entity)

    async def set(self, resource_type: ResourceType, name: str, key: str, value: str) -> KafkaError | None:
        change = Alteration(resource_type, name, [KeyChange(key, Operation.SET, value)])
        (result,) = await self.changes.alter([change], validate_only=False)
        return result


@pytest.fixture
def here(store: MemoryStore) -> Here:
    return Here(store)


async def test_changes_of_others_are_put_in_force(here: Here) -> None:
    await here.write(paths.topic_entity(TOPIC), {"flush.ms": "9"})
    await here.write(paths.broker_entity(None), {"message.max.bytes": "2000"})
    await here.write(paths.broker_entity(BROKER_ID), {"message.max.bytes": "3000"})
    assert here.reported == [TOPIC, "broker", "broker"]
    assert here.topic_configs.effective(TOPIC).flush_ms == 9
    assert here.config[rows.MESSAGE_MAX_BYTES] == 3000


async def test_late_notification_of_a_deleted_topic_does_not_settle_the_settings_of_its_successor(here: Here) -> None:
    del here.metadata.topics[TOPIC]
    await here.changes.apply(paths.topic_entity(TOPIC))
    assert here.reported == []
    assert whole(here.topic_configs.unknown([TOPIC], never)) == [TOPIC]


async def test_unreported_changes_take_effect_when_all_is_read_again(here: Here) -> None:
    await here.topic_configs.load([TOPIC, "unchanged"], never)
    await change_overrides(here.store, paths.topic_entity(TOPIC), lambda _: {"flush.ms": "9"})
    await change_overrides(here.store, paths.broker_entity(None), lambda _: {"message.max.bytes": "2000"})
    await here.changes.read_again()
    assert here.reported == ["broker", TOPIC]
    assert here.topic_configs.effective(TOPIC).flush_ms == 9
    assert here.config[rows.MESSAGE_MAX_BYTES] == 2000


async def test_overrides_that_the_store_refused_take_effect_when_they_can_be_read(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_overrides(here.store, paths.topic_entity(TOPIC), lambda _: {"flush.ms": "9"})
    with monkeypatch.context() as refusing:
        refusing.setattr(here.store, "get_many", AsyncMock(side_effect=StoreUnavailable("refused")))
        await here.topic_configs.load([TOPIC], never)
        await here.changes.read_unread()
    assert here.reported == []
    await here.changes.read_unread()
    assert here.reported == [TOPIC]
    assert here.topic_configs.effective(TOPIC).flush_ms == 9


@pytest.mark.parametrize(
    "entity",
    [
        paths.broker_entity(OTHER_ID),
        ConfigEntity((("users", "alice"),)),
        ConfigEntity((("topics", None),)),
    ],
)
async def test_changes_of_other_brokers_settings_are_ignored(here: Here, entity: ConfigEntity) -> None:
    await here.write(entity, {"message.max.bytes": "2000"})
    assert here.reported == []
    assert here.config[rows.MESSAGE_MAX_BYTES] == rows.MESSAGE_MAX_BYTES.default


async def test_only_the_settings_of_a_contradiction_are_left_out(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    threads, retention = {"log.cleaner.threads": "200"}, {"log.retention.ms": "-1"}
    listeners = {"listeners": "INTERNAL://:9093", "listener.security.protocol.map": "INTERNAL:PLAINTEXT"}
    await here.write(paths.broker_entity(None), {**threads, **retention})
    await here.write(paths.broker_entity(BROKER_ID), {**listeners, "message.max.bytes": "3000"})
    assert here.config.dynamic_default == retention
    assert here.config.dynamic_broker == {"message.max.bytes": "3000"}
    ignored = {record.args[0] for record in caplog.records if record.args and "contradicts" in record.message}
    assert ignored == {*threads, *listeners}


async def test_a_stored_value_that_cannot_be_read_is_left_out_alone(here: Here) -> None:
    await here.write(paths.broker_entity(BROKER_ID), {"message.max.bytes": "3000", "log.segment.bytes": "many"})
    assert here.config[rows.MESSAGE_MAX_BYTES] == 3000
    assert here.config[rows.LOG_SEGMENT_BYTES] == rows.LOG_SEGMENT_BYTES.default


async def test_acknowledged_change_is_in_effect(here: Here) -> None:
    assert await here.set(ResourceType.TOPIC, TOPIC, "flush.ms", "9") is None
    assert here.topic_configs.effective(TOPIC).flush_ms == 9
    assert await here.set(ResourceType.BROKER, str(BROKER_ID), "message.max.bytes", "3000") is None
    assert here.config[rows.MESSAGE_MAX_BYTES] == 3000
    assert here.reported == [TOPIC, "broker"]


async def test_a_dynamic_value_without_effect_is_named_once(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    assert await here.set(ResourceType.BROKER, str(BROKER_ID), "num.network.threads", "4") is None
    await here.changes.apply(paths.broker_entity(BROKER_ID))
    await here.write(paths.broker_entity(None), {"log.local.retention.ms": "1", "message.max.bytes": "2000"})
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [warning.split(": ")[0] for warning in warnings] == [
        "num.network.threads has no effect",
        "log.local.retention.ms has no effect",
    ]


@pytest.mark.parametrize(
    "key",
    [
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "listener.name.a.plain.sasl.jaas.config",
        "max.connections.per.ip.overrides",
    ],
)
async def test_a_value_that_takes_long_to_parse_is_refused(here: Here, key: str) -> None:
    error = await here.set(ResourceType.BROKER, str(BROKER_ID), key, "A" * 16_385)
    assert error is not None
    assert (error.code, error.message) == (
        ErrorCode.INVALID_REQUEST,
        f"The value of {key} has more than 16384 characters",
    )


async def test_limit_of_connections_of_an_unknown_host_is_refused(here: Here) -> None:
    error = await here.set(ResourceType.BROKER, "", "max.connections.per.ip.overrides", "::1:7,no such host:5")
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "no such host is no address" in error.message
    malformed = await here.set(ResourceType.BROKER, "", "max.connections.per.ip.overrides", "localhost")
    assert malformed is not None
    assert "Expected host:count" in malformed.message
    assert here.reported == []
    assert await here.set(ResourceType.BROKER, "", "max.connections.per.ip.overrides", "::1:7") is None


async def test_concurrent_changes_of_one_topic_are_all_made(here: Here) -> None:
    keys = {"flush.ms": "9", "retention.ms": "8", "segment.ms": "7", "retention.bytes": "6"}
    results = await asyncio.gather(*(here.set(ResourceType.TOPIC, TOPIC, key, keys[key]) for key in keys))
    assert results == [None] * len(keys)
    assert await entity_overrides(here.store, paths.topic_entity(TOPIC)) == keys


async def test_an_old_name_of_a_topic_setting(here: Here) -> None:
    assert await here.set(ResourceType.TOPIC, TOPIC, "log.cleanup.policy", "compact") is None
    assert (await overrides_of_topics(here.store, [TOPIC]))[TOPIC] == {"cleanup.policy": "compact"}


async def test_without_a_controller_nothing_is_written(here: Here) -> None:
    await here.store.delete(paths.CONTROLLER)
    refused = await here.set(ResourceType.TOPIC, TOPIC, "flush.ms", "9")
    assert refused is not None
    assert refused.code is ErrorCode.NOT_CONTROLLER
    assert here.reported == []
    assert (await overrides_of_topics(here.store, [TOPIC]))[TOPIC] == {}


async def test_more_changes_than_there_are_settings_are_refused(here: Here) -> None:
    changes = [KeyChange(f"key{number}", Operation.SET, "1") for number in range(1001)]
    (result,) = await here.changes.alter([Alteration(ResourceType.TOPIC, TOPIC, changes)], validate_only=True)
    assert result is not None
    assert (result.code, result.message) == (
        ErrorCode.INVALID_REQUEST,
        "more than 1000 changes of one resource",
    )


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One element for each key that is derived from the secret of passwords, which holds the event loop."""
    digests: list[str] = []

    def derived(digest: str, *values: Any) -> bytes:
        digests.append(digest)
        return pbkdf2_hmac(digest, *values)

    monkeypatch.setattr(password_encoder, "hashlib", SimpleNamespace(pbkdf2_hmac=derived))
    return digests


async def test_unchanged_passwords_are_neither_decoded_nor_encoded(here: Here, derivations: list[str]) -> None:
    this_broker = paths.broker_entity(BROKER_ID)
    for number, key in enumerate(PASSWORDS):
        assert await here.set(ResourceType.BROKER, str(BROKER_ID), key, f"password {number}") is None
    stored = await entity_overrides(here.store, this_broker)
    derivations.clear()
    assert await here.set(ResourceType.BROKER, str(BROKER_ID), "num.io.threads", "9") is None
    assert await here.set(ResourceType.BROKER, str(BROKER_ID), PASSWORDS[0], "password 0") is None
    assert derivations == []
    assert await entity_overrides(here.store, this_broker) == {**stored, "num.io.threads": "9"}
    assert here.config.dynamic_broker[PASSWORDS[2]] == "password 2"


async def test_changed_password_is_encoded_once_and_decoded_once(here: Here, derivations: list[str]) -> None:
    for password in ("before", "after"):
        derivations.clear()
        assert await here.set(ResourceType.BROKER, str(BROKER_ID), PASSWORDS[0], password) is None
        assert len(derivations) == 2
        assert here.config.dynamic_broker == {PASSWORDS[0]: password}


async def test_setting_with_the_stored_text_of_a_password_does_not_show_it(here: Here) -> None:
    assert await here.set(ResourceType.BROKER, str(BROKER_ID), PASSWORDS[0], "secret") is None
    encoded = (await entity_overrides(here.store, paths.broker_entity(BROKER_ID)))[PASSWORDS[0]]
    assert await here.set(ResourceType.BROKER, str(BROKER_ID), "no.such.setting", encoded) is None
    assert here.config.dynamic_broker["no.such.setting"] == encoded
