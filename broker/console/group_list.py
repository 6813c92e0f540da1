"""The list of groups for the console: searched, sorted and paged, each with its lag and its status.

Owns what a page of the list contains. Must not know HTTP.

Every broker lists the groups that it coordinates with their states. Members, lags and statuses take further requests:
for the groups of one page, or for all groups if the list is sorted by such a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final, Literal, TypedDict

from base.pause import Pause, through
from base.topic_partition import TopicPartition
from broker.console.cluster_client import Responses
from broker.console.committed_offsets import committed
from broker.console.console import Console
from broker.console.group_lags import end_offsets, partitions_of
from broker.console.group_status import Status, rank, worst
from broker.console.groups import described_groups, lags_of, members_of, statuses_of
from broker.console.topics import Order, Unavailable, unavailable_of
from broker.network.outgoing import PeerUnavailable
from protocol.errors import KafkaError
from protocol.messages.list_groups import ListGroupsRequest

FACTS_MS: Final = 10_000
"""How long the facts about all groups, by which a list is sorted, are used."""

GroupSort = Literal["group", "state", "protocol_type", "coordinator", "members", "topics", "lag", "status"]


class Facts(TypedDict):
    """What takes further requests about a group; null if its coordinator does not respond."""

    members: int | None
    topics: int
    lag: int | None
    status: Status


class GroupRow(Facts):
    """One group of the list."""

    group: str
    state: str
    protocol_type: str
    coordinator: int


class GroupPage(TypedDict):
    """One page of groups; `total` counts all that match."""

    total: int
    groups: list[GroupRow]
    unavailable: list[Unavailable]


NO_FACTS: Final = Facts(members=None, topics=0, lag=None, status="UNKNOWN")

_SORT_KEYS: Mapping[GroupSort, Callable[[GroupRow], Any]] = {
    "group": itemgetter("group"),
    "state": itemgetter("state"),
    "protocol_type": itemgetter("protocol_type"),
    "coordinator": itemgetter("coordinator"),
    "members": lambda row: -1 if row["members"] is None else row["members"],
    "topics": itemgetter("topics"),
    "lag": lambda row: -1 if row["lag"] is None else row["lag"],
    "status": lambda row: rank(row["status"]),
}
_OF_FACTS: Final = Facts.__annotations__.keys()


async def groups(console: Console, *, search: str, sort: GroupSort, order: Order, offset: int, limit: int) -> GroupPage:
    """Return a page of the groups whose names contain `search`."""
    responses = await console.client.ask_all(ListGroupsRequest())
    rows = await _matching(responses, search.lower(), console.pause)
    rows.sort(key=_SORT_KEYS["group"])
    if sort in _OF_FACTS:
        facts = await console.remembered("group_facts", FACTS_MS, lambda: _facts_of_all(console, responses))
        rows = await _with_facts(rows, facts, console.pause)
    rows.sort(key=_SORT_KEYS[sort], reverse=order == "descending")
    page = rows[offset : offset + limit]
    if sort not in _OF_FACTS:
        found = await _facts(console, ((row["group"], row["coordinator"]) for row in page), responses)
        page = await _with_facts(page, found, console.pause)
    return GroupPage(total=len(rows), groups=page, unavailable=unavailable_of(responses))


async def _matching(responses: Responses[Any], search: str, pause: Pause) -> list[GroupRow]:
    """Return the groups whose names contain `search`, without facts."""
    rows = []
    groups = ((broker, group) for broker, response in responses.by_broker.items() for group in response.groups)
    async for broker, group in through(groups, pause):
        if search in group.group_id.lower():
            rows.append(
                GroupRow(
                    group=group.group_id,
                    state=group.group_state,
                    protocol_type=group.protocol_type,
                    coordinator=broker,
                    **NO_FACTS,
                )
            )
    return rows


async def _with_facts(rows: list[GroupRow], facts: Mapping[str, Facts], pause: Pause) -> list[GroupRow]:
    return [
        GroupRow(
            group=row["group"],
            state=row["state"],
            protocol_type=row["protocol_type"],
            coordinator=row["coordinator"],
            **facts.get(row["group"], NO_FACTS),
        )
        async for row in through(rows, pause)
    ]


async def _facts_of_all(console: Console, responses: Responses[Any]) -> dict[str, Facts]:
    coordinators = (
        (group.group_id, broker) for broker, response in responses.by_broker.items() for group in response.groups
    )
    return await _facts(console, coordinators, responses)


async def _facts(
    console: Console, coordinators: Iterable[tuple[str, int]], responses: Responses[Any]
) -> dict[str, Facts]:
    """Return the facts about groups. A coordinator that does not respond is added to `responses.unavailable`."""
    by_broker: dict[int, list[str]] = {}
    for group, broker in coordinators:
        by_broker.setdefault(broker, []).append(group)
    offsets: dict[str, dict[TopicPartition, int]] = {}
    readers: dict[str, dict[TopicPartition, str]] = {}
    members: dict[str, int] = {}
    for broker, names in by_broker.items():
        try:
            offsets.update(await committed(console.client, broker, names))
            for described in await described_groups(console, broker, names):
                rows, readers[described.group_id] = await members_of(described, console.pause)
                members[described.group_id] = len(rows)
        except (PeerUnavailable, KafkaError) as error:
            responses.unavailable[broker] = str(error)
    ends = await end_offsets(console.client, await partitions_of(offsets, console.pause))
    return {
        group: await _facts_of(console, group, members.get(group), of_group, readers.get(group, {}), ends)
        for group, of_group in offsets.items()
    }


async def _facts_of(
    console: Console,
    group: str,
    members: int | None,
    offsets: Mapping[TopicPartition, int],
    readers: Mapping[TopicPartition, str],
    ends: Mapping[TopicPartition, int],
) -> Facts:
    lags = await lags_of(offsets, ends, console.pause)
    partitions = offsets.keys() | readers.keys()
    statuses = [each async for each in statuses_of(console, group, partitions, offsets, lags, readers)]
    topics = {topic for topic, _ in partitions}
    return Facts(members=members, topics=len(topics), lag=sum(lags.values()), status=worst(statuses))
