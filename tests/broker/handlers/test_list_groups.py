"""ListGroups and its filters."""

from __future__ import annotations

import pytest

from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.offset_commits import Committer
from broker.handlers import list_groups
from broker.loop.driver import start
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.groups.served import Served, counted_pauses, versions_of
from tests.broker.groups.support import join_request, sync_request

VERSIONS = versions_of(ListGroupsRequest)


async def with_groups() -> Served:
    """`s` is stable, `c` is completing, `e` only stores offsets."""
    served = await Served.up()
    for name in "sc":
        start(served.coordinator.join(name, join_request("a")))
    start(served.coordinator.sync("s", sync_request("a-1", 1)))
    offset = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)
    start(served.coordinator.offsets.commit("e", Committer(), {("t", 0): offset}))
    return served


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_groups_are_listed_with_the_fields_of_the_version(version: int) -> None:
    served = await with_groups()
    response = await served.ask(list_groups, ListGroupsRequest(), version)
    assert response.error_code == ErrorCode.NONE
    states = ("Stable", "CompletingRebalance", "Empty") if version >= 4 else ("", "", "")
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups] == [
        (name, protocol_type, state, "classic" if version >= 5 else "")
        for name, protocol_type, state in zip("sce", ("consumer", "consumer", ""), states, strict=True)
    ]


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        (["Stable"], [], "s"),
        (["stable", "EMPTY"], [], "se"),
        (["Nonsense"], [], ""),
        ([], ["classic"], "sce"),
        ([], ["Classic", "consumer"], "sce"),
        ([], ["consumer"], ""),
        (["Empty"], ["classic"], "e"),
    ],
)
async def test_only_groups_that_match_state_and_type_are_listed(
    states: list[str], types: list[str], names: str
) -> None:
    served = await with_groups()
    response = await served.ask(list_groups, ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert [each.group_id for each in response.groups] == list(names)


@pytest.mark.parametrize("version", VERSIONS)
async def test_list_has_an_error_while_loading_and_when_stopped(version: int) -> None:
    served = await with_groups()
    served.coordinator.partitions.become_leader(7, 0)
    response = await served.ask(list_groups, ListGroupsRequest(), version)
    assert (response.error_code, len(response.groups)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3)
    await served.coordinator.stop()
    response = await served.ask(list_groups, ListGroupsRequest(), version)
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


async def test_other_work_may_run_between_groups_that_do_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    served = await with_groups()
    pauses = counted_pauses(monkeypatch)
    response = await served.ask(list_groups, ListGroupsRequest(states_filter=["Dead"]), 5)
    assert (response.groups, len(pauses)) == ([], 3)
