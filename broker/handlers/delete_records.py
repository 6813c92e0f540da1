"""DeleteRecords: raise log start offsets, and respond when all live replicas have done so (KIP-107).

Each partition has its own result: the lowest log start offset of its replicas. The next retention run deletes the
segments below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from base.clock import Clock
from base.pause import Pause, never, whole
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.declaration import REPLICAS, Declaration, Each, Elements, Names, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.request_context import RequestContext
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from broker.replica.delayed_delete_records import AwaitedDeletion
from broker.replica.directory_writers import between_writes
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API = Declaration(
    ApiKey.DELETE_RECORDS,
    permissions=Permissions(topic=Operation.DELETE),
    names=Names(each=Each(ResourceType.TOPIC, "topics", "topics")),
    waits_for=REPLICAS,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    sliced_work: SlicedWork
    internal_topics: frozenset[str]

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError: ...


async def handle(services: Needs, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    deletions: dict[TopicPartition, AwaitedDeletion] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    pause = services.sliced_work.pause
    wanted = await _wanted(request, pause)
    for key, offset in wanted.items():
        await pause()
        try:
            partition = _partition(services, *key)
            delete = partial(services.replica_manager.delete_records, partition, offset)
            deletions[key] = await between_writes(partition.log, delete)
        except KafkaError as error:
            refused[key] = error.code
    await _until_decided(services, list(deletions.values()), request.timeout_ms)
    return await _response(((key, _result(key, deletions, refused)) for key in wanted), pause)


def failed(request: DeleteRecordsRequest, context: RequestContext, code: ErrorCode) -> DeleteRecordsResponse:
    return whole(
        _response(
            (
                (key, DeleteRecordsPartitionResult(partition_index=key[1], error_code=code))
                for key in whole(_wanted(request, never))
            ),
            never,
        )
    )


async def _wanted(request: DeleteRecordsRequest, pause: Pause) -> dict[TopicPartition, int]:
    """Return the requested offset of each partition; the last one if a partition is named repeatedly."""
    wanted = {}
    for topic in request.topics:
        await pause()
        for asked in topic.partitions:
            wanted[topic.name, asked.partition_index] = asked.offset
            await pause()
    return wanted


async def _response(
    results: Iterable[tuple[TopicPartition, DeleteRecordsPartitionResult]], pause: Pause
) -> DeleteRecordsResponse:
    topics = await group_by_topic(
        results, lambda name, partitions: DeleteRecordsTopicResult(name=name, partitions=partitions), pause
    )
    return DeleteRecordsResponse(topics=topics)


def _partition(services: Needs, topic: str, partition_index: int) -> Partition:
    if topic in services.internal_topics:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    partition = services.replica_manager.find(topic, partition_index)
    if partition is None:
        raise services.why_not_hosted(topic, partition_index)
    return partition


async def _until_decided(services: Needs, deletions: list[AwaitedDeletion], timeout_ms: int) -> None:
    decided: Promise[None] = Promise()
    manager = services.replica_manager
    operation = manager.await_deletions(
        deletions,
        lambda broker_id: broker_id in services.metadata_cache.brokers,
        services.clock.monotonic_ms() + max(timeout_ms, 0),
        lambda: decided.set_result(None),
    )
    decided.on_cancel(lambda: manager.delete_records_purgatory.abandon(operation))
    await decided


def _result(
    key: TopicPartition, deletions: dict[TopicPartition, AwaitedDeletion], refused: dict[TopicPartition, ErrorCode]
) -> DeleteRecordsPartitionResult:
    deletion = deletions.get(key)
    if deletion is None:
        return DeleteRecordsPartitionResult(partition_index=key[1], error_code=refused[key])
    assert deletion.error is not None
    return DeleteRecordsPartitionResult(
        partition_index=key[1], error_code=deletion.error, low_watermark=deletion.low_watermark
    )
