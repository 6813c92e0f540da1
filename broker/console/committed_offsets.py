"""The committed offsets of groups, as the broker that coordinates the groups reports them."""

from __future__ import annotations

from broker.console.cluster_client import ClusterClient, TopicPartition
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

GROUPS_PER_REQUEST = 100


async def committed(client: ClusterClient, broker: int, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets of groups that a broker coordinates. Raises PeerUnavailable and KafkaError."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for first in range(0, len(groups), GROUPS_PER_REQUEST):
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=each, topics=None)
                for each in groups[first : first + GROUPS_PER_REQUEST]
            ]
        )
        response = await client.ask(broker, request)
        for group in response.groups:
            if not group.error_code:
                found[group.group_id] = {
                    (topic.name, one.partition_index): one.committed_offset
                    for topic in group.topics
                    for one in topic.partitions
                    if not one.error_code and one.committed_offset >= 0
                }
    return found
