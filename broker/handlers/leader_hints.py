"""The current leader that accompanies an error, which saves the client a Metadata request (KIP-951).

Owns where the hint comes from. Must not know which responses carry it, or their layouts.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.cluster.metadata_cache import BrokerNode, MetadataCache
from broker.replica.manager import ReplicaManager
from protocol.errors import ErrorCode

LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors that a hint accompanies."""


class Needs(Protocol):
    """The parts of the broker that a leader hint needs."""

    metadata_cache: MetadataCache
    replica_manager: ReplicaManager


class LeaderHint(NamedTuple):
    """The leader of one partition as this broker knows it; id and epoch are -1 if unknown."""

    leader_id: int
    leader_epoch: int
    node: BrokerNode | None
    """None when the leader is not alive or has no address on the client's listener."""


def leader_hint(services: Needs, topic: str, partition: int, listener: str) -> LeaderHint:
    """Return the leader of a partition. A hosted replica's LeaderAndIsr state has priority over the metadata cache."""
    hosted = services.replica_manager.find(topic, partition)
    if hosted is not None:
        leader_id, leader_epoch = hosted.leadership.leader_id, hosted.leader_epoch
    else:
        leader_id = services.metadata_cache.leader_of(topic, partition)
        leader_epoch = services.metadata_cache.leader_epoch_of(topic, partition)
    node = services.metadata_cache.brokers.get(leader_id)
    return LeaderHint(leader_id, leader_epoch, None if node is None or listener not in node.endpoints else node)
