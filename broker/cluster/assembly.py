"""Builds what a broker knows of its cluster, and what controls it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from base.dataclass import dataclass
from broker.cluster.control_channels import ControlChannels
from broker.cluster.control_requests import ControlDoor
from broker.cluster.controller_link import ControllerLink
from broker.cluster.features import UNKNOWN_EPOCH, ClusterFeatures, supported_features
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.peers import BrokerPeers
from broker.cluster.topic_configs import TopicConfigs
from broker.cluster.topics import TopicAdministration
from broker.foundation import Foundation
from broker.loop.subscribers import Subscribers
from broker.network.network import Network
from broker.network.outgoing import LinkSecurity, OpenTransport, SetupTimeouts, encrypted, plaintext
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.manager import ReplicaManager
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.controller import Controller
from controller.machine.settings import ControllerSettings
from controller.tree.entity_configs import overrides_of_topics
from controller.tree.topic_nodes import TopicNodes, read_partition_counts


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What this broker knows of the other brokers and of all topics, and how it reaches the brokers."""

    metadata: MetadataCache
    metadata_changes: Subscribers[[set[str]]]
    """Notified of the topics that an UpdateMetadata has changed, after it is applied."""
    topic_configs: TopicConfigs
    peers: BrokerPeers
    features: ClusterFeatures


@dataclass(frozen=True, slots=True)
class ClusterControl:
    """The controller in this broker, the ways to and from the active one, and the administration of topics."""

    controller: Controller
    door: ControlDoor
    channels: ControlChannels
    link: ControllerLink
    topics: TopicAdministration


def view_cluster(on: Foundation, network: Network, link_security: LinkSecurity) -> ClusterView:
    """Build what knows the cluster. `link_security` is how connections to other brokers are secured."""
    config = on.config
    metadata = MetadataCache(on.cluster_id)
    peers = BrokerPeers(
        on.broker_id,
        metadata,
        config.inter_broker_listener.name,
        _open_transport(config, network, link_security),
        on.clock,
        on.random,
        on.cpu_pool.run,
        link_security.log_in,
        SetupTimeouts(
            config[properties.SOCKET_CONNECTION_SETUP_TIMEOUT_MS],
            config[properties.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS],
        ),
    )
    return ClusterView(
        metadata,
        Subscribers(),
        TopicConfigs(config, partial(overrides_of_topics, on.store)),
        peers,
        # Epoch 0: features are known, and none is finalized.
        ClusterFeatures(
            on.store,
            supported_features(config),
            0 if config.inter_broker_protocol.has_features else UNKNOWN_EPOCH,
        ),
    )


def control_cluster(
    on: Foundation,
    view: ClusterView,
    replica_manager: ReplicaManager,
    assigned_replicas: AssignedReplicas,
    settings: Callable[[], ControllerSettings],
) -> ClusterControl:
    """Build the controller and what connects it. `settings()` returns the present settings of the controller."""
    config, metadata = on.config, view.metadata
    timeout_ms = config[properties.CONTROLLER_SOCKET_TIMEOUT_MS]
    listener = config.control_plane_listener or config.inter_broker_listener
    door = ControlDoor(
        on.clock,
        metadata,
        replica_manager,
        assigned_replicas,
        view.topic_configs,
        partial(read_partition_counts, on.store),
        on.sliced_work,
        on.blocking,
        on.broker_epoch,
        view.metadata_changes,
    )
    channels = ControlChannels(
        on.broker_id,
        door,
        view.peers,
        on.clock,
        on.sliced_work.pause,
        protocol=config.inter_broker_protocol,
        listener=listener.name,
        timeout_ms=timeout_ms,
    )
    controller = Controller(on.broker_id, on.store, channels, settings(), on.clock, on.random, on.sliced_work.pause)
    topic_nodes = TopicNodes(
        on.store,
        lambda: {broker.node_id: broker.rack for broker in metadata.brokers.values()},
        settings,
        on.random,
    )
    return ClusterControl(
        controller,
        door,
        channels,
        ControllerLink(
            on.broker_id,
            on.broker_epoch,
            controller,
            metadata,
            view.peers,
            config.inter_broker_protocol,
            timeout_ms,
        ),
        TopicAdministration(controller, topic_nodes, metadata, config, on.timer, on.clock, on.sliced_work),
    )


def _open_transport(config: BrokerConfig, network: Network, link_security: LinkSecurity) -> OpenTransport:
    """Return how connections to other brokers are opened."""
    receive_buffer_bytes = config[properties.REPLICA_SOCKET_RECEIVE_BUFFER_BYTES]
    if link_security.tls is None:
        return plaintext(network, receive_buffer_bytes=receive_buffer_bytes)
    return encrypted(network, link_security.tls, receive_buffer_bytes=receive_buffer_bytes)
