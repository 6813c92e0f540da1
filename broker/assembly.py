"""Builds the parts of a broker and connects them.

Owns: the wiring, nothing else. Nothing here waits, starts or touches a disk; `broker/server.py` does that in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from base.dataclass import dataclass
from broker.cluster.control_channels import ControlChannels
from broker.cluster.control_requests import ControlDoor
from broker.cluster.controller_link import ControllerLink
from broker.cluster.internal_topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.not_hosted import why_not_hosted
from broker.cluster.peers import ADD_PARTITIONS, BrokerPeers, Link
from broker.cluster.topic_configs import TopicConfigs
from broker.cluster.topics import TopicAdministration
from broker.coordination.led_partitions import LedPartitions
from broker.coordination.producer_ids import ProducerIds
from broker.coordination.replicated_log import ReplicatedLog
from broker.environment import Environment
from broker.groups.coordinator import GroupCoordinator
from broker.groups.legacy_offsets import LegacyOffsets
from broker.groups.settings import CoordinatorSettings
from broker.loop.cpu_pool import CpuPool
from broker.loop.timer import Timer
from broker.network.outgoing import LinkSecurity, OpenTransport, SetupTimeouts, encrypted, plaintext
from broker.network.unsent_responses import UnsentResponses
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.enforcement import EnforcedQuotas
from broker.replica.appends import Appends
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.fetch_news import FetchNews
from broker.replica.fetch_service import FetchService
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.fetchers import ReplicaFetchers
from broker.replica.isr_changes import IsrChanges
from broker.replica.manager import ReplicaManager
from broker.replica.own_appends import OwnAppends
from broker.replica.partition import ReplicaRules
from broker.replica.transaction_verification import Guards, TransactionVerifier
from broker.requests.release_gate import apis_of_release
from broker.requests.routes import TABLE
from broker.requests.services import Services
from broker.security.acl_store import AclStore
from broker.security.delegation_tokens import DelegationTokens
from broker.security.scram_credentials import ScramCredentials
from broker.settings.component_settings import (
    controller_settings,
    fetcher_settings,
    quota_defaults,
    quota_windows,
)
from broker.settings.config_changes import ConfigChanges
from broker.settings.listener_security import delegation_token_secret, delegation_token_times, new_authorizer
from broker.settings.policies import Policies
from broker.settings.quota_callback import quota_callback
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.late import LateTransactions
from broker.transactions.links import CoordinatorLinks
from broker.transactions.marker_channels import MarkerChannels
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import Marker, MarkerSender
from broker.transactions.settings import TransactionSettings
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.controller import Controller
from controller.entity_configs import overrides_of_topics
from controller.state_store import StateStore
from controller.topic_nodes import TopicNodes, read_partition_counts
from protocol.api import APIS, Api
from protocol.releases import release_named
from storage.manager.log_manager import LogManager

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Foundation:
    """The identity of this broker and the objects that all parts use; they exist before the first part."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    environment: Environment
    timer: Timer
    store: StateStore
    acl_store: StateStore
    """The same, or that of the authorizer's own ensemble."""
    log_manager: LogManager
    blocking: Executor
    cpu_pool: CpuPool
    unsent_responses: UnsentResponses
    link_security: LinkSecurity

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work`, which may wait for a disk, in a thread."""
        return asyncio.get_running_loop().run_in_executor(self.blocking, work)


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """The server's callbacks for settings that change while the broker runs."""

    topic: Callable[[str], Awaitable[None]]
    broker: Callable[[], Awaitable[None]]
    check_broker: Callable[[BrokerConfig], None]
    """Raises KafkaError for a configuration that cannot be put into effect."""


def assemble(on: Foundation, changed: Reconfiguration, broker_epoch: Callable[[], int]) -> Services:
    """Build all parts of one broker. `broker_epoch()` returns -1 before the broker is registered."""
    config, timer = on.config, on.timer
    clock, random = on.environment.clock, on.environment.random
    sliced_work = on.environment.new_sliced_work(clock)
    policies = Policies(config)
    metadata = MetadataCache(on.cluster_id)
    topic_configs = TopicConfigs(config, partial(overrides_of_topics, on.store))
    fetch_news = FetchNews(_call_soon)
    replica_manager = ReplicaManager(
        on.broker_id,
        on.log_manager,
        timer,
        topic_config=topic_configs.effective,
        produce_purge_interval=config[properties.PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS],
        fetch_purge_interval=config[properties.FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS],
        delete_records_purge_interval=config[properties.DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS],
        postpone=_call_soon,
        fetch_news=fetch_news,
        rules=ReplicaRules(config[properties.REPLICA_LAG_TIME_MAX_MS], lambda broker_id: broker_id in metadata.brokers),
        monotonic_ms=clock.monotonic_ms,
    )
    directory_moves = DirectoryMoves(
        on.log_manager,
        replica_manager,
        clock,
        on.environment.new_threads,
        threads=config[properties.NUM_REPLICA_ALTER_LOG_DIRS_THREADS] or len(config.log_dirs),
        bytes_per_second_max=lambda: config[properties.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND],
    )
    replica_manager.on_opened = directory_moves.resume
    door = ControlDoor(
        clock,
        metadata,
        replica_manager,
        topic_configs,
        partial(read_partition_counts, on.store),
        sliced_work,
        on.blocking,
        broker_epoch,
    )
    inter_broker, control_plane = config.inter_broker_listener.name, config.control_plane_listener
    peers = BrokerPeers(
        on.broker_id,
        metadata,
        inter_broker,
        _open_transport(on),
        clock,
        random,
        on.cpu_pool.run,
        on.link_security.log_in,
        SetupTimeouts(
            config[properties.SOCKET_CONNECTION_SETUP_TIMEOUT_MS],
            config[properties.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS],
        ),
    )
    channels = ControlChannels(
        on.broker_id,
        door,
        peers,
        clock,
        listener=inter_broker if control_plane is None else control_plane.name,
        timeout_ms=config[properties.CONTROLLER_SOCKET_TIMEOUT_MS],
    )
    controller = Controller(
        on.broker_id, on.store, channels, controller_settings(config, policies), clock, random, sliced_work.pause
    )
    link = ControllerLink(
        on.broker_id, broker_epoch, controller, metadata, peers, config[properties.CONTROLLER_SOCKET_TIMEOUT_MS]
    )
    isr_changes = IsrChanges(
        on.broker_id,
        broker_epoch,
        link.alter_partition,
        replica_manager.isr_responded,
    )
    replica_manager.on_isr_change = isr_changes.submit
    fetchers = ReplicaFetchers(
        on.broker_id,
        broker_epoch,
        peers,
        replica_manager,
        clock,
        sliced_work,
        on.in_thread,
        fetcher_settings(config),
        lambda: config[properties.NUM_REPLICA_FETCHERS],
    )
    replica_manager.replication = fetchers
    topics = TopicAdministration(
        controller,
        TopicNodes(
            on.store,
            lambda: {broker.node_id: broker.rack for broker in metadata.brokers.values()},
            lambda: controller_settings(config, policies),
            random,
        ),
        metadata,
        config,
        timer,
        clock,
        sliced_work,
    )
    own_appends = OwnAppends(replica_manager, clock, on.in_thread)
    groups = GroupCoordinator(
        CoordinatorSettings.from_config(config),
        ReplicatedLog(GROUP_METADATA_TOPIC, replica_manager, own_appends, metadata, clock, on.in_thread, peers.connect),
        timer,
        clock,
        topics.ensure_internal,
        sliced_work,
    )
    producer_ids = ProducerIds(link.allocate_producer_ids)
    guards = Guards(lambda: config[properties.PRODUCER_ID_EXPIRATION_MS], replica_manager.leading_since)
    marker_writer = MarkerWriter(
        replica_manager, own_appends, guards, clock, config[properties.REQUEST_TIMEOUT_MS], _offsets_listener(groups)
    )
    marker_channels = MarkerChannels(on.broker_id, marker_writer, peers, config[properties.REQUEST_TIMEOUT_MS])
    transactions = TransactionCoordinator(
        TransactionSettings.from_config(config),
        ReplicatedLog(
            TRANSACTION_STATE_TOPIC, replica_manager, own_appends, metadata, clock, on.in_thread, peers.connect
        ),
        MarkerSender(TRANSACTION_STATE_TOPIC, metadata, marker_channels, timer, clock),
        timer,
        clock,
        next_producer_id=producer_ids.next_id,
        ensure_internal_topic=topics.ensure_internal,
    )
    for topic, coordinator in ((GROUP_METADATA_TOPIC, groups), (TRANSACTION_STATE_TOPIC, transactions)):
        _follow_leadership(replica_manager, topic, coordinator.partitions)
    coordinator_links = CoordinatorLinks(
        on.broker_id,
        transactions,
        TRANSACTION_STATE_TOPIC,
        metadata,
        lambda coordinator: peers.connect_as(
            f"AddPartitionsManager-client-{on.broker_id}", Link(ADD_PARTITIONS, coordinator), asks_versions=True
        ),
        config[properties.REQUEST_TIMEOUT_MS],
    )
    verifier = TransactionVerifier(
        coordinator_links,
        guards,
        lambda: config[properties.TRANSACTION_PARTITION_VERIFICATION_ENABLE],
        clock,
    )
    door.on_metadata = _metadata_listener(metadata, link, groups, topics, marker_channels, coordinator_links)
    authorizer = new_authorizer(config)
    enforced_quotas = EnforcedQuotas(
        on.store, quota_windows(config), clock.monotonic_ms, quota_defaults(config), quota_callback(config)
    )
    fetch_sessions = FetchSessionCache(
        config[properties.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
        lambda: random.randrange(1, 2**31),
        fetch_news,
    )
    return Services(
        broker_id=on.broker_id,
        config=config,
        clock=clock,
        random=on.environment.random,
        metadata_cache=metadata,
        peers=peers,
        control_door=door,
        control_channels=channels,
        controller=controller,
        controller_link=link,
        log_manager=on.log_manager,
        replica_manager=replica_manager,
        appends=Appends(
            replica_manager,
            verifier,
            on.cpu_pool,
            clock,
            why_not_hosted=partial(why_not_hosted, replica_manager, metadata),
            in_thread=on.in_thread,
            internal_topics=INTERNAL_TOPICS,
        ),
        directory_moves=directory_moves,
        isr_changes=isr_changes,
        fetchers=fetchers,
        fetch_sessions=fetch_sessions,
        fetch_service=FetchService(
            replica_manager,
            fetch_sessions,
            on.unsent_responses,
            sliced_work,
            on.cpu_pool,
            clock,
            in_thread=on.in_thread,
        ),
        topics=topics,
        topic_configs=topic_configs,
        config_changes=ConfigChanges(
            on.broker_id,
            on.store,
            config,
            topic_configs,
            metadata,
            sliced_work,
            on_topic_changed=changed.topic,
            on_broker_changed=changed.broker,
            check_broker=changed.check_broker,
            check_policy=policies.check_change,
        ),
        policies=policies,
        client_quotas=ClientQuotas(on.store, enforced_quotas.apply),
        enforced_quotas=enforced_quotas,
        scram_credentials=ScramCredentials(on.store, sliced_work),
        authorizer=authorizer,
        acls=AclStore(on.acl_store, authorizer, sliced_work.pause),
        delegation_tokens=DelegationTokens(
            on.store, clock, random, delegation_token_secret(config), delegation_token_times(config)
        ),
        producer_ids=producer_ids,
        groups=groups,
        legacy_offsets=LegacyOffsets(on.store),
        transactions=transactions,
        verifier=verifier,
        marker_writer=marker_writer,
        late_transactions=LateTransactions(replica_manager, config[properties.TRANSACTION_MAX_TIMEOUT_MS]),
        blocking=on.blocking,
        cpu_pool=on.cpu_pool,
        sliced_work=sliced_work,
        unsent_responses=on.unsent_responses,
        served_apis=_served_apis(config),
    )


def _served_apis(config: BrokerConfig) -> Sequence[Api]:
    """Return the APIs that clients may use, ordered by key."""
    served = [APIS[key] for key in sorted(TABLE)]
    named = config[properties.ADVERTISED_KAFKA_VERSION]
    release = None if named is None else release_named(named)
    return served if release is None else list(apis_of_release(served, release))


def _open_transport(on: Foundation) -> OpenTransport:
    """Return how connections to other brokers are opened."""
    network, tls = on.environment.network, on.link_security.tls
    receive_buffer_bytes = on.config[properties.REPLICA_SOCKET_RECEIVE_BUFFER_BYTES]
    if tls is None:
        return plaintext(network, receive_buffer_bytes=receive_buffer_bytes)
    return encrypted(network, tls, receive_buffer_bytes=receive_buffer_bytes)


def _call_soon(callback: Callable[[], None]) -> None:
    """Call `callback` in a later turn of the event loop."""
    asyncio.get_running_loop().call_soon(callback)


def _follow_leadership(replica_manager: ReplicaManager, topic: str, partitions: LedPartitions[Any]) -> None:
    """Load a partition of a coordinator's topic when this broker becomes its leader, and unload it when it resigns."""
    replica_manager.on_leadership(
        topic,
        gained=lambda partition: partitions.become_leader(partition.partition, partition.leader_epoch),
        lost=lambda partition: partitions.resign(partition.partition),
    )


def _metadata_listener(
    metadata: MetadataCache,
    controller_link: ControllerLink,
    groups: GroupCoordinator,
    topics: TopicAdministration,
    marker_channels: MarkerChannels,
    coordinator_links: CoordinatorLinks,
) -> Callable[[set[str]], None]:
    def changed(names: set[str]) -> None:
        controller_link.metadata_changed()
        marker_channels.brokers_changed(metadata.brokers)
        coordinator_links.brokers_changed(metadata.brokers)
        groups.removal.topics_deleted(names - metadata.topics.keys())
        topics.metadata_changed(names)

    return changed


def _offsets_listener(groups: GroupCoordinator) -> Callable[[str, int, Marker], None]:
    def replicated(topic: str, partition: int, marker: Marker) -> None:
        # In __consumer_offsets a marker commits or aborts pending offsets.
        if topic == GROUP_METADATA_TOPIC:
            groups.offsets.end_transaction(partition, marker.producer_id, is_committed=marker.is_committed)

    return replicated
