"""OffsetForLeaderEpoch: where a leader epoch ended, for truncation after a leader change (KIP-101, KIP-320)."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Protocol

from base.pause import each
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.replica.manager import ReplicaManager
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API = Declaration(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    permissions=Permissions(topic=Operation.DESCRIBE, cluster_instead=Operation.CLUSTER_ACTION),
    names=Names(each=Each(ResourceType.TOPIC, "topics", "topics", attrgetter("topic"))),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    replica_manager: ReplicaManager
    sliced_work: SlicedWork

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...


async def handle(
    services: Needs, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    pause = services.sliced_work.pause
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        partitions = await each(topic.partitions, partial(_end_offset, services, topic.topic), pause)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        await pause()
    return response


def failed(
    request: OffsetForLeaderEpochRequest, context: RequestContext, code: ErrorCode
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(partition=one.partition, error_code=code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(services: Needs, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = services.replica_manager.find(topic, wanted.partition)
    try:
        if partition is None:
            raise services.why_not_hosted(topic, wanted.partition)
        partition.require_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(
        partition=wanted.partition, error_code=ErrorCode.NONE, leader_epoch=epoch, end_offset=end_offset
    )
