"""ApiVersions: a cluster lists the version ranges of Kafka 3.9, a broker of its own also newer ones."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from broker.handlers.api_versions import OF_TELEMETRY
from broker.telemetry.subscriptions import subscription_of
from protocol.api import APIS
from protocol.headers import UnsupportedApi, request_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.in_process import InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster

KAFKAS_RANGES = Path(__file__).parents[2] / "fixtures" / "api-versions.csv"
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
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)


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
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)


async def test_a_broker_of_a_cluster_serves_no_newer_version(cluster: InProcessCluster) -> None:
    for api in APIS.values():
        for version in api.newer:
            frame = request_header(api.key, version, 1, "probe")
            with pytest.raises(UnsupportedApi, match=f"{api.name} version {version}"):
                cluster.brokers[1].dispatcher.dispatch(memoryview(bytearray(frame)), cluster.brokers[1].channel)


def listed_in(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
