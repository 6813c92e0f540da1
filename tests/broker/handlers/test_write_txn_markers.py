"""WriteTxnMarkers: each partition of each marker is answered by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import write_txn_markers
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.groups.served import versions_of
from tests.broker.transactions.served import ServedTransactions


def marker(producer_id: int, *partitions: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(partitions))],
        coordinator_epoch=0,
    )


@pytest.mark.parametrize("version", versions_of(WriteTxnMarkersRequest))
async def test_markers(tmp_path: Path, version: int) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    partition = served.leading.lead("t", 0)
    for producer_id in (7, 8):
        served.leading.produce(partition, producer_id, 0, 0)
    request = WriteTxnMarkersRequest(markers=[marker(7, 0, 5), marker(8, 0), marker(9)])
    response = await served.ask(write_txn_markers, request, version)
    assert [
        (each.producer_id, {one.partition_index: one.error_code for one in each.topics[0].partitions})
        for each in response.markers
    ] == [(7, {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), (8, {0: ErrorCode.NONE}), (9, {})]
    assert partition.log.last_stable_offset == 4
    assert len(partition.log.aborted_transactions(0, 4)) == 2
