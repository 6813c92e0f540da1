"""Metrics of the partitions hosted here, of requests that wait for them, and of moves between log directories.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast

from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.states import GroupState
from broker.loop.purgatory import Purgatory
from broker.metrics.metric import Kind, Metric, Sample, Samples, alone, gauges
from broker.replica.delayed_fetch import FetcherType
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.fetchers import LeaderFetcher, ReplicaFetchers
from broker.replica.isr_changes import IsrChanges
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replica.throttles import Throttles
from broker.transactions.late import LateTransactions
from config.addresses import HostAndPort

MOVES_CLIENT_ID = "ReplicaAlterLogDirs"
FETCHERS_CLIENT_ID = "Replica"

PARTITIONS_PER_TURN = 500
"""Added up before others get their turn: half a millisecond."""

Fact = Callable[[Partition], int]

PER_PARTITION: tuple[tuple[str, str, Fact], ...] = (
    (
        "UnderReplicated",
        "1 if a replica of this led partition is not in sync. Replicas that a reassignment adds do not count.",
        lambda partition: int(partition.is_under_replicated),
    ),
    (
        "UnderMinIsr",
        "1 if this led partition has fewer in-sync replicas than min.insync.replicas.",
        lambda partition: int(partition.is_under_min_isr),
    ),
    (
        "AtMinIsr",
        "1 if this led partition has as many in-sync replicas as min.insync.replicas.",
        lambda partition: int(partition.is_at_min_isr),
    ),
    (
        "InSyncReplicasCount",
        "In-sync replicas of this led partition.",
        lambda partition: len(partition.leadership.isr) if partition.is_leader else 0,
    ),
    (
        "ReplicasCount",
        "Replicas of this led partition.",
        lambda partition: len(partition.leadership.replicas) if partition.is_leader else 0,
    ),
    (
        "LastStableOffsetLag",
        "Offsets that readers of committed records may not read yet.",
        lambda partition: partition.log.high_watermark - partition.log.last_stable_offset if partition.is_leader else 0,
    ),
)

SUMS: tuple[tuple[str, str, Fact], ...] = (
    ("PartitionCount", "Partitions hosted here.", lambda _: 1),
    ("LeaderCount", "Partitions led here.", lambda partition: int(partition.is_leader)),
    (
        "UnderReplicatedPartitions",
        "Partitions led here of which a replica is not in sync. Replicas that a reassignment adds do not count.",
        lambda partition: int(partition.is_under_replicated),
    ),
    (
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
        lambda partition: int(partition.is_under_min_isr),
    ),
    (
        "AtMinIsrPartitionCount",
        "Partitions led here with as many in-sync replicas as min.insync.replicas.",
        lambda partition: int(partition.is_at_min_isr),
    ),
    (
        "ReassigningPartitions",
        "Partitions led here whose replicas a reassignment changes.",
        lambda partition: int(partition.is_leader and partition.leadership.is_reassigning),
    ),
    (
        "ProducerIdCount",
        "Idempotent producers that the partitions hosted here know.",
        lambda partition: len(partition.log.producer_state.producers),
    ),
)


def partition_metrics(replicas: ReplicaManager, late: LateTransactions) -> Iterator[Metric]:
    of_each = partial(_each, replicas)
    tags = ("topic", "partition")
    yield from gauges("kafka.cluster:type=Partition", PER_PARTITION, of_each, tags, is_per_partition=True)
    counts = (
        (
            "OfflineReplicaCount",
            "Replicas in log directories that have failed.",
            lambda: replicas.offline_count,
        ),
        (
            "PartitionsWithLateTransactionsCount",
            "Partitions with a transaction that is open for longer than any may be.",
            lambda: late.partition_count,
        ),
    )
    bean = "kafka.server:type=ReplicaManager"
    yield from gauges(bean, SUMS, partial(_sum, replicas))
    yield from gauges(bean, counts, alone)


AddressOf = Callable[[int], HostAndPort | None]


def throttle_metrics(throttles: Throttles) -> Iterator[Metric]:
    for direction, throttle in (("Leader", throttles.leader), ("Follower", throttles.follower)):
        yield Metric(
            Kind.GAUGE,
            f"kafka.server:type={direction}Replication",
            f"Bytes per second of throttled replication, as {direction.lower()}.",
            alone(lambda throttle=throttle: throttle.byte_rate),  # type: ignore[misc]
            attribute="byte-rate",
        )


def fetcher_metrics(fetchers: ReplicaFetchers, address_of: AddressOf) -> Iterator[Metric]:
    """`address_of(broker_id)` is where the fetchers of that leader connect to."""
    facts = (
        (
            "DeadThreadCount",
            "Fetchers that have ended although they have partitions.",
            lambda: fetchers.dead_count,
        ),
        ("MaxLag", "Offsets that the slowest partition is behind its leader.", lambda: fetchers.lag_max),
        (
            "FailedPartitionsCount",
            "Followed partitions that an error has stopped until the controller names their leader again.",
            lambda: fetchers.failed_count,
        ),
    )
    bean = "kafka.server:type=ReplicaFetcherManager"
    yield from gauges(bean, facts, partial(_of_client, FETCHERS_CLIENT_ID), ("clientId",))
    yield Metric(
        Kind.LOWEST_RATE,
        f"{bean},name=MinFetchRate",
        "Requests per second of the slowest fetcher, averaged over a minute.",
        lambda: _subjects(FETCHERS_CLIENT_ID, {_client_id(it): it.request_count for it in fetchers.running}),
        ("clientId",),
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
        "Offsets that the log of a followed partition is behind the high watermark of its leader.",
        partial(_lags, fetchers),
        ("clientId", "topic", "partition"),
        is_per_partition=True,
    )
    traffic: tuple[tuple[str, str, str, Callable[[LeaderFetcher], int]], ...] = (
        ("BytesPerSec", "bytes", "Bytes of records that a fetcher has received.", lambda it: it.byte_count),
        ("RequestsPerSec", "requests", "Requests of a fetcher with a response.", lambda it: it.request_count),
    )
    for name, event_type, text, fact in traffic:
        yield Metric(
            Kind.METER,
            f"kafka.server:type=FetcherStats,name={name}",
            text,
            partial(_traffic, fetchers, address_of, fact),
            ("clientId", "brokerHost", "brokerPort"),
            event_type=event_type,
        )


def _client_id(fetcher: LeaderFetcher) -> str:
    """Return the name that Kafka's monitoring knows a fetcher by."""
    return f"ReplicaFetcherThread-{fetcher.index}-{fetcher.leader_id}"


def _lags(fetchers: ReplicaFetchers) -> Iterator[Sample]:
    for fetcher in list(fetchers.running):
        for one in list(fetcher.partitions):
            topic, index = one.key
            yield (_client_id(fetcher), topic, str(index)), one.lag


def _traffic(
    fetchers: ReplicaFetchers, address_of: AddressOf, fact: Callable[[LeaderFetcher], int]
) -> Iterator[Sample]:
    for fetcher in list(fetchers.running):
        address = address_of(fetcher.leader_id)
        if address is not None:
            yield (_client_id(fetcher), address.host, str(address.port)), fact(fetcher)


def isr_metrics(changes: IsrChanges) -> Iterator[Metric]:
    facts: tuple[tuple[str, str, Callable[[], int]], ...] = (
        ("IsrShrinksPerSec", "Changes that removed replicas from an ISR.", lambda: changes.shrink_count),
        ("IsrExpandsPerSec", "Changes that added a replica to an ISR.", lambda: changes.expand_count),
        ("FailedIsrUpdatesPerSec", "Changes that the controller has not applied.", lambda: changes.failure_count),
    )
    for name, text, fact in facts:
        yield Metric(Kind.METER, f"kafka.server:type=ReplicaManager,name={name}", text, alone(fact))


NEVER_WAITING = ("RemoteFetch", "ElectLeader", "AlterAcls")
"""Kafka's purgatories for what does not wait here."""


def waiting_metrics(
    replicas: ReplicaManager, sessions: FetchSessionCache, topics: Purgatory, groups: GroupCoordinator
) -> Iterator[Metric]:
    """`topics` has the requests that wait for new topics."""

    def of_purgatories(fact: Callable[[Purgatory], int]) -> Callable[[], Samples]:
        def read() -> Iterator[Sample | None]:
            for purgatory in (*replicas.purgatories, topics):
                yield (purgatory.name,), fact(purgatory)
            # Groups have timers of their own: one for each member, and one for each rebalance that is not complete.
            for name, count in (
                ("Heartbeat", groups.inspection.count_members()),
                ("Rebalance", groups.inspection.count_in_state(GroupState.PREPARING_REBALANCE)),
            ):
                yield from (None if value is None else ((name,), value) for value in count)
            for name in NEVER_WAITING:
                yield (name,), 0

        return read

    waiting: tuple[tuple[str, str, Callable[[Purgatory], int]], ...] = (
        (
            "PurgatorySize",
            "Entries of waiting requests, one for each partition that a request waits for.",
            lambda purgatory: purgatory.watched_count,
        ),
        ("NumDelayedOperations", "Waiting requests.", lambda purgatory: purgatory.delayed_count),
    )
    tags = ("delayedOperation",)
    yield from gauges("kafka.server:type=DelayedOperationPurgatory", waiting, of_purgatories, tags)
    yield Metric(
        Kind.METER,
        "kafka.server:type=DelayedProduceMetrics,name=ExpiresPerSec",
        "Partitions of Produce requests that were not replicated in time.",
        partial(_expired_produces, replicas),
        ("topic", "partition"),
    )
    yield Metric(
        Kind.METER,
        "kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec",
        "Fetch requests whose wait has ended before there were enough records.",
        lambda: (((kind.value,), replicas.fetch_purgatory.expired_counts[kind]) for kind in FetcherType),
        ("fetcherType",),
    )
    counts = (
        ("NumIncrementalFetchSessions", "Incremental fetch sessions.", lambda: len(sessions)),
        (
            "NumIncrementalFetchPartitionsCached",
            "Partitions in incremental fetch sessions.",
            lambda: sessions.partition_count,
        ),
    )
    bean = "kafka.server:type=FetchSessionCache"
    yield from gauges(bean, counts, alone)
    yield Metric(
        Kind.METER,
        f"{bean},name=IncrementalFetchSessionEvictionsPerSec",
        "Incremental fetch sessions that were evicted to open others.",
        alone(lambda: sessions.eviction_count),
    )


def _expired_produces(replicas: ReplicaManager) -> Iterator[Sample]:
    """The sum, which has no partition, then each hosted partition that was ever late."""
    counts = replicas.produce_purgatory.expired_counts
    yield (), counts.total()
    for key, count in list(counts.items()):
        topic, index = cast(tuple[str, int], key)
        if replicas.find(topic, index) is not None:
            yield (topic, str(index)), count


def move_metrics(moves: DirectoryMoves) -> Iterator[Metric]:
    facts = (
        ("MaxLag", "Offsets that the slowest move between log directories is behind.", lambda: moves.lag_max),
        ("FailedPartitionsCount", "Moves that an error has stopped.", lambda: moves.failed_count),
        ("DeadThreadCount", "0: a move that an error stops is counted by FailedPartitionsCount.", lambda: 0),
    )
    bean = "kafka.server:type=ReplicaAlterLogDirsManager"
    yield from gauges(bean, facts, partial(_of_client, MOVES_CLIENT_ID), ("clientId",))
    yield Metric(
        Kind.LOWEST_RATE,
        f"{bean},name=MinFetchRate",
        "Pieces that the slowest move copies per second, averaged over a minute.",
        lambda: _subjects(MOVES_CLIENT_ID, moves.piece_counts()),
        ("clientId",),
    )
    yield Metric(
        Kind.RATE,
        "kafka.server:type=AlterLogDirsReplication",
        "Bytes that moves between log directories copy per second.",
        alone(lambda: moves.moved_size),
        attribute="byte-rate",
    )


def _subjects(client_id: str, counts: Mapping[str, int]) -> list[Sample]:
    """Return the counts for a lowest rate, which is 0 if there are none."""
    return [((client_id, subject), count) for subject, count in counts.items()] or [((client_id, ""), 0)]


def _of_client(client_id: str, fact: Callable[[], int]) -> Callable[[], list[Sample]]:
    return lambda: [((client_id,), fact())]


def _each(replicas: ReplicaManager, fact: Fact) -> Callable[[], Iterator[Sample]]:
    return lambda: (((it.topic, str(it.partition)), fact(it)) for it in replicas.hosted())


def _sum(replicas: ReplicaManager, fact: Fact) -> Callable[[], Iterator[Sample | None]]:
    def read() -> Iterator[Sample | None]:
        total = 0
        for number, partition in enumerate(replicas.hosted()):
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                yield None
            total += fact(partition)
        yield (), total

    return read
