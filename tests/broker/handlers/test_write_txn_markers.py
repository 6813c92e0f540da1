"""WriteTxnMarkers: each partition of each marker gets its own code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import cast

import pytest

from base.topic_partition import TopicPartition
from broker.handlers import write_txn_markers
from broker.transactions.marker_writer import STEP_SIZE, MarkerWriter
from broker.transactions.markers import Codes, Marker
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.groups.served import versions_of
from tests.broker.transactions.served import ServedTransactions

NONE, UNKNOWN_PARTITION = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def marker(producer_id: int, *partitions: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(partitions))],
        coordinator_epoch=0,
    )


@pytest.mark.parametrize("version", versions_of(WriteTxnMarkersRequest))
async def test_markers_end_transactions_and_each_partition_has_a_code(tmp_path: Path, version: int) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    partition = served.leading.lead("t", 0)
    for producer_id in (7, 8):
        served.leading.produce(partition, producer_id, 0, 0)
    request = WriteTxnMarkersRequest(markers=[marker(7, 0, 5), marker(8, 0), marker(9)])
    response = await served.ask(write_txn_markers, request, version)
    assert [
        (each.producer_id, {one.partition_index: one.error_code for one in each.topics[0].partitions})
        for each in response.markers
    ] == [(7, {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), (8, {0: ErrorCode.NONE})]
    assert partition.log.last_stable_offset == 4
    assert len(partition.log.reader.aborted_transactions(0, 4)) == 2


@pytest.mark.parametrize("version", versions_of(WriteTxnMarkersRequest))
async def test_producer_and_each_of_its_partitions_appear_once(tmp_path: Path, version: int) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    partition = served.leading.lead("t", 0)
    served.leading.produce(partition, 7, 0, 0)
    request = WriteTxnMarkersRequest(markers=[marker(7, 0, 0), marker(8, 5), marker(7, 5)])
    response = await served.ask(write_txn_markers, request, version)
    assert [
        (each.producer_id, [(one.partition_index, one.error_code) for one in each.topics[0].partitions])
        for each in response.markers
    ] == [(7, [(0, NONE), (5, UNKNOWN_PARTITION)]), (8, [(5, UNKNOWN_PARTITION)])]


class ScriptedWriter:
    """A marker writer whose writes resolve when the test says so."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, Sequence[TopicPartition], asyncio.Future[Codes]]] = []

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Awaitable[Codes]:
        replicated: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self.writes.append((marker.producer_id, partitions, replicated))
        return replicated


async def test_all_markers_of_a_request_are_written_before_the_first_is_replicated(tmp_path: Path) -> None:
    """Each waits for replicas with a time limit of its own: one after the other, the limits would add up."""
    served = await ServedTransactions(tmp_path).lead_all()
    writer = ScriptedWriter()
    served.marker_writer = cast(MarkerWriter, writer)
    wide = marker(8, *range(STEP_SIZE + 1))
    request = WriteTxnMarkersRequest(markers=[marker(7, 0), wide, marker(9, 5)])
    responding = asyncio.ensure_future(served.ask(write_txn_markers, request, 1))
    await served.idle()
    assert [(producer_id, len(partitions)) for producer_id, partitions, _ in writer.writes] == [
        (7, 1),
        (8, STEP_SIZE),
        (8, 1),
        (9, 1),
    ]
    assert not responding.done()
    for _, partitions, replicated in reversed(writer.writes):
        replicated.set_result(dict.fromkeys(partitions, NONE))
    response = await responding
    responded = {each.producer_id: len(each.topics[0].partitions) for each in response.markers}
    assert responded == {7: 1, 8: STEP_SIZE + 1, 9: 1}


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (7, -1), (7, -2)])
async def test_marker_without_producer_is_refused_and_others_are_written(
    tmp_path: Path, producer_id: int, epoch: int
) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    partition = served.leading.lead("t", 0)
    refused = marker(producer_id, 0)
    refused.producer_epoch = epoch
    response = await served.ask(write_txn_markers, WriteTxnMarkersRequest(markers=[refused, marker(8, 0)]), 1)
    codes = {(each.producer_id, each.topics[0].partitions[0].error_code) for each in response.markers}
    assert codes == {(producer_id, ErrorCode.INVALID_REQUEST), (8, NONE)}
    assert partition.log.log_end_offset == 1
