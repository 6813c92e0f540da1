"""Policies for new topics and for changes of configuration, through a whole broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.settings.policies import ConfigRequest, NewTopicRequest, PolicyViolation
from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.in_process import InProcessBroker, reason_not_to_start, running_broker

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
TOPIC_POLICY = "create.topic.policy.class.name"
CONFIG_POLICY = "alter.config.policy.class.name"


class AtLeastTwoPartitions:
    """Records what it is given; rejects small topics, and fails for one name."""

    instances: list[AtLeastTwoPartitions] = []

    def __init__(self) -> None:
        self.settings: Mapping[str, str] = {}
        self.seen: list[NewTopicRequest] = []
        self.is_closed = False
        self.instances.append(self)

    def configure(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def validate(self, request: NewTopicRequest) -> None:
        self.seen.append(request)
        if request.topic == "crash":
            raise RuntimeError("secret")
        if (request.num_partitions or 2) < 2:
            raise PolicyViolation(f"{request.topic} needs two partitions")

    def close(self) -> None:
        self.is_closed = True


class NoLongRetention:
    """Rejects a retention of more than a day; without `configure` and `close`."""

    seen: list[ConfigRequest] = []

    def validate(self, request: ConfigRequest) -> None:
        self.seen.append(request)
        if int(request.configs.get("retention.ms") or 0) > 86_400_000:
            raise PolicyViolation("at most a day")


class WithoutValidate:
    """Not a policy."""


class Unconfigurable(NoLongRetention):
    def configure(self, settings: Mapping[str, str]) -> None:
        raise ValueError("no database")


def topic(name: str, partitions: int, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def created(
    broker: InProcessBroker, topics: list[CreatableTopic], *, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only)
    response = await broker.ask(request, 7)
    return [(each.error_code, each.error_message) for each in response.topics]


async def test_policy_for_new_topics(tmp_path: Path) -> None:
    AtLeastTwoPartitions.instances.clear()
    async with running_broker(tmp_path, {TOPIC_POLICY: f"{__name__}:AtLeastTwoPartitions", "x.y": "z"}) as broker:
        (policy,) = AtLeastTwoPartitions.instances
        assert policy.settings["x.y"] == "z"
        assigned = CreatableTopic(
            name="assigned",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[0])],
            configs=[],
        )
        assert await created(broker, [topic("small", 1), topic("big", 3, retention_ms="9"), assigned]) == [
            (ErrorCode.POLICY_VIOLATION, "small needs two partitions"),
            (ErrorCode.NONE, None),
            (ErrorCode.NONE, None),
        ]
        assert policy.seen == [
            NewTopicRequest("small", 1, 1, None, {}),
            NewTopicRequest("big", 3, 1, None, {"retention.ms": "9"}),
            NewTopicRequest("assigned", None, None, {0: [0]}, {}),
        ]
        assert set(broker.services.metadata_cache.topics) == {"big", "assigned"}
        ((code, _),) = await created(broker, [topic("small", 1)], validate_only=True)
        assert code == ErrorCode.POLICY_VIOLATION
        ((code, message),) = await created(broker, [topic("crash", 2)])
        assert code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert message is not None
        assert "secret" not in message
        assert (await broker.services.topics.create_automatically(["auto"]))["auto"] == ErrorCode.POLICY_VIOLATION
        policy.seen.clear()
        ((code, _),) = await created(broker, [topic("bad", 2, retention_ms="soon")])
        assert (code, policy.seen) == (ErrorCode.INVALID_CONFIG, [])
    assert policy.is_closed


async def test_policy_for_changes_of_configuration(tmp_path: Path) -> None:
    NoLongRetention.seen.clear()
    async with running_broker(tmp_path, {CONFIG_POLICY: f"{__name__}:NoLongRetention"}) as broker:
        await broker.create_topic("t")

        async def alter(
            kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
        ) -> int:
            configs = [
                AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
            ]
            resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
            (response,) = (await broker.ask(request, 1)).responses
            assert response.error_code != ErrorCode.POLICY_VIOLATION or response.error_message == "at most a day"
            code: int = response.error_code
            return code

        assert await alter(TOPIC, "t", ("retention.ms", SET, "86400001")) == ErrorCode.POLICY_VIOLATION
        assert await alter(TOPIC, "t", ("retention.ms", SET, "86400001"), validate_only=True) == 44
        assert await alter(TOPIC, "t", ("retention.ms", SET, "5"), ("flush.ms", DELETE, None)) == ErrorCode.NONE
        assert broker.services.topic_configs.effective("t").retention_ms == 5
        assert await alter(BROKER, "", ("message.max.bytes", SET, "2000")) == ErrorCode.NONE
        assert await alter(BROKER, "", ("message.max.bytes", SET, "many")) == ErrorCode.INVALID_REQUEST
    assert NoLongRetention.seen[2:] == [
        ConfigRequest("TOPIC", "t", {"retention.ms": "5", "flush.ms": None}),
        ConfigRequest("BROKER", "", {"message.max.bytes": "2000"}),
    ]


@pytest.mark.parametrize("key", [TOPIC_POLICY, CONFIG_POLICY])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such:Class", "No module named"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:TOPIC", "TOPIC is not a class"),
        (f"{__name__}:WithoutValidate", "has no method validate"),
        (f"{__name__}:Unconfigurable", "no database"),
    ],
)
async def test_policy_that_cannot_be_used_stops_the_start(tmp_path: Path, key: str, name: str, text: str) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), key: name}
    reason = await reason_not_to_start(BrokerConfig.from_properties(settings))
    assert key in reason
    assert text in reason
