"""WriteTxnMarkers: append the markers of ended transactions to partitions that are led here.

Comes from transaction coordinators, and from administrators who end a transaction that hangs (KIP-664). Each partition
is answered once its marker is replicated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from broker.request_context import RequestContext
from broker.services import Services
from broker.transactions.markers import Marker
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def handle(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=await asyncio.gather(*(_write(services, marker) for marker in request.markers))
    )


def failed(request: WriteTxnMarkersRequest, context: RequestContext, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[_result(marker, dict.fromkeys(_partitions(marker), code)) for marker in request.markers]
    )


async def _write(services: Services, requested: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        requested.producer_id, requested.producer_epoch, requested.transaction_result, requested.coordinator_epoch
    )
    codes = services.marker_writer.write(marker, _partitions(requested))
    return _result(requested, codes if isinstance(codes, Mapping) else await codes)


def _partitions(marker: WritableTxnMarker) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _result(marker: WritableTxnMarker, codes: Mapping[tuple[str, int], int]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
