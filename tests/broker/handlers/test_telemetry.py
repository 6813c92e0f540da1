"""Subscriptions to metrics of clients, and what clients push, up to the metrics of the broker (KIP-714)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from broker.handlers import push_telemetry
from protocol.errors import ErrorCode
from protocol.ids import id_text
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.push_telemetry import PushTelemetryRequest
from protocol.records.compression import Compression, compress
from tests.broker.telemetry.metrics_data import metric, metrics_data
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.in_process_cluster import running_cluster

CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = range(4)
NEW = UUID(int=0)
PUSHED = metrics_data(metric("a.b", 2.5, topic="t"), metric("a.c", 7, 7))


async def change(broker: InProcessBroker, name: str, *changes: tuple[str, int, str]) -> tuple[ErrorCode, str | None]:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    (result,) = (await broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))).responses
    return ErrorCode(result.error_code), result.error_message


async def described(broker: InProcessBroker, name: str) -> Any:
    resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
    (result,) = (await broker.ask(DescribeConfigsRequest(resources=[resource]))).results
    return result


async def settings(broker: InProcessBroker, name: str) -> dict[str, str]:
    return {config.name: config.value for config in (await described(broker, name)).configs}


async def asked(broker: InProcessBroker, instance_id: UUID = NEW) -> Any:
    return await broker.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


async def pushed(
    broker: InProcessBroker, subscription: Any, metrics: bytes, codec: int = 0, *, terminating: bool = False
) -> str:
    request = PushTelemetryRequest(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=metrics,
    )
    return ErrorCode((await broker.ask(request)).error_code).name


def values(broker: InProcessBroker) -> dict[tuple[str, str], float]:
    instances = broker.services.client_instances
    latest = instances.values(broker.services.clock.monotonic_ms())
    return {(name, attributes): value for (_, _, name, attributes), value in latest}


async def test_subscriptions_are_changed_described_and_listed(served: InProcessBroker) -> None:
    assert await change(served, "a/b", ("metrics", SET, "x"), ("interval.ms", SET, "1000")) == (ErrorCode.NONE, None)
    assert await change(served, "a/b", ("metrics", APPEND, "y,z"), ("interval.ms", DELETE, "")) == (
        ErrorCode.NONE,
        None,
    )
    assert await change(served, "a/b", ("metrics", SUBTRACT, "z")) == (ErrorCode.NONE, None)
    assert await settings(served, "a/b") == {"metrics": "x,y"}
    assert {config.config_source for config in (await described(served, "a/b")).configs} == {7}
    await change(served, "second", ("metrics", SET, "x"))
    listed = (await served.ask(ListConfigResourcesRequest(), 0)).config_resources
    assert [(each.resource_name, each.resource_type) for each in listed] == [("a/b", 16), ("second", 16)]
    await change(served, "a/b", ("metrics", DELETE, ""))
    assert [each.resource_name for each in (await served.ask(ListConfigResourcesRequest(), 0)).config_resources] == [
        "second"
    ]
    assert await settings(served, "a/b") == {}


async def test_an_invalid_change_of_a_subscription_changes_nothing(served: InProcessBroker) -> None:
    await change(served, "s", ("metrics", SET, "x"))
    code, message = await change(served, "s", ("metrics", SET, "y"), ("interval.ms", SET, "1"))
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    )
    assert (await change(served, "s", ("match", SET, "x=y")))[0] == ErrorCode.INVALID_CONFIG
    assert await settings(served, "s") == {"metrics": "x"}


async def test_subscriptions_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        await change(broker, "s", ("metrics", SET, "x"), ("interval.ms", SET, "500"))
    async with running_broker(tmp_path / "data") as broker:
        subscription = await asked(broker)
        assert (subscription.requested_metrics, subscription.push_interval_ms) == (["x"], 500)


async def test_a_broker_of_a_cluster_refuses_subscriptions_as_kafka_does(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1,)) as cluster:
        broker = cluster.brokers[1]
        assert await change(broker, "m", ("interval.ms", SET, "1000")) == (
            ErrorCode.INVALID_REQUEST,
            "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS",
        )
        result = await described(broker, "m")
        assert (result.error_code, result.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Config type client-metrics is only supported on KRaft clusters",
        )


async def test_types_of_resources_are_listed(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    await change(served, "s", ("metrics", SET, "x"))

    async def listed(*types: int) -> list[tuple[str, int]]:
        response = await served.ask(ListConfigResourcesRequest(resource_types=list(types)), 1)
        assert response.error_code == ErrorCode.NONE
        return [(each.resource_name, each.resource_type) for each in response.config_resources]

    assert await listed(2) == [(name, 2)]
    assert await listed(8, 4) == [("0", 8), ("0", 4)]
    assert await listed(32) == []
    assert await listed() == [("s", 16), ("0", 8), ("0", 4), (name, 2)]
    unknown = await served.ask(ListConfigResourcesRequest(resource_types=[2, 3]), 1)
    assert (unknown.error_code, unknown.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_a_client_is_told_what_to_push(served: InProcessBroker) -> None:
    await change(served, "s", ("metrics", SET, "b,a"), ("interval.ms", SET, "100"), ("match", SET, "client_id=local"))
    response = await asked(served)
    assert response.client_instance_id.int
    assert (response.error_code, response.push_interval_ms, response.requested_metrics) == (0, 100, ["a", "b"])
    assert (response.accepted_compression_types, response.telemetry_max_bytes) == ([4, 3, 1, 2], 1_048_576)
    assert response.delta_temporality is False
    again = await asked(served, response.client_instance_id)
    assert (again.error_code, again.client_instance_id) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, NEW)


@pytest.mark.parametrize("codec", list(Compression))
async def test_pushes_are_read_in_every_codec(served: InProcessBroker, codec: Compression) -> None:
    assert await pushed(served, await asked(served), compress(codec, PUSHED), codec) == "NONE"
    assert values(served) == {("a.b", "topic=t"): 2.5, ("a.c", ""): 7}


@pytest.mark.parametrize(
    ("metrics", "codec", "code"),
    [
        (b"", 0, "NONE"),
        (b"\xff", 0, "INVALID_RECORD"),
        (b"\xff", 1, "INVALID_RECORD"),
        (PUSHED, 5, "UNSUPPORTED_COMPRESSION_TYPE"),
        (PUSHED, -1, "UNSUPPORTED_COMPRESSION_TYPE"),
        (bytes(1_048_577), 0, "TELEMETRY_TOO_LARGE"),
        (compress(Compression.ZSTD, bytes(push_telemetry.OPENED_SIZE_MAX + 1)), 4, "INVALID_RECORD"),
    ],
    ids=["nothing", "no metrics", "no gzip", "codec 5", "codec -1", "too large", "opens too far"],
)
async def test_pushes_that_cannot_be_read_are_refused(
    served: InProcessBroker, metrics: bytes, codec: int, code: str
) -> None:
    assert await pushed(served, await asked(served), metrics, codec) == code
    assert values(served) == {}


async def test_a_client_that_has_sent_its_last_push_is_refused(served: InProcessBroker) -> None:
    subscription = await asked(served)
    assert await pushed(served, subscription, PUSHED, terminating=True) == "NONE"
    assert await pushed(served, subscription, PUSHED) == "INVALID_REQUEST"


async def test_latest_values_are_among_the_metrics_of_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"metrics.http.listener": "127.0.0.1:0"}) as broker:
        subscription = await asked(broker)
        hostile = metric('new\nline "quoted"', float("inf"))
        await pushed(broker, subscription, metrics_data(metric("a.b", 2.5, topic="t"), hostile))
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response,
        ):
            lines = (await response.text()).splitlines()
    labels = f'client_id="local",client_instance_id="{id_text(subscription.client_instance_id)}"'
    assert [line for line in lines if line.startswith("kafka_client_metric{")] == [
        f'kafka_client_metric{{{labels},metric="a.b",attributes="topic=t"}} 2.5',
        f'kafka_client_metric{{{labels},metric="new\\nline \\"quoted\\"",attributes=""}} +Inf',
    ]
    assert "kafka_server_client_metrics_instance_count 1" in lines
