"""SyncGroup: assignments in every version, and the checks of the newer ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.handlers import sync_group
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.served import Served, versions_of
from tests.broker.groups.support import join_request

VERSIONS = versions_of(SyncGroupRequest)


def request(version: int, member_id: str, **values: Any) -> SyncGroupRequest:
    values = {
        "group_id": "g",
        "generation_id": 1,
        "protocol_type": "consumer" if version >= 5 else None,
        "protocol_name": "range" if version >= 5 else None,
        "assignments": [],
        **values,
    }
    return SyncGroupRequest(member_id=member_id, **values)


def assigned(**assignments: bytes) -> list[SyncGroupRequestAssignment]:
    return [SyncGroupRequestAssignment(member_id=f"{name}-1", assignment=value) for name, value in assignments.items()]


async def with_members(*names: str) -> Served:
    served = await Served.up()
    start(served.coordinator.join("g", join_request(names[0], instance_id="i")))
    for name in names[1:]:
        start(served.coordinator.join("g", join_request(name)))
    if names[1:]:
        start(served.coordinator.join("g", join_request(names[0], member_id=f"{names[0]}-1", instance_id="i")))
    return served


@pytest.mark.parametrize("version", VERSIONS)
async def test_everyone_gets_what_the_leader_decided(version: int) -> None:
    served = await with_members("a", "b")
    follower = served.send(sync_group, request(version, "b-1", generation_id=2), version)
    assert isinstance(follower, asyncio.Future)
    leader = await served.ask(
        sync_group, request(version, "a-1", generation_id=2, assignments=assigned(a=b"x", b=b"y")), version
    )
    names = ("consumer", "range") if version >= 5 else (None, None)
    assert (leader.error_code, leader.assignment) == (ErrorCode.NONE, b"x")
    assert (leader.protocol_type, leader.protocol_name) == names
    assert (await follower).assignment == b"y"
    again = await served.ask(sync_group, request(version, "b-1", generation_id=2), version)
    assert again.assignment == b"y"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
async def test_invalid_sync_is_rejected_with_its_error_code(
    version: int, values: dict[str, Any], error: ErrorCode
) -> None:
    served = await with_members("a")
    response = await served.ask(sync_group, request(version, **{"member_id": "a-1", **values}), version)
    assert (response.error_code, response.assignment) == (error, b"")


@pytest.mark.parametrize(
    "values", [{"protocol_type": "connect"}, {"protocol_name": "x"}, {"protocol_type": None}, {"protocol_name": None}]
)
async def test_newer_clients_must_name_the_right_protocol(values: dict[str, Any]) -> None:
    served = await with_members("a")
    response = await served.ask(sync_group, request(5, "a-1", **values), 5)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_fenced_instance_gets_fenced_instance_id(version: int) -> None:
    served = await with_members("a")
    response = await served.ask(sync_group, request(version, "old", group_instance_id="i"), version)
    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID
