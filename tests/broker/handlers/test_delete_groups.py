"""DeleteGroups: each group gets its own code."""

from __future__ import annotations

import pytest

from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.offset_commits import Committer
from broker.handlers import delete_groups
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from tests.broker.groups.served import Served, versions_of
from tests.broker.groups.support import join_request

VERSIONS = versions_of(DeleteGroupsRequest)


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_empty_groups_are_deleted(version: int) -> None:
    served = await Served.up()
    offset = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)
    start(served.coordinator.offsets.commit("e", Committer(), {("t", 0): offset}))
    start(served.coordinator.join("s", join_request("a")))
    sent = DeleteGroupsRequest(groups_names=["e", "s", "none", "e"])
    response = await served.ask(delete_groups, sent, version)
    assert [(each.group_id, each.error_code) for each in response.results] == [
        ("e", ErrorCode.NONE),
        ("s", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert served.coordinator.inspection.group("e") is None


@pytest.mark.parametrize("version", VERSIONS)
async def test_group_of_another_coordinator_gets_not_coordinator(version: int) -> None:
    served = await Served.up()
    served.coordinator.partitions.resign(0)
    response = await served.ask(delete_groups, DeleteGroupsRequest(groups_names=["g"]), version)
    assert [each.error_code for each in response.results] == [ErrorCode.NOT_COORDINATOR]


async def test_a_group_that_is_deleted_while_few_replicas_are_in_sync_is_gone_after_the_next_load() -> None:
    served = await Served.up()
    offset = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)
    start(served.coordinator.offsets.commit("e", Committer(), {("t", 0): offset}))
    served.here.log.has_enough_in_sync = False
    response = await served.ask(delete_groups, DeleteGroupsRequest(groups_names=["e"]), VERSIONS[-1])
    assert [each.error_code for each in response.results] == [ErrorCode.NONE]
    await served.here.restart()
    assert served.coordinator.inspection.group("e") is None
