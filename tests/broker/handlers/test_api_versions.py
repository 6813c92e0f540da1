"""ApiVersions: a cluster lists the version ranges of Kafka 3.9, a broker of its own also newer ones, and features."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from broker.handlers.api_versions import OF_TELEMETRY
from broker.telemetry.subscriptions import subscription_of
from protocol.api import APIS, OF_TRANSACTIONS_2
from protocol.api_key import ApiKey
from protocol.headers import UnsupportedApi, request_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.in_process import InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

KAFKAS_RANGES = Path(__file__).parents[2] / "fixtures" / "api-versions.csv"
SAFE_DOWNGRADE = 2
REQUEST = ApiVersionsRequest(client_software_name="probe", client_software_version="1")


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    async with running_cluster(tmp_path, (1,)) as cluster:
        yield cluster


@pytest.mark.parametrize("version", range(5))
async def test_a_broker_of_its_own_lists_all_versions(served: InProcessBroker, version: int) -> None:
    served.services.client_instances.subscribe("s", subscription_of("s", {"metrics": "*"}))
    response = await served.ask(REQUEST, version)
    assert listed_in(response) == {key: (api.versions[0], api.versions[-1]) for key, api in APIS.items()}
    level_0 = {"transaction.version": (0, 2)} if version == 4 else {}  # older clients cannot read it
    assert features_in(response) == (level_0, *(({"transaction.version": 2}, 0) if version >= 3 else ({}, -1)))


async def test_telemetry_is_listed_only_while_there_are_subscriptions(served: InProcessBroker) -> None:
    instances = served.services.client_instances
    assert listed_in(await served.ask(REQUEST)).keys() == APIS.keys() - OF_TELEMETRY
    instances.subscribe("s", subscription_of("s", {"metrics": "*"}))
    assert listed_in(await served.ask(REQUEST)).keys() == APIS.keys()
    instances.subscribe("s", None)
    assert listed_in(await served.ask(REQUEST)).keys() == APIS.keys() - OF_TELEMETRY


@pytest.mark.parametrize("version", range(5))
async def test_a_broker_of_a_cluster_lists_kafkas_versions(cluster: InProcessCluster, version: int) -> None:
    with KAFKAS_RANGES.open() as lines:
        kafkas = {int(row["api_key"]): (int(row["min"]), int(row["max"])) for row in csv.DictReader(lines)}
    response = await cluster.brokers[1].ask(REQUEST, version)
    assert listed_in(response) == kafkas
    assert features_in(response) == ({}, {}, 0 if version >= 3 else -1)


async def test_a_broker_of_a_cluster_serves_no_newer_version(cluster: InProcessCluster) -> None:
    for api in APIS.values():
        for version in api.newer:
            frame = request_header(api.key, version, 1, "probe")
            with pytest.raises(UnsupportedApi, match=f"{api.name} version {version}"):
                cluster.brokers[1].dispatcher.dispatch(memoryview(bytearray(frame)), cluster.brokers[1].channel)


async def test_a_cluster_may_have_transactions_of_version_2(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, overrides={"transaction.version.2.enable": "true"}) as cluster:
        for broker in cluster.brokers.values():
            response = await broker.ask(REQUEST, 4)
            assert features_in(response) == ({"transaction.version": (0, 2)}, {"transaction.version": 2}, 0)
            listed = listed_in(response)
            assert all(listed[key][1] == APIS[key].versions[-1] for key in OF_TRANSACTIONS_2)
            assert listed[ApiKey.LIST_OFFSETS][1] == APIS[ApiKey.LIST_OFFSETS].with_zookeeper[-1]
        change = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=SAFE_DOWNGRADE)
        await cluster.controller.ask(UpdateFeaturesRequest(feature_updates=[change]))
        for broker in cluster.brokers.values():
            await until(lambda broker=broker: broker.services.features.epoch == 1)  # type: ignore[misc]
            assert features_in(await broker.ask(REQUEST, 4))[1:] == ({"transaction.version": 1}, 1)


def features_in(response: ApiVersionsResponse) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    """Return the supported and the finalized features, and the epoch."""
    return (
        {each.name: (each.min_version, each.max_version) for each in response.supported_features},
        {each.name: each.max_version_level for each in response.finalized_features},
        response.finalized_features_epoch,
    )


def listed_in(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
