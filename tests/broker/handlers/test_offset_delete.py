"""OffsetDelete: offsets without subscribers are deleted, partition by partition."""

from __future__ import annotations

import pytest

from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.offset_commits import Committer
from broker.handlers import offset_delete
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.groups.served import Served, codes
from tests.broker.groups.support import join_request, sync_request


def request(group_id: str, **partitions: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for name, index in partitions.items()
        ],
    )


async def test_offsets_that_members_do_not_read() -> None:
    served = await Served.up()
    start(served.coordinator.join("g", join_request("a")))
    start(served.coordinator.sync("g", sync_request("a-1", 1)))
    offset = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)
    start(served.coordinator.offsets.commit("g", Committer("a-1", None, 1), {("t", 0): offset, ("u", 0): offset}))
    response = await served.ask(offset_delete, request("g", t=0, u=0, nosuch=0), 0)
    assert response.error_code == ErrorCode.NONE
    assert codes(response.topics) == {
        ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("u", 0): ErrorCode.NONE,
        ("nosuch", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert list(served.coordinator.offsets.of("g").committed) == [("t", 0)]


@pytest.mark.parametrize(
    ("group_id", "error"),
    [
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
        ("connect", ErrorCode.NON_EMPTY_GROUP),
    ],
)
async def test_errors_of_the_group(group_id: str, error: ErrorCode) -> None:
    served = await Served.up()
    start(served.coordinator.join("connect", join_request("a", protocol_type="connect")))
    response = await served.ask(offset_delete, request(group_id, t=0), 0)
    assert (response.error_code, response.topics) == (error, [])


@pytest.mark.parametrize("partitions", [{"nosuch": 0}, {}])
async def test_group_is_checked_even_if_no_offset_is_to_be_deleted(partitions: dict[str, int]) -> None:
    served = await Served.up()
    response = await served.ask(offset_delete, request("none", **partitions), 0)
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
