"""FindCoordinator: the coordinator in every version, and the error without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import find_coordinator
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.groups.served import Served, versions_of
from tests.broker.transactions.served import ServedTransactions

VERSIONS = versions_of(FindCoordinatorRequest)
UNAVAILABLE, INVALID = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST


def request(version: int, *keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], key_type=key_type)
    return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)


def only(response: FindCoordinatorResponse, version: int) -> tuple[int, str, int, int, str | None]:
    found: FindCoordinatorResponse | Coordinator = response
    if version >= 4:
        (found,) = response.coordinators
    return found.node_id, found.host, found.port, found.error_code, found.error_message


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_leader_of_the_partition_coordinates(version: int) -> None:
    served = await Served.up()
    response = await served.ask(find_coordinator, request(version, "g"), version)
    message = {0: None, 1: "NONE", 2: "NONE", 3: "NONE"}.get(version, "")  # as Kafka says it
    assert only(response, version) == (1, "broker", 9092, ErrorCode.NONE, message)


async def test_each_key_has_its_coordinator() -> None:
    served = await Served.up()
    response = await served.ask(find_coordinator, request(4, "g", "h"), 4)
    assert [(each.key, each.node_id) for each in response.coordinators] == [("g", 1), ("h", 1)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_request_creates_the_topic_and_waits_for_it(version: int) -> None:
    served = Served(has_offsets_topic=False)
    waiting = served.send(find_coordinator, request(version, "g"), version)
    served.add_topic("__consumer_offsets", 1)
    assert only(await waiting, version)[0] == 1
    assert served.here.created == ["__consumer_offsets"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_topic_that_cannot_be_created_is_an_error(version: int) -> None:
    served = Served(has_offsets_topic=False)
    served.here.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    response = await served.ask(find_coordinator, request(version, "g"), version)
    assert only(response, version)[:4] == (-1, "", -1, UNAVAILABLE)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("leader", "listener"), [(-1, "PLAINTEXT"), (2, "PLAINTEXT"), (1, "OTHER")])
async def test_without_a_leader_no_coordinator_is_named(version: int, leader: int, listener: str) -> None:
    served = await Served.up()
    served.add_topic("__consumer_offsets", 1, leader)
    served.metadata.brokers[1].endpoints[listener] = served.metadata.brokers[1].endpoints.pop("PLAINTEXT")
    response = await served.ask(find_coordinator, request(version, "g"), version)
    assert only(response, version)[:4] == (-1, "", -1, UNAVAILABLE)


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_transactional_ids_have_a_topic_of_their_own(tmp_path: Path, version: int) -> None:
    served = await ServedTransactions(tmp_path, has_offsets_topic=False).lead_all()
    served.add_topic("__transaction_state", 1)
    response = await served.ask(find_coordinator, request(version, "id", key_type=1), version)
    assert only(response, version)[:4] == (1, "broker", 9092, ErrorCode.NONE)


async def test_the_topic_of_transactional_ids_is_created_on_demand(tmp_path: Path) -> None:
    served = ServedTransactions(tmp_path, has_transactions_topic=False)
    waiting = served.send(find_coordinator, request(6, "id", key_type=1), 6)
    served.add_topic("__transaction_state", 1)
    assert only(await waiting, 6)[0] == 1
    assert served.there.created == ["__transaction_state"]


@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize("key_type", [3, -1])
async def test_other_kinds_of_keys(version: int, key_type: int) -> None:
    served = await Served.up()
    response = await served.ask(find_coordinator, request(version, "g", key_type=key_type), version)
    assert only(response, version) == (-1, "", -1, INVALID, ERRORS[INVALID].message)


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_share_groups_have_no_coordinator(version: int) -> None:
    served = await Served.up()
    response = await served.ask(find_coordinator, request(version, "g", key_type=2), version)
    assert only(response, version)[:4] == (-1, "", -1, UNAVAILABLE if version >= 6 else INVALID)
