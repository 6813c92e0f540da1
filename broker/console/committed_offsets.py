"""The committed offsets of groups, as the broker that coordinates the groups reports them."""

from __future__ import annotations

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.console.cluster_client import ClusterClient
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

GROUPS_PER_REQUEST = 100
STEP_SIZE = 500


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
        found.update(await _by_group(response, client.pause))
    return found


async def _by_group(response: OffsetFetchResponse, pause: Pause) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    for group in response.groups:
        if group.error_code:
            continue
        offsets = found[group.group_id] = {}
        steps = 0
        for topic in group.topics:
            for one in topic.partitions:
                if not one.error_code and one.committed_offset >= 0:
                    offsets[topic.name, one.partition_index] = one.committed_offset
            steps += len(topic.partitions)
            if steps >= STEP_SIZE:
                steps = 0
                await pause()
    return found
