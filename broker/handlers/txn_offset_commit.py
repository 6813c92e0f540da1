"""TxnOffsetCommit: commit offsets of a group within a producer's transaction.

They are pending until the transaction ends: applied when it commits, dropped when it aborts. Partitions that do not
exist are rejected one by one; the others are committed as one batch. A commit of thousands lets other requests have
their turn in between, and is verified after the last of them.

Version notes: v0-1 have no COORDINATOR_LOAD_IN_PROGRESS here; v2 leader epochs; v3 member, generation and instance are
checked (KIP-447); v4 TRANSACTION_ABORTABLE (KIP-890), before that INVALID_TXN_STATE; v5 adds the partition of the group
to the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from base.clock import Clock
from base.pause import Pause, never, whole
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.coordination.partitioner import partition_for
from broker.groups.batches import COMMIT_STEP_SIZE, CommittingProducer
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.offsets import Offsets
from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.offset_commits import Committer
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Each, Elements, Names, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.replica.transaction_verification import ClientTerms, TransactionVerifier
from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import GROUP_METADATA_TOPIC
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage.producers.producer_state import Producer

FIRST_VERSION_WITH_LOAD_IN_PROGRESS = 2
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS_PARTITIONS = 5


API = Declaration(
    ApiKey.TXN_OFFSET_COMMIT,
    permissions=Permissions(transactional_id=Operation.WRITE, group=Operation.READ, topic=Operation.READ),
    names=Names(
        group="group_id", transactional_id="transactional_id", each=Each(ResourceType.TOPIC, "topics", "topics")
    ),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    clock: Clock
    metadata_cache: MetadataCache
    groups: GroupCoordinator
    verifier: TransactionVerifier
    sliced_work: SlicedWork


async def handle(services: Needs, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    pause = services.sliced_work.pause
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    offsets, unknown = await _split_by_existence(services, request)
    if not offsets:
        return await _response(request, lambda _: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, pause)
    commits, group_id = services.groups.offsets, request.group_id
    committer = Committer(request.member_id, request.group_instance_id, request.generation_id)
    producer = CommittingProducer(request.producer_id, request.producer_epoch)
    if len(offsets) > COMMIT_STEP_SIZE:
        verify = partial(_verify, services, request, context)
        result = await commits.commit_in_slices(group_id, committer, offsets, pause, producer, verify)
        await pause()
    else:
        await _verify(services, request, context)
        result = await commits.commit(group_id, committer, offsets, producer)
    refused = {**dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), **result.refused}
    error = _error_of_version(context, result.error)
    return await _response(request, lambda partition: refused.get(partition, error), pause)


def failed(request: TxnOffsetCommitRequest, context: RequestContext, code: ErrorCode) -> TxnOffsetCommitResponse:
    code = _error_of_version(context, code)
    return whole(_response(request, lambda _: code, never))


def _error_of_version(context: RequestContext, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < FIRST_VERSION_WITH_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


async def _split_by_existence(services: Needs, request: TxnOffsetCommitRequest) -> tuple[Offsets, set[TopicPartition]]:
    """Return the offsets of partitions that exist, and the partitions that do not."""
    pause = services.sliced_work.pause
    now_ms = services.clock.now_ms()
    offsets: Offsets = {}
    unknown: set[TopicPartition] = set()
    for topic in request.topics:
        await pause()
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if services.metadata_cache.contains(*key):
                offsets[key] = _offset(partition, now_ms)
            else:
                unknown.add(key)
            await pause()
    return offsets, unknown


def _offset(partition: TxnOffsetCommitRequestPartition, now_ms: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
    )


async def _verify(services: Needs, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    """Check or see to it that the transaction includes the group's partition, which then will get a marker."""
    partition_count = services.groups.partitions.count()
    if partition_count is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    await services.verifier.admit_offsets(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        (GROUP_METADATA_TOPIC, partition_for(request.group_id, partition_count)),
        ClientTerms(
            context.api_version >= FIRST_VERSION_WITH_ABORTABLE,
            context.api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS,
        ),
    )


async def _response(
    request: TxnOffsetCommitRequest, code_of: Callable[[TopicPartition], ErrorCode], pause: Pause
) -> TxnOffsetCommitResponse:
    """Build a response with each partition once."""
    requested: dict[TopicPartition, None] = {}
    for topic in request.topics:
        await pause()
        for partition in topic.partitions:
            requested[topic.name, partition.partition_index] = None
            await pause()
    topics = await group_by_topic(
        ((partition, _result(partition, code_of)) for partition in requested),
        lambda name, partitions: TxnOffsetCommitResponseTopic(name=name, partitions=partitions),
        pause,
    )
    return TxnOffsetCommitResponse(topics=topics)


def _result(
    partition: TopicPartition, code_of: Callable[[TopicPartition], ErrorCode]
) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=partition[1], error_code=code_of(partition))
