"""Deletes committed offsets of a group (OffsetDelete).

Owns the request. Must not know why offsets are deleted, or what a tool prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tools.client.admin_client import AdminClient


class Deletion(NamedTuple):
    """The result for the group, and for each partition if that is NONE."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


def delete_offsets(admin: AdminClient, group: str, partitions: Iterable[TopicPartition]) -> Deletion:
    """Delete the offsets of partitions. Raises as `AdminClient.call_coordinator` does."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=topic, partitions=each) for topic, each in topics.items()],
    )
    response = admin.call_coordinator(group, request, OffsetDeleteResponse, lambda response: [response.error_code])
    return Deletion(
        ErrorCode(response.error_code),
        {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        },
    )
