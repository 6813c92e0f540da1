"""The cluster for the console: brokers, controller, log directories, and partitions by leader and replica.

Owns what the overview and the pages of brokers and partitions contain. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal, TypedDict

from base.compiled import form
from base.pause import Pause
from broker.cluster.metadata_cache import NO_LEADER
from broker.console.cluster_client import Responses
from broker.console.cluster_rates import total_elsewhere
from broker.console.console import SOON_S, Console
from broker.console.figures import rate
from broker.console.machine import Machine, machine
from broker.console.topics import STEP_SIZE, Unavailable, state_of, unavailable_of
from milena_broker import __version__
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

PARTITIONS_SHOWN_MAX = 200
TALLY_MS = 2_000


class LogDir(TypedDict):
    """One log directory of a broker. Bytes of the volume are -1 if they are not known."""

    path: str
    error: str
    size_bytes: int
    total_bytes: int
    usable_bytes: int
    replicas: int


class BrokerRow(TypedDict):
    """One broker. `log_dirs` is empty if it did not respond, and null while those of all brokers are collected."""

    id: int
    host: str
    port: int
    listeners: dict[str, str]
    rack: str | None
    is_controller: bool
    is_alive: bool
    is_this: bool
    leaders: int
    replicas: int
    preferred_leaders: int
    out_of_sync: int
    log_dirs: list[LogDir] | None


class ClusterRates(TypedDict):
    """Rates of the broker that was asked, per second over the last 10 s, and how busy its event loop is.

    `cluster_messages_in` adds the growth of the partitions that other brokers lead, in which markers of transactions
    count as records. It is null until these were sampled twice, and if there are too many.
    """

    messages_in: float
    cluster_messages_in: float | None
    bytes_in: float
    bytes_out: float
    requests: float
    loop_idle_percent: float
    loop_lag_p99_ms: float


class Overview(TypedDict):
    """The state of the cluster."""

    cluster_id: str
    broker_id: int
    version: str
    hot_loops: str
    controller_id: int
    controller_epoch: int | None
    state: str
    started_ms: int
    now_ms: int
    topics: int
    partitions: int
    replicas: int
    under_replicated: int
    under_min_isr: int
    offline: int
    not_preferred: int
    rates: ClusterRates
    machine: Machine
    brokers: list[BrokerRow]
    is_writing_enabled: bool
    has_authorizer: bool
    unavailable: list[Unavailable]


class BadPartition(TypedDict):
    """A partition that is not as it should be."""

    topic: str
    partition: int
    state: Literal["ok", "under-replicated", "offline", "not preferred"]
    leader: int
    replicas: list[int]
    isr: list[int]


class Reassignment(TypedDict):
    """A partition that moves. `caught_up` counts the adding replicas that are in sync.

    `copied_bytes` is in the logs of the adding replicas, of `total_bytes`; null if the leader or none of them responds.
    """

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    caught_up: int
    copied_bytes: int | None
    total_bytes: int | None


class BrokerShare(TypedDict):
    """How many partitions a broker has. Skew is the difference to the mean in percent."""

    broker: int
    leaders: int
    replicas: int
    leader_skew_percent: float
    replica_skew_percent: float


class Partitions(TypedDict):
    """How the partitions are spread, and those that are not as they should be (`bad` is cut at 200)."""

    shares: list[BrokerShare]
    bad_count: int
    bad: list[BadPartition]
    reassignments: list[Reassignment]
    reassignments_problem: str


class _Tally:
    """Counts over all partitions."""

    def __init__(self) -> None:
        self.topics = self.partitions = self.replicas = 0
        self.by_state = {"ok": 0, "under-replicated": 0, "offline": 0, "not preferred": 0}
        self.under_min_isr = 0
        self.controller_epoch: int | None = None
        """The newest epoch of a controller in the metadata of partitions."""
        self.leaders: dict[int, int] = {}
        self.hosted: dict[int, int] = {}
        self.preferred: dict[int, int] = {}
        self.out_of_sync: dict[int, int] = {}
        self.bad: list[BadPartition] = []
        self.bad_count = 0


async def overview(console: Console) -> Overview:
    """Return the state of the cluster."""
    services, measures = console.services, console.measures
    metadata, clock = services.metadata_cache, services.clock
    tally = await _recent_tally(console)
    logs, elsewhere = await asyncio.gather(console.log_dirs.soon(), _total_elsewhere_soon(console))
    lag = measures.loop_lag()
    return Overview(
        cluster_id=metadata.cluster_id,
        broker_id=services.broker_id,
        version=__version__,
        hot_loops=form(),
        controller_id=metadata.controller_id,
        controller_epoch=services.controller.epoch if services.controller.is_active else tally.controller_epoch,
        state=measures.state().name,
        started_ms=measures.started_ms,
        now_ms=clock.now_ms(),
        topics=tally.topics,
        partitions=tally.partitions,
        replicas=tally.replicas,
        under_replicated=tally.by_state["under-replicated"],
        under_min_isr=tally.under_min_isr,
        offline=tally.by_state["offline"],
        not_preferred=tally.by_state["not preferred"],
        rates=ClusterRates(
            messages_in=rate(console, "messages_in"),
            cluster_messages_in=None if elsewhere is None else rate(console, "messages_in") + elsewhere,
            bytes_in=rate(console, "bytes_in"),
            bytes_out=rate(console, "bytes_out"),
            requests=rate(console, "requests"),
            loop_idle_percent=round(measures.loop_idle_percent(), 1),
            loop_lag_p99_ms=round(lag.quantiles["0.99"] * 1000, 2),
        ),
        machine=machine(measures.host.before, measures.host.last),
        brokers=await _brokers(console, tally, logs),
        is_writing_enabled=console.is_writing_enabled,
        has_authorizer=services.authorizer.is_active,
        unavailable=[] if logs is None else unavailable_of(logs),
    )


async def _total_elsewhere_soon(console: Console) -> float | None:
    """Return the growth of what other brokers lead; None if they do not respond soon."""
    try:
        return await asyncio.wait_for(total_elsewhere(console), SOON_S)
    except TimeoutError:
        return None


async def partitions(console: Console) -> Partitions:
    """Return the spread of the partitions, bad ones, and moves in progress."""
    services = console.services
    tally = await _recent_tally(console)
    brokers = sorted(services.metadata_cache.brokers.keys() | tally.hosted.keys())
    leaders_mean = sum(tally.leaders.values()) / max(len(brokers), 1)
    replicas_mean = tally.replicas / max(len(brokers), 1)
    moves, problem = await _reassignments(console)
    return Partitions(
        shares=[
            BrokerShare(
                broker=each,
                leaders=tally.leaders.get(each, 0),
                replicas=tally.hosted.get(each, 0),
                leader_skew_percent=_skew(tally.leaders.get(each, 0), leaders_mean),
                replica_skew_percent=_skew(tally.hosted.get(each, 0), replicas_mean),
            )
            for each in brokers
        ],
        bad_count=tally.bad_count,
        bad=tally.bad,
        reassignments=moves,
        reassignments_problem=problem,
    )


async def _reassignments(console: Console) -> tuple[list[Reassignment], str]:
    metadata = console.services.metadata_cache
    controller = metadata.controller_id
    responses = await console.client.ask_each({controller: ListPartitionReassignmentsRequest(topics=None)})
    response = responses.by_broker.get(controller)
    if response is None:
        return [], responses.unavailable.get(controller, "the controller is not known")
    if response.error_code:
        return [], ErrorCode(response.error_code).name
    listed = [(topic.name, one) for topic in response.topics for one in topic.partitions][:PARTITIONS_SHOWN_MAX]
    sizes = await _log_sizes(
        console,
        {
            (broker, name, one.partition_index)
            for name, one in listed
            for broker in (metadata.leader_of(name, one.partition_index), *one.adding_replicas)
        },
    )
    moves = []
    for name, one in listed:
        state = metadata.topics.get(name)
        known = None if state is None else state.partitions.get(one.partition_index)
        in_sync = set(() if known is None else known.isr)
        whole = sizes.get((metadata.leader_of(name, one.partition_index), name, one.partition_index))
        copies = [sizes.get((broker, name, one.partition_index)) for broker in one.adding_replicas]
        is_known = whole is not None and any(size is not None for size in copies)
        moves.append(
            Reassignment(
                topic=name,
                partition=one.partition_index,
                replicas=list(one.replicas),
                adding=list(one.adding_replicas),
                removing=list(one.removing_replicas),
                caught_up=sum(each in in_sync for each in one.adding_replicas),
                copied_bytes=sum(min(size or 0, whole or 0) for size in copies) if is_known else None,
                total_bytes=(whole or 0) * len(copies) if is_known else None,
            )
        )
    return moves, ""


async def _log_sizes(console: Console, wanted: Iterable[tuple[int, str, int]]) -> dict[tuple[int, str, int], int]:
    """Return the sizes of logs by broker, topic and partition; those of brokers that do not respond are missing."""
    topics: dict[int, dict[str, list[int]]] = {}
    for broker, name, partition in wanted:
        if broker != NO_LEADER:
            topics.setdefault(broker, {}).setdefault(name, []).append(partition)
    responses = await console.client.ask_each(
        {
            broker: DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=name, partitions=each) for name, each in named.items()]
            )
            for broker, named in topics.items()
        }
    )
    return {
        (broker, topic.name, one.partition_index): one.partition_size
        for broker, response in responses.by_broker.items()
        for directory in response.results
        for topic in directory.topics
        for one in topic.partitions
        if not one.is_future_key
    }


async def _recent_tally(console: Console) -> _Tally:
    """Return counts that are at most `TALLY_MS` old: with 40,000 partitions they take a quarter of a second."""
    return await console.remembered("tally", TALLY_MS, lambda: _tally(console))


async def _tally(console: Console) -> _Tally:
    pause = console.pause
    tally = _Tally()
    services = console.services
    steps = 0
    for topic in list(services.metadata_cache.topics.values()):
        if not console.may_describe(topic.name):
            continue
        tally.topics += 1
        min_isr = services.topic_configs.effective(topic.name).min_insync_replicas
        for number, one in list(topic.partitions.items()):
            tally.partitions += 1
            tally.controller_epoch = max(tally.controller_epoch or 0, one.controller_epoch)
            tally.replicas += len(one.replicas)
            state = state_of(one)
            tally.by_state[state] += 1
            tally.under_min_isr += len(one.isr) < min(min_isr, len(one.replicas))
            tally.leaders[one.leader] = tally.leaders.get(one.leader, 0) + 1
            tally.preferred[one.replicas[0]] = tally.preferred.get(one.replicas[0], 0) + 1
            for each in one.replicas:
                tally.hosted[each] = tally.hosted.get(each, 0) + 1
                if each not in one.isr:
                    tally.out_of_sync[each] = tally.out_of_sync.get(each, 0) + 1
            if state != "ok":
                tally.bad_count += 1
                if len(tally.bad) < PARTITIONS_SHOWN_MAX:
                    tally.bad.append(
                        BadPartition(
                            topic=topic.name,
                            partition=number,
                            state=state,
                            leader=one.leader,
                            replicas=list(one.replicas),
                            isr=list(one.isr),
                        )
                    )
        steps += len(topic.partitions)
        if steps >= STEP_SIZE:
            steps = 0
            await pause()
    tally.leaders.pop(-1, None)
    return tally


async def _brokers(console: Console, tally: _Tally, logs: Responses[Any] | None) -> list[BrokerRow]:
    pause = console.pause
    services = console.services
    metadata = services.metadata_cache
    listener = services.config.inter_broker_listener.name
    rows = []
    for broker in sorted(metadata.brokers.keys() | tally.hosted.keys() | {services.broker_id}):
        node = metadata.brokers.get(broker)
        endpoints = {} if node is None else node.endpoints
        host, port = endpoints.get(listener, next(iter(endpoints.values()), ("", -1)))
        response = None if logs is None else logs.by_broker.get(broker)
        directories = [] if response is None else await _log_dirs(response, pause)
        rows.append(
            BrokerRow(
                id=broker,
                host=host,
                port=port,
                listeners={name: f"{address[0]}:{address[1]}" for name, address in endpoints.items()},
                rack=None if node is None else node.rack,
                is_controller=broker == metadata.controller_id,
                is_alive=node is not None,
                is_this=broker == services.broker_id,
                leaders=tally.leaders.get(broker, 0),
                replicas=tally.hosted.get(broker, 0),
                preferred_leaders=tally.preferred.get(broker, 0),
                out_of_sync=tally.out_of_sync.get(broker, 0),
                log_dirs=None if logs is None else directories,
            )
        )
    return rows


async def _log_dirs(response: Any, pause: Pause) -> list[LogDir]:
    rows = []
    for directory in response.results:
        size = replicas = 0
        for topic in directory.topics:
            replicas += len(topic.partitions)
            size += sum(one.partition_size for one in topic.partitions)
            if replicas % STEP_SIZE < len(topic.partitions):
                await pause()
        rows.append(
            LogDir(
                path=directory.log_dir,
                error=ErrorCode(directory.error_code).name if directory.error_code else "",
                size_bytes=size,
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
                replicas=replicas,
            )
        )
    return rows


def _skew(count: int, mean: float) -> float:
    return round(100 * (count - mean) / mean, 1) if mean else 0.0
