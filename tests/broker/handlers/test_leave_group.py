"""LeaveGroup: one member in the old versions, several in the newer ones."""

from __future__ import annotations

import pytest

from broker.handlers import leave_group
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.groups.served import Served, versions_of
from tests.broker.groups.support import join_request

VERSIONS = versions_of(LeaveGroupRequest)


async def with_member(version: int = 0) -> Served:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a", instance_id="i" if version >= 3 else None)))
    return served


@pytest.mark.parametrize("version", VERSIONS[:3])
@pytest.mark.parametrize(
    ("group_id", "member_id", "error"),
    [
        ("g", "a-1", ErrorCode.NONE),
        ("g", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("other", "a-1", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "a-1", ErrorCode.INVALID_GROUP_ID),
    ],
)
async def test_member_leaves_only_its_own_group(version: int, group_id: str, member_id: str, error: ErrorCode) -> None:
    served = await with_member()
    response = await served.ask(leave_group, LeaveGroupRequest(group_id=group_id, member_id=member_id), version)
    assert response.error_code == error
    group = served.coordinator.inspection.group("g")
    assert group is not None
    assert bool(group.members) == bool(error)


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_each_leaving_member_has_its_own_code(version: int) -> None:
    served = await with_member(version)
    members = [
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="old", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="other"),
        MemberIdentity(member_id="", group_instance_id="i", reason="replaced" if version >= 5 else None),
        MemberIdentity(member_id="a-1", group_instance_id="i"),
    ]
    response = await served.ask(leave_group, LeaveGroupRequest(group_id="g", members=members), version)
    assert response.error_code == ErrorCode.NONE
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in response.members] == [
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("old", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.NONE),
        ("a-1", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_group_of_another_coordinator_gets_not_coordinator(version: int) -> None:
    served = await with_member(version)
    served.coordinator.partitions.resign(0)
    sent = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="a-1")])
    response = await served.ask(leave_group, sent, version)
    assert (response.error_code, response.members) == (ErrorCode.NOT_COORDINATOR, [])
