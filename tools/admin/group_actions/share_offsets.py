"""Changes the start offsets of a share group without members (AlterShareGroupOffsets, DeleteShareGroupOffsets).

Must not know why offsets change, or what a tool prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from protocol.messages.delete_share_group_offsets import (
    DeletedTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from tools.client.admin_client import AdminClient


def alter_offsets(admin: AdminClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets.

    Raises the first KafkaError in the response, and one for a partition that the response leaves out.
    """
    topics: dict[str, list[AlteredPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(AlteredPartition(partition_index=partition, start_offset=offset))
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[AlteredTopic(topic_name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response = admin.call_coordinator(
        group, request, AlterShareGroupOffsetsResponse, lambda response: [response.error_code]
    )
    if (error := _error(response)) is not None:
        raise error
    results = {
        (topic.topic_name, partition.partition_index): _error(partition)
        for topic in response.responses
        for partition in topic.partitions
    }
    for topic, partition in offsets:
        # Brokers of Kafka 4.1 leave partitions out whose offsets they have not changed.
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The response has no result for {topic}-{partition}.")
        if (error := results.get((topic, partition), missing)) is not None:
            raise error


def delete_offsets(admin: AdminClient, group: str, topics: Sequence[str]) -> dict[str, KafkaError | None]:
    """Delete the start offsets of topics; return the error of each, which may be that of the whole request.

    Raises as `AdminClient.call_coordinator` does.
    """
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeletedTopic(topic_name=topic) for topic in topics]
    )
    response = admin.call_coordinator(
        group, request, DeleteShareGroupOffsetsResponse, lambda response: [response.error_code]
    )
    if (error := _error(response)) is not None:
        return dict.fromkeys(topics, error)
    return {result.topic_name: _error(result) for result in response.responses}


class _Result(Protocol):
    error_code: int
    error_message: str | None


def _error(result: _Result) -> KafkaError | None:
    return KafkaError(ErrorCode(result.error_code), result.error_message) if result.error_code else None
