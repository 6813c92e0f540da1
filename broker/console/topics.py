"""Topics for the console: the list with sizes and rates, and the partitions of one topic.

Owns sorting, search and paging of topics. Must not know HTTP.

Names, leaders and replicas come from the metadata cache. Offsets and sizes of the topics of one page are asked from the
brokers that have them; only a list that is sorted by size needs those of all topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import TopicState
from broker.console import cluster_rates
from broker.console.cluster_client import EARLIEST, LATEST, Responses
from broker.console.console import Console
from broker.console.group_lags import TopicGroup, groups_by_topic
from broker.console.problem import not_found
from broker.security.acls import Operation, ResourceType
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.update_metadata import UpdateMetadataPartitionState

STEP_SIZE = 200
"""Partitions that are inspected in one step of a slice."""

Sort = Literal["name", "partitions", "size", "messages_in", "bytes_in", "bytes_out"]
Order = Literal["ascending", "descending"]


class Unavailable(TypedDict):
    """A broker that did not respond: what only it knows is missing."""

    broker: int
    reason: str


class TopicRow(TypedDict):
    """One topic of the list. Rates are of the broker that was asked, per second over the last 10 s.

    `cluster_messages_in` adds the growth of the partitions that other brokers lead, in which markers of transactions
    count as records. It is null until these were sampled twice.
    `groups` is null while the offsets of all groups are being collected.
    """

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    size_bytes: int | None
    offsets: int | None
    messages_in: float
    cluster_messages_in: float | None
    bytes_in: float
    bytes_out: float
    overrides: int
    groups: list[TopicGroup] | None


class TopicPage(TypedDict):
    """One page of topics; `total` counts all that match."""

    total: int
    topics: list[TopicRow]
    unavailable: list[Unavailable]


class ReplicaSize(TypedDict):
    """The log of one replica."""

    broker: int
    log_dir: str
    size_bytes: int
    offset_lag: int
    is_future: bool


class PartitionRow(TypedDict):
    """One partition. Offsets are decimal strings; None while the leader does not respond."""

    partition: int
    leader: int
    preferred_leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    start_offset: str | None
    end_offset: str | None
    logs: list[ReplicaSize]
    state: Literal["ok", "under-replicated", "offline", "not preferred"]


class TopicDetail(TypedDict):
    """One topic with a page of its partitions."""

    name: str
    topic_id: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    overrides: dict[str, str]
    partitions: list[PartitionRow]
    unavailable: list[Unavailable]


async def topics(
    console: Console, *, search: str, sort: Sort, order: Order, offset: int, limit: int, internal: bool
) -> TopicPage:
    """Return a page of the topics whose names contain `search`."""
    pause = console.pause
    services = console.services
    names = await _matching(console, search.lower(), internal=internal)
    sizes: dict[str, int] = {}
    if sort == "name":
        names.sort(reverse=order == "descending")
    else:
        names.sort()
        if sort == "size":
            responses = await console.log_dirs.get()
            sizes = await _sizes_of_all(responses, pause)
        elif sort == "messages_in":
            await cluster_rates.sample_all(console)
        keys = await _sort_keys(console, names, sort, sizes)
        names.sort(key=keys.__getitem__, reverse=order == "descending")
    page = names[offset : offset + limit]
    states = [state for name in page if (state := services.metadata_cache.topics.get(name)) is not None]
    rows, unavailable = await _rows(console, states)
    return TopicPage(total=len(names), topics=rows, unavailable=unavailable)


async def topic(console: Console, *, name: str, offset: int, limit: int) -> TopicDetail:
    """Return one topic. Raises ProblemError."""
    state = require_topic(console, name)
    numbers = sorted(state.partitions)[offset : offset + limit]
    wanted = [(name, number) for number in numbers]
    starts = await console.client.offsets(wanted, EARLIEST)
    ends = await console.client.offsets(wanted, LATEST)
    logs = await _log_dirs_of(console, [state], numbers)
    sizes: dict[int, list[ReplicaSize]] = {}
    for broker, response in sorted(logs.by_broker.items()):
        for directory in response.results:
            for each in directory.topics:
                for one in each.partitions:
                    sizes.setdefault(one.partition_index, []).append(
                        ReplicaSize(
                            broker=broker,
                            log_dir=directory.log_dir,
                            size_bytes=one.partition_size,
                            offset_lag=one.offset_lag,
                            is_future=one.is_future_key,
                        )
                    )
    rows = []
    for number in numbers:
        partition = state.partitions.get(number)
        if partition is None:
            continue
        start, end = starts.get((name, number)), ends.get((name, number))
        rows.append(
            PartitionRow(
                partition=number,
                leader=partition.leader,
                preferred_leader=partition.replicas[0],
                leader_epoch=partition.leader_epoch,
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                offline_replicas=list(partition.offline_replicas),
                start_offset=None if start is None else str(start.offset),
                end_offset=None if end is None else str(end.offset),
                logs=sizes.get(number, []),
                state=state_of(partition),
            )
        )
    return TopicDetail(
        name=name,
        topic_id=str(state.topic_id),
        is_internal=name in INTERNAL_TOPICS,
        partition_count=len(state.partitions),
        replication_factor=_replication_factor(state),
        overrides=dict(_overrides(console, name)),
        partitions=rows,
        unavailable=unavailable_of(logs),
    )


def require_topic(console: Console, name: str) -> TopicState:
    """Return a topic that the console's principal may know of. Raises ProblemError."""
    state = console.services.metadata_cache.topics.get(name)
    if state is None or not console.may_describe(name):
        raise not_found(f"topic {name!r} does not exist")
    return state


def state_of(partition: UpdateMetadataPartitionState) -> Literal["ok", "under-replicated", "offline", "not preferred"]:
    """Return the worst that can be said about a partition."""
    if partition.leader < 0:
        return "offline"
    if len(partition.isr) < len(partition.replicas):
        return "under-replicated"
    return "ok" if partition.leader == partition.replicas[0] else "not preferred"


def unavailable_of(responses: Responses[Any]) -> list[Unavailable]:
    return [Unavailable(broker=broker, reason=reason) for broker, reason in sorted(responses.unavailable.items())]


async def _matching(console: Console, search: str, *, internal: bool) -> list[str]:
    pause = console.pause
    names = []
    for number, name in enumerate(list(console.services.metadata_cache.topics)):
        if number and number % STEP_SIZE == 0:
            await pause()
        is_shown = internal or name not in INTERNAL_TOPICS
        if is_shown and search in name.lower() and console.may_describe(name):
            names.append(name)
    return names


async def _sort_keys(console: Console, names: list[str], sort: Sort, sizes: dict[str, int]) -> dict[str, float]:
    """Return what the list is sorted by. Without a rate of the cluster, that of this broker counts."""
    pause = console.pause
    cache, rates = console.services.metadata_cache.topics, console.rates
    keys: dict[str, float] = {}
    for number, name in enumerate(names):
        if number and number % STEP_SIZE == 0:
            await pause()
        state = cache.get(name)
        if sort == "partitions":
            keys[name] = 0 if state is None else len(state.partitions)
        elif sort == "size":
            keys[name] = sizes.get(name, 0)
        else:
            keys[name] = rates.rate_of(name)[("messages_in", "bytes_in", "bytes_out").index(sort)]
            if sort == "messages_in" and state is not None:
                of_cluster = cluster_rates.records_in(console, state)
                keys[name] = keys[name] if of_cluster is None else of_cluster
    return keys


async def _sizes_of_all(responses: Responses[Any], pause: Pause) -> dict[str, int]:
    sizes: dict[str, int] = {}
    count = 0
    for response in responses.by_broker.values():
        for directory in response.results:
            for each in directory.topics:
                count += len(each.partitions)
                sizes[each.name] = sizes.get(each.name, 0) + sum(one.partition_size for one in each.partitions)
                if count >= STEP_SIZE:
                    count = 0
                    await pause()
    return sizes


async def _rows(console: Console, states: list[TopicState]) -> tuple[list[TopicRow], list[Unavailable]]:
    pause = console.pause
    partitions = [(state.name, number) for state in states for number in state.partitions]
    starts, ends, logs = await asyncio.gather(
        console.client.offsets(partitions, EARLIEST),
        cluster_rates.end_offsets(console, states, partitions),
        _log_dirs_of(console, states),
    )
    sizes = await _sizes_of_all(logs, pause)
    readers = await _readers(console, states, {each: found.offset for each, found in ends.items()})
    rows = []
    for state in states:
        spans = [
            ends[each].offset - starts[each].offset
            for number in state.partitions
            if (each := (state.name, number)) in starts and each in ends
        ]
        messages_in, bytes_in, bytes_out = console.rates.rate_of(state.name)
        rows.append(
            TopicRow(
                name=state.name,
                is_internal=state.name in INTERNAL_TOPICS,
                partitions=len(state.partitions),
                replication_factor=_replication_factor(state),
                under_replicated=sum(len(one.isr) < len(one.replicas) for one in state.partitions.values()),
                offline=sum(one.leader < 0 for one in state.partitions.values()),
                size_bytes=sizes.get(state.name),
                offsets=sum(spans) if len(spans) == len(state.partitions) else None,
                messages_in=messages_in,
                cluster_messages_in=cluster_rates.records_in(console, state),
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                overrides=len(_overrides(console, state.name)),
                groups=None if readers is None else readers.get(state.name, []),
            )
        )
    return rows, unavailable_of(logs)


async def _readers(
    console: Console, states: list[TopicState], ends: dict[TopicPartition, int]
) -> dict[str, list[TopicGroup]] | None:
    """Return the groups of each topic, or None while their offsets are being collected for the first time."""
    index = await console.group_offsets.soon()
    if index is None:
        return None
    names = {state.name for state in states}
    return await groups_by_topic(index, names, ends, console.pause)


async def _log_dirs_of(
    console: Console, states: Iterable[TopicState], numbers: Iterable[int] | None = None
) -> Responses[Any]:
    """Ask each broker for the logs of the partitions that it has a replica of."""
    wanted: dict[int, dict[str, list[int]]] = {}
    shown = None if numbers is None else set(numbers)
    for state in states:
        for number, partition in state.partitions.items():
            for broker in partition.replicas if shown is None or number in shown else ():
                wanted.setdefault(broker, {}).setdefault(state.name, []).append(number)
    return await console.client.ask_each(
        {
            broker: DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics.items()]
            )
            for broker, topics in wanted.items()
        }
    )


def _overrides(console: Console, name: str) -> Mapping[str, str]:
    """Return the settings of a topic that the console's principal may see."""
    if not console.client.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return {}
    return console.services.topic_configs.overrides(name)


def _replication_factor(state: TopicState) -> int:
    return max((len(one.replicas) for one in state.partitions.values()), default=0)
