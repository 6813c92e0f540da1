"""The settings of single groups: changed, described, listed, checked, kept and given to members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.handlers.test_commits_in_a_row import begin_to_coordinate
from tests.broker.handlers.test_consumer_group_heartbeat import heartbeat, joining
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.in_process_cluster import running_cluster

GROUP = 32
SET, DELETE = 0, 1
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
RESET = "share.auto.offset.reset"
DEFAULT_CONFIG, GROUP_CONFIG = 5, 8


async def change(broker: InProcessBroker, name: str, *changes: tuple[str, int, str]) -> tuple[str, str | None]:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=name, configs=configs)
    (result,) = (await broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))).responses
    return ErrorCode(result.error_code).name, result.error_message


async def described(broker: InProcessBroker, name: str) -> Any:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=None)
    (result,) = (await broker.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True))).results
    return result


async def settings(broker: InProcessBroker, name: str) -> dict[str, tuple[str, int]]:
    return {config.name: (config.value, config.config_source) for config in (await described(broker, name)).configs}


async def of_consumers(broker: InProcessBroker, name: str) -> dict[str, tuple[str, int]]:
    """Return the settings of groups of the consumer protocol."""
    return {key: value for key, value in (await settings(broker, name)).items() if key.startswith("consumer.")}


async def listed(broker: InProcessBroker) -> list[str]:
    resources = (await broker.ask(ListConfigResourcesRequest(resource_types=[GROUP]))).config_resources
    return [resource.resource_name for resource in resources]


async def test_settings_of_a_group_are_changed_described_and_listed(served: InProcessBroker, name: str) -> None:
    assert await of_consumers(served, name) == {SESSION: ("45000", DEFAULT_CONFIG), INTERVAL: ("5000", DEFAULT_CONFIG)}
    assert await change(served, name, (INTERVAL, SET, "6000")) == ("NONE", None)
    assert await of_consumers(served, name) == {SESSION: ("45000", DEFAULT_CONFIG), INTERVAL: ("6000", GROUP_CONFIG)}
    assert name in await listed(served)
    assert await change(served, name, (INTERVAL, DELETE, "")) == ("NONE", None)
    assert await of_consumers(served, name) == {SESSION: ("45000", DEFAULT_CONFIG), INTERVAL: ("5000", DEFAULT_CONFIG)}
    assert name not in await listed(served)


async def test_settings_of_a_share_group_are_changed_and_described(served: InProcessBroker, name: str) -> None:
    changes = {
        RESET: "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.record.lock.duration.ms": "15000",
        "share.heartbeat.interval.ms": "6000",
        "share.session.timeout.ms": "50000",
    }
    assert await change(served, name, *((key, SET, value) for key, value in changes.items())) == ("NONE", None)
    found = await settings(served, name)
    assert {key: found[key] for key in changes} == {key: (value, GROUP_CONFIG) for key, value in changes.items()}


async def test_members_learn_the_interval_of_their_group(served: InProcessBroker, name: str) -> None:
    await begin_to_coordinate(served)
    joined = await heartbeat(served, joining(name))
    await change(served, name, (INTERVAL, SET, "7000"))
    later = await heartbeat(served, joining(name))
    other = await heartbeat(served, joining(f"{name}-other"))
    intervals = [response.heartbeat_interval_ms for response in (joined, later, other)]
    assert intervals == [5000, 7000, 5000]


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ([("x", SET, "1")], "INVALID_CONFIG", "Unknown group config name: x"),
        (
            [(RESET, SET, "none")],
            "INVALID_CONFIG",
            f"Invalid value none for configuration {RESET}: expected earliest, latest or",
        ),
        (
            [(RESET, SET, "by_duration:1h")],
            "INVALID_CONFIG",
            f"Invalid value by_duration:1h for configuration {RESET}: '1h'",
        ),
        (
            [(RESET, SET, "by_duration:-PT1H")],
            "INVALID_CONFIG",
            f"Invalid value by_duration:-PT1H for configuration {RESET}: e",
        ),
        (
            [("share.isolation.level", SET, "serial")],
            "INVALID_CONFIG",
            "Invalid value serial for configuration",
        ),
        (
            [("share.record.lock.duration.ms", SET, "14999")],
            "INVALID_CONFIG",
            "share.record.lock.duration.ms must be greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            [(INTERVAL, SET, "4999")],
            "INVALID_CONFIG",
            f"{INTERVAL} must be greater than or equal to group.",
        ),
        ([(INTERVAL, SET, "15001")], "INVALID_CONFIG", f"{INTERVAL} must be less than or equal to group.consumer.max."),
        ([(SESSION, SET, "44999")], "INVALID_CONFIG", f"{SESSION} must be greater than or equal to group.consumer.min"),
        ([(SESSION, SET, "60001")], "INVALID_CONFIG", f"{SESSION} must be less than or equal to group.consumer.max.s"),
        ([(SESSION, SET, "abc")], "INVALID_CONFIG", f"Invalid value abc for configuration {SESSION}"),
        ([(INTERVAL, SET, "6000"), (SESSION, SET, "1")], "INVALID_CONFIG", f"{SESSION} must be greater than or equal"),
    ],
)
async def test_an_invalid_setting_is_refused_and_nothing_changes(
    served: InProcessBroker, name: str, changes: list[tuple[str, int, str]], code: str, text: str
) -> None:
    refused, message = await change(served, name, *changes)
    assert refused == code
    assert (message or "").startswith(text)
    assert name not in await listed(served)


async def test_a_group_without_a_name_has_no_settings(served: InProcessBroker) -> None:
    assert await change(served, "", (INTERVAL, SET, "6000")) == (
        "INVALID_REQUEST",
        "Default group resources are not allowed.",
    )
    assert ErrorCode((await described(served, "")).error_code) == ErrorCode.INVALID_REQUEST


async def test_a_session_is_longer_than_an_interval(tmp_path: Path) -> None:
    bounds = {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}
    async with running_broker(tmp_path / "data", bounds) as broker:
        refused = await change(broker, "g", (SESSION, SET, "5000"))
        assert refused == ("INVALID_CONFIG", f"{SESSION} must be greater than {INTERVAL}")
        assert await change(broker, "g", (SESSION, SET, "5000"), (INTERVAL, SET, "4999")) == ("NONE", None)


async def test_settings_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        await change(broker, "ä/b", (INTERVAL, SET, "6000"))
    async with running_broker(tmp_path / "data") as broker:
        assert await listed(broker) == ["ä/b"]
        assert (await settings(broker, "ä/b"))[INTERVAL] == ("6000", GROUP_CONFIG)


async def test_a_broker_of_a_cluster_refuses_settings_of_groups(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1,)) as cluster:
        code, _ = await change(cluster.brokers[1], "g", (INTERVAL, SET, "6000"))
        assert code == "INVALID_REQUEST"
        assert (await described(cluster.brokers[1], "g")).error_code == ErrorCode.INVALID_REQUEST
