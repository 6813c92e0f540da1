"""The list of groups: what a page contains, and how many groups are examined between pauses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.console import group_list
from broker.console.cluster_client import Responses
from broker.console.console import Console
from broker.console.group_list import NO_FACTS, Facts, GroupPage, GroupSort, groups
from protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.storage.builders import Steps, done, pause, steps_of

GROUPS = 5_000


def page_in_steps(monkeypatch: pytest.MonkeyPatch, search: str, sort: GroupSort) -> Steps[GroupPage]:
    """The page of a cluster with two coordinators, whose groups have as many members as their names say."""

    async def ask_all(request: object) -> Responses[ListGroupsResponse]:
        listed = [ListedGroup(group_id=f"Group-{each}", protocol_type="consumer") for each in range(GROUPS)]
        half = GROUPS // 2
        return Responses({1: ListGroupsResponse(groups=listed[:half]), 2: ListGroupsResponse(groups=listed[half:])}, {})

    async def facts(console: object, coordinators: Any, responses: object) -> dict[str, Facts]:
        return {group: Facts({**NO_FACTS, "members": int(group[6:])}) for group, _ in coordinators}

    async def remembered(name: str, valid_ms: int, collect: Any) -> Any:
        return await collect()

    monkeypatch.setattr(group_list, "_facts", facts)
    console: Any = SimpleNamespace(client=SimpleNamespace(ask_all=ask_all), pause=pause, remembered=remembered)
    return steps_of(
        groups(cast(Console, console), search=search, sort=sort, order="descending", offset=1, limit=2),
    )


@pytest.mark.parametrize(("sort", "rounds"), [("group", 1), ("members", 2)])
def test_all_groups_are_examined_in_steps(monkeypatch: pytest.MonkeyPatch, sort: GroupSort, rounds: int) -> None:
    assert len(list(page_in_steps(monkeypatch, "", sort))) >= rounds * GROUPS


@pytest.mark.parametrize(
    ("sort", "search", "total", "expected"),
    [
        ("group", "", GROUPS, [("Group-998", 1), ("Group-997", 1)]),
        ("members", "", GROUPS, [("Group-4998", 2), ("Group-4997", 2)]),
        ("members", "gROUP-499", 11, [("Group-4998", 2), ("Group-4997", 2)]),
        ("members", "none", 0, []),
    ],
)
def test_page_has_the_groups_that_match_in_order(
    monkeypatch: pytest.MonkeyPatch, sort: GroupSort, search: str, total: int, expected: list[tuple[str, int]]
) -> None:
    page = done(page_in_steps(monkeypatch, search, sort))
    assert page["total"] == total
    assert [(row["group"], row["coordinator"]) for row in page["groups"]] == expected
    assert [row["members"] for row in page["groups"]] == [int(group[6:]) for group, _ in expected]
