"""Builds the parts that host the partitions of a broker, and those that serve producers and consumers from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.foundation import Foundation
from broker.network.outgoing import Peers
from broker.network.unsent_responses import UnsentResponses
from broker.replica.appends import Appends
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.fetch_news import FetchNews
from broker.replica.fetch_service import FetchService
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.fetchers import FetcherSettings, ReplicaFetchers
from broker.replica.isr_changes import Ask, IsrChanges
from broker.replica.log_cleaner import LogCleaner, Worker
from broker.replica.machine.fetcher import FetchTerms, FetchVersions
from broker.replica.machine.isr import IsrChange
from broker.replica.manager import ReplicaManager
from broker.replica.own_appends import OwnAppends
from broker.replica.partition import Effects, IsrResponse, Partition, ReplicaRules
from broker.replica.throttles import Direction, Throttle, Throttles, Windows
from broker.replica.transaction_verification import CoordinatorLink, Guards, TransactionVerifier
from config import broker_properties as properties
from config.broker import BrokerConfig
from config.definition import Property
from config.log_config import LogConfig
from protocol.errors import KafkaError
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.disk.files import Files

if TYPE_CHECKING:
    from broker.replica.near_reads import NearReads


@dataclass(frozen=True, slots=True)
class HostedReplicas:
    """The parts that host partitions, and keep them in sync with those of other brokers."""

    manager: ReplicaManager
    assigned: AssignedReplicas
    fetchers: ReplicaFetchers
    isr_changes: IsrChanges
    directory_moves: DirectoryMoves
    own_appends: OwnAppends
    guards: Guards


@dataclass(frozen=True, slots=True)
class ClientService:
    """The parts that serve producers and consumers."""

    appends: Appends
    verifier: TransactionVerifier
    fetch_sessions: FetchSessionCache
    fetch_service: FetchService


def host_replicas(
    on: Foundation,
    peers: Peers,
    *,
    topic_config: Callable[[str], LogConfig],
    is_alive: Callable[[int], bool],
    alter_partition: Ask,
    on_not_opened: Callable[[], None],
) -> HostedReplicas:
    """Build the parts that host partitions.

    `topic_config(topic)` returns the effective configuration of a topic, `is_alive(broker_id)` whether a broker is in
    the metadata. `alter_partition` requests changes of ISRs from the controller. `on_not_opened` is called when a
    replica could not be opened now.
    """
    config, monotonic_ms = on.config, on.clock.monotonic_ms

    def responded(partition: Partition, change: IsrChange, response: IsrResponse) -> Effects:
        # The manager submits changes, and the responses go back to it: one of both has to exist first.
        return manager.isr_responded(partition, change, response)

    isr_changes = IsrChanges(on.broker_id, on.broker_epoch, alter_partition, responded)
    manager = ReplicaManager(
        on.log_manager,
        on.timer,
        FetchNews(on.call_soon),
        _throttles(on),
        topic_config=topic_config,
        monotonic_ms=monotonic_ms,
        on_isr_change=isr_changes.submit,
        produce_purge_interval=config[properties.PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS],
        fetch_purge_interval=config[properties.FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS],
        delete_records_purge_interval=config[properties.DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS],
        postpone=on.call_soon,
    )
    fetchers = ReplicaFetchers(
        on.broker_id,
        on.broker_epoch,
        peers,
        manager,
        on.clock,
        on.sliced_work,
        on.in_thread,
        _fetcher_settings(config),
        lambda: config[properties.NUM_REPLICA_FETCHERS],
    )
    directory_moves = DirectoryMoves(
        on.log_manager,
        manager,
        on.clock,
        on.new_threads,
        threads=config[properties.NUM_REPLICA_ALTER_LOG_DIRS_THREADS] or len(config.log_dirs),
        bytes_per_second_max=lambda: config[properties.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND],
    )
    assigned = AssignedReplicas(
        on.broker_id,
        on.log_manager,
        manager,
        fetchers,
        ReplicaRules(config[properties.REPLICA_LAG_TIME_MAX_MS], is_alive),
        topic_config=topic_config,
        on_opened=directory_moves.resume,
        on_not_opened=on_not_opened,
    )
    return HostedReplicas(
        manager,
        assigned,
        fetchers,
        isr_changes,
        directory_moves,
        OwnAppends(manager, on.clock, on.in_thread),
        Guards(lambda: config[properties.PRODUCER_ID_EXPIRATION_MS], manager.leading_since),
    )


def serve_clients(
    on: Foundation,
    replicas: HostedReplicas,
    coordinators: CoordinatorLink,
    unsent_responses: UnsentResponses,
    *,
    why_not_hosted: Callable[[str, int], KafkaError],
    internal_topics: frozenset[str],
    near_reads: NearReads | None,
) -> ClientService:
    """Build the parts that serve producers and consumers.

    `coordinators` are those of transactions. `why_not_hosted(topic, partition)` returns the error for a partition of
    which no replica is here. Clients must not produce to `internal_topics`. With `near_reads`, consumers are sent to
    near followers.
    """
    config, manager = on.config, replicas.manager
    verifier = TransactionVerifier(
        coordinators,
        replicas.guards,
        lambda: config[properties.TRANSACTION_PARTITION_VERIFICATION_ENABLE],
        on.clock,
    )
    fetch_sessions = FetchSessionCache(
        config[properties.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
        config[properties.MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS],
        lambda: on.random.randrange(1, 2**31),
        manager.fetch_news,
    )
    return ClientService(
        Appends(
            manager,
            verifier,
            on.cpu_pool,
            on.clock,
            why_not_hosted=why_not_hosted,
            in_thread=on.in_thread,
            internal_topics=internal_topics,
        ),
        verifier,
        fetch_sessions,
        FetchService(
            manager,
            fetch_sessions,
            unsent_responses,
            on.sliced_work,
            on.cpu_pool,
            on.clock,
            in_thread=on.in_thread,
            near_reads=near_reads,
        ),
    )


def clean_logs(on: Foundation, files: Files, new_worker: Callable[[], Worker]) -> LogCleaner:
    """Return the log cleaner, which is not started yet. The logs are loaded before."""
    config = on.config
    cleaning = LogCleaning(on.log_manager, files, CleanerSettings.of(config))
    cleaning.load()
    return LogCleaner(
        cleaning,
        new_worker,
        on.new_threads,
        on.background,
        on.clock,
        on.sliced_work,
        count=config[properties.LOG_CLEANER_THREADS],
        backoff_ms=config[properties.LOG_CLEANER_BACKOFF_MS],
    )


def _throttles(on: Foundation) -> Throttles:
    config = on.config
    windows = Windows(
        config[properties.REPLICATION_QUOTA_WINDOW_NUM], config[properties.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS] * 1000
    )

    def throttle(direction: Direction, rate: Property[int]) -> Throttle:
        return Throttle(direction, on.broker_id, lambda: config[rate], windows, on.clock.monotonic_ms)

    return Throttles(
        throttle(Direction.LEADER, properties.LEADER_REPLICATION_THROTTLED_RATE),
        throttle(Direction.FOLLOWER, properties.FOLLOWER_REPLICATION_THROTTLED_RATE),
    )


def _fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    protocol = config.inter_broker_protocol
    return FetcherSettings(
        FetchTerms(
            config[properties.REPLICA_FETCH_WAIT_MAX_MS],
            config[properties.REPLICA_FETCH_MIN_BYTES],
            config[properties.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            config[properties.REPLICA_FETCH_MAX_BYTES],
        ),
        FetchVersions(
            protocol.fetch,
            protocol.list_offsets,
            protocol.offset_for_leader_epoch,
            protocol.compares_epochs_by_fetch,
        ),
        backoff_ms=config[properties.REPLICA_FETCH_BACKOFF_MS],
        timeout_ms=config[properties.REPLICA_SOCKET_TIMEOUT_MS],
    )
