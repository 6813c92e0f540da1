"""WriteTxnMarkers: append the markers of ended transactions to partitions that this broker leads.

The request comes from transaction coordinators, and from administrators who end a hanging transaction (KIP-664). The
response is sent once every marker is replicated or has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from base.pause import Pause, never, whole
from base.topic_partition import TopicPartition
from broker.handlers.declaration import REPLICAS, Declaration, Elements, Permissions
from broker.handlers.group_by_topic import group_by_topic
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from broker.transactions.marker_writer import STEP_SIZE, MarkerWriter
from broker.transactions.markers import Codes, Marker
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API = Declaration(
    ApiKey.WRITE_TXN_MARKERS,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION, note="or Alter on the cluster"),
    waits_for=REPLICAS,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    marker_writer: MarkerWriter
    sliced_work: SlicedWork


async def handle(services: Needs, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    context.is_of_broker = True  # or of an administrator, who has no quota here either
    pause = services.sliced_work.pause
    writing: list[tuple[WritableTxnMarker, Codes | Awaitable[Codes]]] = []
    for marker in request.markers:
        partitions = await _partitions(marker, pause)
        for start in range(0, len(partitions), STEP_SIZE):
            writing.append((marker, _write(services, marker, partitions[start : start + STEP_SIZE])))
            await pause()
        await pause()
    # All are appended: each has its own timeout, so the order in which they are awaited does not matter.
    written = [(marker, codes if isinstance(codes, Mapping) else await codes) for marker, codes in writing]
    return await _response(written, pause)


def failed(request: WriteTxnMarkersRequest, context: RequestContext, code: ErrorCode) -> WriteTxnMarkersResponse:
    return whole(
        _response(
            ((marker, dict.fromkeys(whole(_partitions(marker, never)), code)) for marker in request.markers), never
        )
    )


def _write(
    services: Needs, requested: WritableTxnMarker, partitions: Sequence[TopicPartition]
) -> Codes | Awaitable[Codes]:
    marker = Marker(
        requested.producer_id, requested.producer_epoch, requested.transaction_result, requested.coordinator_epoch
    )
    return services.marker_writer.write(marker, partitions)


async def _partitions(marker: WritableTxnMarker, pause: Pause) -> list[TopicPartition]:
    partitions = []
    for topic in marker.topics:
        await pause()
        for index in topic.partition_indexes:
            partitions.append((topic.name, index))
            await pause()
    return partitions


async def _response(results: Iterable[tuple[WritableTxnMarker, Codes]], pause: Pause) -> WriteTxnMarkersResponse:
    """Build one result for each producer. For a partition with several markers the last code counts."""
    by_producer: dict[int, dict[TopicPartition, int]] = {}
    for marker, codes in results:
        if codes:
            by_producer.setdefault(marker.producer_id, {}).update(codes)
        await pause()
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, codes in by_producer.items():
        topics = await group_by_topic(
            (
                (each, WritableTxnMarkerPartitionResult(partition_index=each[1], error_code=code))
                for each, code in codes.items()
            ),
            lambda name, partitions: WritableTxnMarkerTopicResult(name=name, partitions=partitions),
            pause,
        )
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        await pause()
    return response


def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    if not guard.authorizer.allows_cluster(context, Operation.ALTER, is_logged_if_denied=False):
        guard.require_cluster(context, Operation.CLUSTER_ACTION)
    return guard.handle(services, request, context)
