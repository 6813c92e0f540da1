"""Why a partition is not served here: the error that its client gets.

Owns the choice of the error. Must not know requests.
"""

from __future__ import annotations

from broker.cluster.metadata_cache import MetadataCache
from broker.replica.manager import ReplicaManager
from protocol.errors import ErrorCode, KafkaError


def why_not_hosted(manager: ReplicaManager, metadata: MetadataCache, topic: str, partition: int) -> KafkaError:
    """Return the error for a request to a partition of which no replica is served here.

    KAFKA_STORAGE_ERROR: its log directory is offline. NOT_LEADER_OR_FOLLOWER: other brokers have it.
    UNKNOWN_TOPIC_OR_PARTITION: no broker has it.
    """
    if manager.is_offline(topic, partition):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {topic}-{partition} is offline")
    if metadata.contains(topic, partition):
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
