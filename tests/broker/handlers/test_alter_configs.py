"""AlterConfigs and IncrementalAlterConfigs through the whole broker: what changes, what is refused with which words."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.settings import config_changes
from config.topic_properties import TOPIC_PROPERTIES
from protocol.errors import ErrorCode
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.in_process import InProcessBroker, running_broker

TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)

Operation = tuple[str, int, str | None]
Resource = tuple[int, str]


async def change(
    broker: InProcessBroker,
    resource: Resource,
    *operations: Operation,
    validate_only: bool = False,
    version: int | None = None,
) -> tuple[ErrorCode, str | None]:
    """IncrementalAlterConfigs of one resource."""
    request = IncrementalAlterConfigsRequest(
        resources=[_incremental(resource, operations)], validate_only=validate_only
    )
    (response,) = (await broker.ask(request, version)).responses
    assert (response.resource_type, response.resource_name) == resource
    return ErrorCode(response.error_code), response.error_message


async def replace(
    broker: InProcessBroker,
    resource: Resource,
    values: dict[str, str | None],
    *,
    validate_only: bool = False,
    version: int | None = None,
) -> tuple[ErrorCode, str | None]:
    """AlterConfigs of one resource."""
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in values.items()]
    wanted = alter_configs.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)
    response = await broker.ask(AlterConfigsRequest(resources=[wanted], validate_only=validate_only), version)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == resource
    return ErrorCode(result.error_code), result.error_message


async def described(broker: InProcessBroker, resource: Resource) -> dict[str, DescribeConfigsResourceResult]:
    wanted = DescribeConfigsResource(resource_type=resource[0], resource_name=resource[1], configuration_keys=None)
    response = await broker.ask(DescribeConfigsRequest(resources=[wanted]))
    return {config.name: config for config in response.results[0].configs}


async def overrides(broker: InProcessBroker, topic: str) -> dict[str, str | None]:
    """What is set for a topic itself."""
    configs = (await described(broker, (TOPIC, topic))).values()
    return {config.name: config.value for config in configs if config.config_source == 1}


def _incremental(resource: Resource, operations: Sequence[Operation]) -> incremental_alter_configs.AlterConfigsResource:
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=resource[0],
        resource_name=resource[1],
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ],
    )


@pytest.mark.parametrize("version", [0, 1])
async def test_single_settings_of_a_topic_change_and_the_others_stay(
    served: InProcessBroker, name: str, version: int
) -> None:
    await served.create_topic(name, segment_ms="60000", retention_ms="5000")
    operations: list[Operation] = [("retention.ms", SET, "7000"), ("segment.ms", DELETE, None), ("flush.ms", SET, "9")]
    assert await change(served, (TOPIC, name), *operations, version=version) == (ErrorCode.NONE, None)
    assert await overrides(served, name) == {"retention.ms": "7000", "flush.ms": "9"}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_replacing_takes_away_what_is_not_named(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name, segment_ms="60000", retention_ms="5000")
    assert await replace(served, (TOPIC, name), {"retention.ms": "7000"}, version=version) == (ErrorCode.NONE, None)
    assert await overrides(served, name) == {"retention.ms": "7000"}


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "compact", "compact"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
    ],
)
async def test_lists_grow_and_shrink(
    served: InProcessBroker, name: str, before: str | None, operation: int, value: str, after: str
) -> None:
    await served.create_topic(name, **({} if before is None else {"cleanup_policy": before}))
    assert await change(served, (TOPIC, name), ("cleanup.policy", operation, value)) == (ErrorCode.NONE, None)
    assert (await overrides(served, name))["cleanup.policy"] == after


async def test_a_list_without_default_begins_empty(served: InProcessBroker, name: str) -> None:
    key = "leader.replication.throttled.replicas"
    await served.create_topic(name)
    await change(served, (TOPIC, name), (key, APPEND, "0:0,1:0"))
    assert (await overrides(served, name))[key] == "0:0,1:0"


async def test_a_list_does_not_grow_beyond_what_a_response_can_have(served: InProcessBroker, name: str) -> None:
    key = "leader.replication.throttled.replicas"
    await served.create_topic(name)
    first, more = (",".join(f"{number}:{broker}" for number in range(4000)) for broker in (0, 1))
    assert await change(served, (TOPIC, name), (key, APPEND, first)) == (ErrorCode.NONE, None)
    code, message = await change(served, (TOPIC, name), (key, APPEND, more))
    assert (code, message) == (ErrorCode.INVALID_CONFIG, f"The value of {key} would have more than 32767 bytes")
    assert (await overrides(served, name))[key] == first


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_list_is_changed_without_comparing_each_element_with_all(
    monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    compared = 0

    class Element(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    monkeypatch.setattr(config_changes, "_elements", lambda text: [Element(each) for each in text.split(",")])
    before, named = (",".join(f"{number}:{broker}" for number in range(1000)) for broker in (0, 1))
    rows = {"a": TOPIC_PROPERTIES["leader.replication.throttled.replicas"]}
    config_changes._edited_list(before, "a", operation, named, rows)
    assert compared < 1000


REFUSED_FOR_TOPICS: list[tuple[list[Operation], ErrorCode, str]] = [
    (
        [("retention.ms", SET, "abc")],
        ErrorCode.INVALID_CONFIG,
        (
            "Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): "
            "Invalid value abc for configuration retention.ms: Not a number of type LONG"
        ),
    ),
    (
        [("min.compaction.lag.ms", SET, "2"), ("max.compaction.lag.ms", SET, "1")],
        ErrorCode.INVALID_CONFIG,
        (
            "Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): "
            "Invalid value 2 for configuration min.compaction.lag.ms: "
            "Value must be no more than max.compaction.lag.ms (1)"
        ),
    ),
    ([("nosuch.key", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nosuch.key"),
    (
        [("retention.ms", APPEND, "1")],
        ErrorCode.INVALID_CONFIG,
        "Config value append is not allowed for config key: retention.ms",
    ),
    (
        [("retention.ms", SUBTRACT, "1")],
        ErrorCode.INVALID_CONFIG,
        "Config value subtract is not allowed for config key: retention.ms",
    ),
    ([("flush.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : flush.ms"),
    (
        [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)],
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    ([("flush.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
]


@pytest.mark.parametrize(("operations", "code", "message"), REFUSED_FOR_TOPICS)
async def test_a_refused_change_of_a_topic_changes_nothing(
    served: InProcessBroker, name: str, operations: list[Operation], code: ErrorCode, message: str
) -> None:
    await served.create_topic(name, segment_ms="60000")
    response = await change(served, (TOPIC, name), ("segment.bytes", SET, "1000"), *operations)
    assert response == (code, message.format(name=name))
    assert await overrides(served, name) == {"segment.ms": "60000"}


async def test_resources_that_cannot_be_changed(served: InProcessBroker) -> None:
    assert await change(served, (TOPIC, "absent"), ("flush.ms", SET, "1")) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'absent' does not exist.",
    )
    for resource, operations in {
        (TOPIC, ""): ("flush.ms", SET, "1"),
        (BROKER, "1"): ("message.max.bytes", SET, "1"),
        (BROKER, "first"): ("message.max.bytes", SET, "1"),
        (LOGGER, "1"): ("kafka.server.KafkaApis", SET, "DEBUG"),
        (CLIENT_METRICS, ""): ("interval.ms", SET, "1000"),
        (99, "x"): ("y", SET, "1"),
    }.items():
        assert (await change(served, resource, operations))[0] == ErrorCode.INVALID_REQUEST
    assert (await change(served, (99, "x"), ("y", SET, "1")))[1] == "Unknown resource type 99"
    for resource in ((CLIENT_METRICS, "m"), (LOGGER, "0"), (99, "x")):
        assert (await replace(served, resource, {"y": "1"}))[0] == ErrorCode.INVALID_REQUEST


async def test_a_resource_named_twice_is_refused_and_the_others_are_changed(served: InProcessBroker, name: str) -> None:
    for topic in (name, f"{name}-b"):
        await served.create_topic(topic)
    operations: list[Operation] = [("flush.ms", SET, "9")]
    resources = [_incremental((TOPIC, topic), operations) for topic in (name, f"{name}-b", name)]
    response = await served.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
    assert [(result.error_code, result.error_message) for result in response.responses] == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."),
        (ErrorCode.NONE, None),
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."),
    ]
    assert await overrides(served, name) == {}
    assert await overrides(served, f"{name}-b") == {"flush.ms": "9"}


async def test_validation_alone_changes_nothing(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    good: Operation = ("flush.ms", SET, "9")
    assert await change(served, (TOPIC, name), good, validate_only=True) == (ErrorCode.NONE, None)
    assert await replace(served, (TOPIC, name), {"flush.ms": "9"}, validate_only=True) == (ErrorCode.NONE, None)
    assert (await change(served, (TOPIC, name), ("flush.ms", SET, "x"), validate_only=True))[0]
    assert await overrides(served, name) == {}
    logger = ("kafka.server.KafkaApis", SET, "TRACE")
    assert await change(served, (LOGGER, "0"), logger, validate_only=True) == (ErrorCode.NONE, None)
    assert (await described(served, (LOGGER, "0")))["kafka.server.KafkaApis"].value != "TRACE"


async def test_dynamic_settings_of_a_broker_and_of_all(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    assert await change(served, (BROKER, ""), ("message.max.bytes", SET, "2000000")) == (ErrorCode.NONE, None)
    assert await change(served, (BROKER, "0"), ("message.max.bytes", SET, "3000000")) == (ErrorCode.NONE, None)
    here = (await described(served, (BROKER, "0")))["message.max.bytes"]
    assert (here.value, here.config_source) == ("3000000", 2)
    assert [config.value for config in (await described(served, (BROKER, ""))).values()] == ["2000000"]
    assert (await described(served, (TOPIC, name)))["max.message.bytes"].value == "3000000"

    await change(served, (BROKER, "0"), ("message.max.bytes", DELETE, None))
    of_topic = (await described(served, (TOPIC, name)))["max.message.bytes"]
    assert (of_topic.value, of_topic.config_source) == ("2000000", 3)
    assert await replace(served, (BROKER, ""), {}) == (ErrorCode.NONE, None)
    assert (await described(served, (TOPIC, name)))["max.message.bytes"].value == "1048588"


async def test_a_refused_change_of_a_broker_changes_nothing(served: InProcessBroker) -> None:
    response = await change(
        served, (BROKER, "0"), ("message.max.bytes", SET, "2000000"), ("broker.rack", SET, "elsewhere")
    )
    assert response == (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: Set(broker.rack)")
    assert (await described(served, (BROKER, "0")))["message.max.bytes"].config_source == 5
    assert await replace(served, (BROKER, "0"), {"message.max.bytes": None}) == (
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : message.max.bytes",
    )


async def test_changed_settings_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await change(broker, (TOPIC, "t"), ("flush.ms", SET, "9"))
        await change(broker, (BROKER, ""), ("message.max.bytes", SET, "2000000"))
        await change(broker, (BROKER, "0"), ("log.retention.ms", SET, "5000"))
    async with running_broker(tmp_path) as broker:
        topic = await described(broker, (TOPIC, "t"))
        assert {key: topic[key].value for key in ("flush.ms", "max.message.bytes", "retention.ms")} == {
            "flush.ms": "9",
            "max.message.bytes": "2000000",
            "retention.ms": "5000",
        }


async def test_a_stored_value_that_cannot_be_used_does_not_stop_the_broker(tmp_path: Path) -> None:
    secret = {"password.encoder.secret": "one"}
    key = "listener.name.tls.ssl.keystore.password"
    async with running_broker(tmp_path, secret) as broker:
        await change(broker, (BROKER, "0"), ("message.max.bytes", SET, "2000000"), (key, SET, "hidden"))
        stored = (await described(broker, (BROKER, "0")))[key]
        assert (stored.value, stored.is_sensitive, stored.config_source) == (None, True, 2)
    async with running_broker(tmp_path, {"password.encoder.secret": "another"}) as broker:
        here = await described(broker, (BROKER, "0"))
        assert here["message.max.bytes"].value == "2000000"
        assert key not in here
    assert b"hidden" not in (tmp_path / "metadata.sqlite").read_bytes()


async def test_a_password_needs_a_secret(served: InProcessBroker) -> None:
    response = await change(served, (BROKER, "0"), ("listener.name.tls.ssl.key.password", SET, "x"))
    assert response == (ErrorCode.INVALID_CONFIG, "Password encoder secret not configured")


async def test_levels_of_loggers(served: InProcessBroker) -> None:
    name, resource = "kafka.server.KafkaApis", (LOGGER, "0")
    before = (await described(served, resource))[name].value
    assert await change(served, resource, (name, SET, "ERROR")) == (ErrorCode.NONE, None)
    assert (await described(served, resource))[name].value == "ERROR"
    assert await change(served, resource, (name, DELETE, "")) == (ErrorCode.NONE, None)
    assert (await described(served, resource))[name].value == before
    for operation, code in (
        (("no.such.logger", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        ((name, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((name, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, ""), ErrorCode.INVALID_REQUEST),
    ):
        assert (await change(served, resource, operation))[0] == code


async def test_a_lag_is_held_against_that_of_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"log.cleaner.max.compaction.lag.ms": "5"}) as broker:
        created = await broker.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name="t",
                        num_partitions=1,
                        replication_factor=1,
                        assignments=[],
                        configs=[CreatableTopicConfig(name="min.compaction.lag.ms", value="6")],
                    )
                ]
            )
        )
        assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG
        await broker.create_topic("t")
        assert (await change(broker, (TOPIC, "t"), ("min.compaction.lag.ms", SET, "6")))[0] is ErrorCode.INVALID_CONFIG
        assert (await change(broker, (TOPIC, "t"), ("min.compaction.lag.ms", SET, "5")))[0] is ErrorCode.NONE


async def test_a_resource_of_an_unknown_type_is_not_described_nor_what_is_asked_besides(
    served: InProcessBroker,
) -> None:
    kinds = (BROKER, 64)
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name="0", configuration_keys=None) for kind in kinds
    ]
    responses = (await served.ask(DescribeConfigsRequest(resources=resources))).results
    assert [(response.resource_type, ErrorCode(response.error_code)) for response in responses] == [
        (BROKER, ErrorCode.INVALID_REQUEST),
        (64, ErrorCode.INVALID_REQUEST),
    ]
