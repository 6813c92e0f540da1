"""Heartbeat in every version."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import heartbeat
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.groups.served import Served, versions_of
from tests.broker.groups.support import join_request

VERSIONS = versions_of(HeartbeatRequest)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 9}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
async def test_heartbeat_fails_unless_group_member_and_generation_match(
    version: int, values: dict[str, Any], error: ErrorCode
) -> None:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a", instance_id="i")))
    sent = HeartbeatRequest(**{"group_id": "g", "member_id": "a-1", "generation_id": 1, **values})
    assert (await served.ask(heartbeat, sent, version)).error_code == error


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_fenced_instance_gets_fenced_instance_id(version: int) -> None:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a", instance_id="i")))
    sent = HeartbeatRequest(group_id="g", member_id="old", generation_id=1, group_instance_id="i")
    assert (await served.ask(heartbeat, sent, version)).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_heartbeat_during_a_rebalance_gets_rebalance_in_progress() -> None:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a")))
    start(served.coordinator.join("g", join_request("b")))
    sent = HeartbeatRequest(group_id="g", member_id="a-1", generation_id=1)
    assert (await served.ask(heartbeat, sent, 0)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
