"""Builds the coordinator of consumer groups."""

from __future__ import annotations

from broker.cluster.assembly import ClusterView
from broker.cluster.internal_topics import GROUP_METADATA_TOPIC
from broker.cluster.topics import TopicAdministration
from broker.coordination.replicated_log import ReplicatedLog, follow_leadership
from broker.foundation import Foundation
from broker.groups.coordinator import GroupCoordinator
from broker.groups.settings import CoordinatorSettings
from broker.replica.assembly import HostedReplicas


def coordinate_groups(
    on: Foundation, view: ClusterView, replicas: HostedReplicas, topics: TopicAdministration
) -> GroupCoordinator:
    """Return the coordinator, which follows the leadership of its partitions."""
    log = ReplicatedLog(
        GROUP_METADATA_TOPIC,
        replicas.manager,
        replicas.own_appends,
        view.metadata,
        on.clock,
        on.in_thread,
        view.peers.connect,
    )
    coordinator = GroupCoordinator(
        CoordinatorSettings.from_config(on.config),
        log,
        on.timer,
        on.clock,
        topics.ensure_internal,
        on.sliced_work,
    )
    follow_leadership(replicas.assigned, GROUP_METADATA_TOPIC, coordinator.partitions)
    return coordinator
