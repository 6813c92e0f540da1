"""Builds the coordinator of transactions, and what writes their markers."""

from __future__ import annotations

from functools import partial

from base.dataclass import dataclass
from broker.cluster.assembly import ClusterView
from broker.cluster.peers import ADD_PARTITIONS, Link
from broker.cluster.topics import TopicAdministration
from broker.coordination.background import sleep
from broker.coordination.producer_ids import ProducerIds
from broker.coordination.replicated_log import ReplicatedLog, follow_leadership
from broker.foundation import Foundation
from broker.replica.assembly import HostedReplicas
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.late import LateTransactions
from broker.transactions.links import CoordinatorLinks
from broker.transactions.marker_channels import MarkerChannels, OwnMarkerChannel
from broker.transactions.marker_writer import MarkerListener, MarkerWriter
from broker.transactions.markers import MarkerSender
from broker.transactions.settings import TransactionSettings
from config import broker_properties as properties
from protocol.internal_topics import TRANSACTION_STATE_TOPIC


@dataclass(frozen=True, slots=True)
class Transactions:
    """The coordinator in this broker, the ways to the others, and the markers in this broker's partitions."""

    coordinator: TransactionCoordinator
    links: CoordinatorLinks
    marker_channels: MarkerChannels
    marker_writer: MarkerWriter
    late: LateTransactions


def coordinate_transactions(
    on: Foundation,
    view: ClusterView,
    replicas: HostedReplicas,
    topics: TopicAdministration,
    producer_ids: ProducerIds,
    on_marker: MarkerListener,
) -> Transactions:
    """Return the parts of transactions; the coordinator follows the leadership of its partitions.

    `on_marker(topic, partition, marker)` is called once all in-sync replicas have a marker.
    """
    config, peers = on.config, view.peers
    timeout_ms = config[properties.REQUEST_TIMEOUT_MS]
    marker_writer = MarkerWriter(
        replicas.manager, replicas.own_appends, replicas.guards, on.clock, timeout_ms, on_marker
    )
    marker_channels = MarkerChannels(
        on.broker_id,
        OwnMarkerChannel(marker_writer, on.sliced_work.pause),
        peers,
        on.config.inter_broker_protocol.write_txn_markers,
        timeout_ms,
    )
    log = ReplicatedLog(
        TRANSACTION_STATE_TOPIC,
        replicas.manager,
        replicas.own_appends,
        view.metadata,
        on.clock,
        on.in_thread,
        peers.connect,
    )
    coordinator = TransactionCoordinator(
        TransactionSettings.from_config(config),
        log,
        MarkerSender(TRANSACTION_STATE_TOPIC, view.metadata, marker_channels, on.timer, on.clock),
        on.timer,
        on.clock,
        next_producer_id=producer_ids.next_id,
        ensure_internal_topic=topics.ensure_internal,
    )
    follow_leadership(replicas.assigned, TRANSACTION_STATE_TOPIC, coordinator.partitions)
    links = CoordinatorLinks(
        on.broker_id,
        coordinator,
        TRANSACTION_STATE_TOPIC,
        view.metadata,
        lambda coordinator_id: peers.connect_as(
            f"AddPartitionsManager-client-{on.broker_id}", Link(ADD_PARTITIONS, coordinator_id), asks_versions=True
        ),
        timeout_ms,
        partial(sleep, on.timer, on.clock),
    )
    late = LateTransactions(replicas.manager, config[properties.TRANSACTION_MAX_TIMEOUT_MS])
    return Transactions(coordinator, links, marker_channels, marker_writer, late)
