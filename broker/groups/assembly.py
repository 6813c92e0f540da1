"""Builds the coordinator of consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.cluster.assembly import ClusterView
from broker.cluster.topics import TopicAdministration
from broker.coordination.replicated_log import ReplicatedLog, follow_leadership
from broker.foundation import Foundation
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_configs import GroupConfigs
from broker.groups.settings import CoordinatorSettings
from broker.replica.assembly import HostedReplicas
from protocol.internal_topics import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from broker.cluster.metadata_cache import MetadataCache
    from broker.groups.machine.consumer.assignors import Assignor
    from broker.groups.machine.consumer.topics import Topics
    from broker.share.on_demand import ShareOnDemand


def coordinate_groups(
    on: Foundation,
    view: ClusterView,
    replicas: HostedReplicas,
    topics: TopicAdministration,
    assignors: Callable[[], Mapping[str, Assignor]],
    configs: GroupConfigs,
    share_parts: ShareOnDemand,
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
        CoordinatorSettings.from_config(on.config, assignors, configs.timeouts, configs.share_timeouts),
        log,
        on.timer,
        on.clock,
        topics.ensure_internal,
        on.sliced_work,
        _known_topics(view.metadata),
        share_parts,
    )
    follow_leadership(replicas.assigned, GROUP_METADATA_TOPIC, coordinator.partitions)
    return coordinator


def _known_topics(metadata: MetadataCache) -> Callable[[], Topics]:
    """Return what returns the topics of now: the same object until they change, as each heartbeat looks at them."""
    last: Topics | None = None

    def known() -> Topics:
        nonlocal last
        if last is None or last.stamp is not metadata.topics:
            from broker.groups.known_topics import KnownTopics  # few brokers have groups of the consumer protocol

            last = KnownTopics(metadata)
        return last

    return known
