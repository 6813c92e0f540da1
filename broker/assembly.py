"""Connects the rooms of a broker: each builds its own parts, in the module `assembly` of its package.

Owns: the connections between rooms, nothing else. Nothing here waits, starts or touches a disk; `broker/server.py` does
that in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.cluster.assembly import ClusterControl, ClusterView, control_cluster, view_cluster
from broker.cluster.not_hosted import why_not_hosted
from broker.cluster.topics import TopicAdministration
from broker.coordination.producer_ids import ProducerIds
from broker.foundation import Foundation
from broker.groups.assembly import coordinate_groups
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_configs import GroupConfigs
from broker.groups.legacy_offsets import LegacyOffsets
from broker.lost_logs import ReplicaStates
from broker.network.network import Network
from broker.network.outgoing import LinkSecurity
from broker.network.unsent_responses import UnsentResponses
from broker.replica.assembly import HostedReplicas, host_replicas, serve_clients
from broker.requests.routes import served_apis
from broker.requests.services import Services
from broker.settings.assembly import Reconfiguration, config_changes, permissions, quotas
from broker.settings.component_settings import controller_settings
from broker.settings.policies import Policies
from broker.share.on_demand import ShareOnDemand
from broker.telemetry.client_instances import ClientInstances
from broker.transactions.assembly import Transactions, coordinate_transactions
from broker.transactions.markers import Marker
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.store.state_store import StateStore
from protocol.api import Api
from protocol.ids import random_id
from protocol.internal_topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, SHARE_GROUP_STATE_TOPIC
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.groups.machine.consumer.assignors import Assignor
    from broker.replica.near_reads import NearReads
    from broker.share.parts import ShareParts
    from controller.tree.leader_states import LeaderStates


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the server has opened for single rooms; they exist before the first part."""

    network: Network
    link_security: LinkSecurity
    """How connections to other brokers are secured."""
    unsent_responses: UnsentResponses
    acl_store: StateStore
    """The metadata store, or that of the authorizer's own ensemble."""
    replica_states: ReplicaStates
    changed: Reconfiguration


def assemble(on: Foundation, beside: Surroundings) -> Services:
    """Build all parts of one broker."""
    config, policies, group_configs = on.config, Policies(on.config), GroupConfigs(on.config)
    leader_states = _leader_states(on)

    async def alter_partition(request: AlterPartitionRequest) -> AlterPartitionResponse:
        if leader_states is not None:
            return await leader_states.alter_partition(request)
        # The controller controls the replicas, and is asked to change their ISRs: one of both has to exist first.
        return await control.link.alter_partition(request)

    view = view_cluster(on, beside.network, beside.link_security)
    replicas = host_replicas(
        on,
        view.peers,
        topic_config=view.topic_configs.effective,
        is_alive=lambda broker_id: broker_id in view.metadata.brokers,
        alter_partition=alter_partition,
        on_not_opened=beside.replica_states.request_later,
    )
    settings = partial(controller_settings, config, policies)
    control = control_cluster(on, view, replicas.manager, replicas.assigned, settings)
    producer_ids = ProducerIds(_allocate_producer_ids(on, control))
    share = _share_parts(on, view, replicas, control.topics, beside, group_configs)
    groups = coordinate_groups(on, view, replicas, control.topics, _assignors(config), group_configs, share)
    transactions = coordinate_transactions(
        on, view, replicas, control.topics, producer_ids, partial(_marker_replicated, groups)
    )
    clients = serve_clients(
        on,
        replicas,
        transactions.links,
        beside.unsent_responses,
        why_not_hosted=partial(why_not_hosted, replicas.manager, view.metadata),
        internal_topics=INTERNAL_TOPICS,
        near_reads=_near_reads(on, view),
    )
    view.metadata_changes.subscribe(partial(_metadata_changed, view, control, groups, transactions, share))
    permitted, limited = permissions(on, beside.acl_store), quotas(on)
    client_instances = _client_instances(on)
    return Services(
        broker_id=on.broker_id,
        config=config,
        clock=on.clock,
        random=on.random,
        metadata_cache=view.metadata,
        metadata_changes=view.metadata_changes,
        peers=view.peers,
        control_door=control.door,
        control_channels=control.channels,
        controller=control.controller,
        controller_link=control.link,
        log_manager=on.log_manager,
        replica_manager=replicas.manager,
        assigned_replicas=replicas.assigned,
        appends=clients.appends,
        directory_moves=replicas.directory_moves,
        isr_changes=replicas.isr_changes,
        leader_states=leader_states,
        fetchers=replicas.fetchers,
        fetch_sessions=clients.fetch_sessions,
        fetch_service=clients.fetch_service,
        topics=control.topics,
        topic_configs=view.topic_configs,
        config_changes=config_changes(on, view, policies, beside.changed, client_instances, group_configs),
        client_instances=client_instances,
        group_configs=group_configs,
        policies=policies,
        client_quotas=limited.client,
        enforced_quotas=limited.enforced,
        scram_credentials=permitted.scram_credentials,
        authorizer=permitted.authorizer,
        acls=permitted.acls,
        delegation_tokens=permitted.delegation_tokens,
        producer_ids=producer_ids,
        groups=groups,
        share=share,
        legacy_offsets=LegacyOffsets(on.store),
        transactions=transactions.coordinator,
        verifier=clients.verifier,
        marker_writer=transactions.marker_writer,
        late_transactions=transactions.late,
        blocking=on.blocking,
        cpu_pool=on.cpu_pool,
        sliced_work=on.sliced_work,
        unsent_responses=beside.unsent_responses,
        features=view.features,
        served_apis=served_apis(config),
        listed_apis=_listed_apis(config),
    )


def _listed_apis(config: BrokerConfig) -> Sequence[Api]:
    """Return the APIs that clients may use, ordered by key."""
    served = [api for _, api in sorted(served_apis(config).items())]
    named = config[properties.ADVERTISED_KAFKA_VERSION]
    if named is None:
        return served
    from broker.requests.release_gate import apis_of_release  # for tests of clients only
    from protocol.releases import release_named

    release = release_named(named)
    return served if release is None else list(apis_of_release(served, release))


def _client_instances(on: Foundation) -> ClientInstances:
    return ClientInstances(on.config[properties.TELEMETRY_MAX_BYTES], partial(random_id, on.random.getrandbits))


def _near_reads(on: Foundation, view: ClusterView) -> NearReads | None:
    if on.config[properties.REPLICA_SELECTOR_CLASS] is None:
        return None
    from broker.settings.near_reads import near_reads  # few brokers have a selector

    return near_reads(on.config, on.broker_id, lambda: view.metadata.brokers, on.clock.monotonic_ms)


def _share_parts(
    on: Foundation,
    view: ClusterView,
    replicas: HostedReplicas,
    topics: TopicAdministration,
    beside: Surroundings,
    configs: GroupConfigs,
) -> ShareOnDemand:
    """Return the parts of share groups, made when a request or a partition first needs them."""

    def make() -> ShareParts:
        from broker.share.assembly import serve_share_groups  # few brokers have share groups

        return serve_share_groups(on, view, replicas, topics, beside.unsent_responses, configs.share_terms)

    parts = ShareOnDemand(make)
    replicas.assigned.on_leadership(
        SHARE_GROUP_STATE_TOPIC,
        gained=lambda led: parts().states.partitions.become_leader(led.partition, led.leader_epoch),
        lost=lambda led: parts().states.partitions.resign(led.partition),
    )
    return parts


def _assignors(config: BrokerConfig) -> Callable[[], Mapping[str, Assignor]]:
    """Return what returns the assignors of groups. Raises InvalidPlugInError for a class that is not the broker's."""

    def own() -> Mapping[str, Assignor]:
        from broker.settings.assignors import assignors  # few brokers have groups of the consumer protocol

        return assignors(config)

    if config[properties.GROUP_CONSUMER_ASSIGNORS] == properties.GROUP_CONSUMER_ASSIGNORS.default:
        return own
    found = own()
    return lambda: found


def _leader_states(on: Foundation) -> LeaderStates | None:
    """Return what writes the states of partitions that this broker leads; None if the controller does it."""
    if on.config.inter_broker_protocol.alter_partition is not None:
        return None
    from controller.tree.leader_states import LeaderStates  # only older protocols need it

    return LeaderStates(on.broker_id, on.store, on.clock)


def _allocate_producer_ids(on: Foundation, control: ClusterControl) -> Callable[[], Awaitable[range]]:
    if on.config.inter_broker_protocol.allocate_producer_ids is not None:
        return control.link.allocate_producer_ids
    from controller.tree.producer_id_blocks import reserve_own_block  # only older protocols need it

    return partial(reserve_own_block, on.store, on.broker_id)


def _metadata_changed(
    view: ClusterView,
    control: ClusterControl,
    groups: GroupCoordinator,
    transactions: Transactions,
    share: ShareOnDemand,
    names: set[str],
) -> None:
    """Put the changed metadata of topics, and of all brokers, into effect."""
    metadata = view.metadata
    control.link.metadata_changed()
    transactions.marker_channels.brokers_changed(metadata.brokers)
    transactions.links.brokers_changed(metadata.brokers)
    share.brokers_changed(metadata.brokers)
    groups.topics_deleted(names - metadata.topics.keys())
    control.topics.metadata_changed(names)


def _marker_replicated(groups: GroupCoordinator, topic: str, partition: int, marker: Marker) -> None:
    """In __consumer_offsets a marker commits or aborts pending offsets."""
    if topic == GROUP_METADATA_TOPIC:
        groups.offsets.end_transaction(partition, marker.producer_id, is_committed=marker.is_committed)
