"""JoinGroup: the meaning of the request and the fields of the response, version by version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.handlers import join_group
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.groups.served import CLIENT_ID, Served, versions_of
from tests.broker.groups.support import subscription, sync_request

VERSIONS = versions_of(JoinGroupRequest)


def request(version: int, **values: Any) -> JoinGroupRequest:
    values = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000 if version >= 1 else -1,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        **values,
    }
    return JoinGroupRequest(**values)


async def joined(served: Served, version: int, **values: Any) -> Any:
    """Return the response, after a second request with the id if the first one demands it."""
    response = await served.ask(join_group, request(version, **values), version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await served.ask(join_group, request(version, **values, member_id=response.member_id), version)
    return response


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_alone_leads(version: int) -> None:
    served = await Served.up()
    response = await joined(served, version)
    assert response.error_code == ErrorCode.NONE
    assert (response.generation_id, response.protocol_name, response.skip_assignment) == (1, "range", False)
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert response.member_id.startswith(f"{CLIENT_ID}-")
    assert response.leader == response.member_id
    (member,) = response.members
    assert (member.member_id, member.metadata) == (response.member_id, subscription("t"))
    group = served.coordinator.inspection.group("g")
    assert group is not None
    stored = group.members[response.member_id]
    assert (stored.client_id, stored.client_host) == (CLIENT_ID, "/192.0.2.1")
    assert stored.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)


@pytest.mark.parametrize("version", VERSIONS)
async def test_newer_clients_get_their_member_id_first(version: int) -> None:
    served = await Served.up()
    response = await served.ask(join_group, request(version), version)
    if version < 4:
        assert response.error_code == ErrorCode.NONE
        return
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith(f"{CLIENT_ID}-")
    assert (response.generation_id, response.leader, response.members) == (-1, "", [])
    assert (response.protocol_type, response.protocol_name) == ((None, None) if version >= 7 else (None, ""))


@pytest.mark.parametrize("version", VERSIONS[5:])
async def test_static_members_join_at_once_and_come_back(version: int) -> None:
    served = await Served.up()
    first = await served.ask(join_group, request(version, group_instance_id="i"), version)
    assert first.error_code == ErrorCode.NONE
    assert first.member_id.startswith("i-")
    assert first.members[0].group_instance_id == "i"
    start(served.coordinator.sync("g", sync_request(first.member_id, 1)))
    again = await served.ask(join_group, request(version, group_instance_id="i"), version)
    assert again.generation_id == 1
    assert again.skip_assignment == (version >= 9)
    assert again.leader == (again.member_id if version >= 9 else first.member_id)
    assert len(again.members) == (1 if version >= 9 else 0)
    fenced = await served.ask(join_group, request(version, group_instance_id="i", member_id=first.member_id), version)
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", VERSIONS)
async def test_members_wait_for_each_other(version: int) -> None:
    served = await Served.up()
    first = await joined(served, version)
    second = asyncio.ensure_future(joined(served, version))
    await served.here.idle()
    assert not second.done()
    again = await joined(served, version, member_id=first.member_id)
    other = await second
    assert {each.member_id for each in again.members} == {first.member_id, other.member_id}
    assert (other.leader, other.generation_id, other.members) == (first.member_id, 2, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_invalid_join_is_rejected_with_its_error_code(
    version: int, values: dict[str, Any], error: ErrorCode
) -> None:
    served = await Served.up()
    response = await served.ask(join_group, request(version, **values), version)
    assert (response.error_code, response.member_id) == (error, values.get("member_id", ""))
    assert (response.generation_id, response.leader, response.members) == (-1, "", [])
