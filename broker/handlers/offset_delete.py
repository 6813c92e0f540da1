"""OffsetDelete: forget the offsets of a group for partitions that none of its members reads (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping

from broker.by_topic import by_topic
from broker.groups.offsets import TopicPartition
from broker.request_context import RequestContext
from broker.services import Services
from broker.slices import Slices, each
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    services: Services, request: OffsetDeleteRequest, context: RequestContext
) -> Slices[OffsetDeleteResponse]:
    known = []
    pace = services.sliced_work.pace()
    for topic in request.topics:
        for partition in topic.partitions:
            if services.metadata_cache.contains(topic.name, partition.partition_index):
                known.append((topic.name, partition.partition_index))
            await pace.keep()
    codes = services.groups.delete_offsets(request.group_id, known)
    return _response(request, codes if isinstance(codes, dict) else await codes)


def failed(request: OffsetDeleteRequest, context: RequestContext, code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


def _response(request: OffsetDeleteRequest, codes: Mapping[TopicPartition, ErrorCode]) -> Slices[OffsetDeleteResponse]:
    asked = dict.fromkeys(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    answers = yield from each(asked, lambda partition: (partition, _result(partition, codes)))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name=name, partitions=partitions)
            for name, partitions in by_topic(answers).items()
        ]
    )


def _result(partition: TopicPartition, codes: Mapping[TopicPartition, ErrorCode]) -> OffsetDeleteResponsePartition:
    code = codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetDeleteResponsePartition(partition_index=partition[1], error_code=code)
