"""DescribeGroups: stable groups show everything, others less, and no group is Dead."""

from __future__ import annotations

import pytest

from broker.handlers import describe_groups
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.broker.groups.served import Served, versions_of
from tests.broker.groups.support import join_request, subscription, sync_request

VERSIONS = versions_of(DescribeGroupsRequest)
NOT_ASKED = -(2**31)


async def with_group(*, is_stable: bool) -> Served:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a", instance_id="i")))
    if is_stable:
        start(served.coordinator.sync("g", sync_request("a-1", 1, {"a-1": b"x"})))
    return served


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_stable", [True, False])
async def test_group_is_described_with_its_members(version: int, is_stable: bool) -> None:
    served = await with_group(is_stable=is_stable)
    response = await served.ask(describe_groups, DescribeGroupsRequest(groups=["g"]), version)
    (group,) = response.groups
    assert (group.error_code, group.group_id, group.protocol_type) == (ErrorCode.NONE, "g", "consumer")
    assert group.group_state == ("Stable" if is_stable else "CompletingRebalance")
    assert group.protocol_data == ("range" if is_stable else "")
    assert group.authorized_operations == NOT_ASKED
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("a-1", "a", "/127.0.0.1")
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert member.member_metadata == (subscription("t") if is_stable else b"")
    assert member.member_assignment == (b"x" if is_stable else b"")


@pytest.mark.parametrize("version", VERSIONS[:6])
async def test_missing_group_is_dead_without_an_error(version: int) -> None:
    served = await Served.up()
    response = await served.ask(describe_groups, DescribeGroupsRequest(groups=["a", ""]), version)
    assert [
        (each.error_code, each.group_id, each.group_state, each.protocol_type, each.protocol_data, each.members)
        for each in response.groups
    ] == [(ErrorCode.NONE, "a", "Dead", "", "", []), (ErrorCode.NONE, "", "Dead", "", "", [])]


async def test_missing_group_is_an_error_for_clients_of_kafka_4() -> None:
    served = await Served.up()
    (group,) = (await served.ask(describe_groups, DescribeGroupsRequest(groups=["a"]), 6)).groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group a not found.")
    assert group.group_state == "Dead"


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_authorised_operations_are_returned_on_request(version: int) -> None:
    served = await with_group(is_stable=True)
    sent = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
    response = await served.ask(describe_groups, sent, version)
    assert [each.authorized_operations for each in response.groups] == [1 << 3 | 1 << 6 | 1 << 8] * 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_group_of_another_coordinator_gets_not_coordinator(version: int) -> None:
    served = await with_group(is_stable=True)
    served.coordinator.partitions.resign(0)
    response = await served.ask(describe_groups, DescribeGroupsRequest(groups=["g"]), version)
    (group,) = response.groups
    assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")
