"""The reader of records: damage is reported and not shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from base.pause import never
from broker.console.cluster_client import ClusterClient
from broker.console.records.pieces import Range
from broker.console.records.reader import _Budget, _opened
from broker.network.connection import Dispatcher
from broker.network.outgoing import OutgoingConnection
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.records.builder import RecordData, build_batch


async def test_records_of_another_broker_stay_valid_when_its_next_response_arrives() -> None:
    """The connection is shared by all pages, and receives each response into the same memory."""
    memory = bytearray(build_batch([RecordData(0, b"k", b"value")]))
    sent = bytes(memory)

    async def ask(request: FetchRequest, version: int, *, timeout_ms: int) -> FetchResponse:
        partitions = [
            PartitionData(partition_index=0, high_watermark=1, records=memoryview(memory)),
            PartitionData(partition_index=1, high_watermark=1, records=None),
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    services: Any = SimpleNamespace(
        broker_id=1,
        authorizer=SimpleNamespace(is_active=False),
        metadata_cache=SimpleNamespace(brokers={2: None}),
        sliced_work=SimpleNamespace(pause=never),
    )
    client = ClusterClient(services, cast(Dispatcher, None), "User:ANONYMOUS", "PLAINTEXT")
    client._connections[2] = cast(OutgoingConnection, SimpleNamespace(ask=ask))
    response = await client.ask(2, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))
    memory[:] = bytes(len(memory))
    assert [partition.records for partition in response.responses[0].partitions] == [sent, None]


def test_batch_with_a_wrong_checksum_is_reported() -> None:
    damaged = bytearray(build_batch([RecordData(0, b"k", b"value")], base_offset=1))
    damaged[-2] ^= 0x01
    content = (
        build_batch([RecordData(0, b"k", b"a")]) + damaged + build_batch([RecordData(0, b"k", b"b")], base_offset=2)
    )
    data = PartitionData(partition_index=0, high_watermark=3, records=content)
    piece = _opened(data, Range(0, 3), _Budget(1 << 20), is_committed=False, is_counting=False)
    assert [found.record.value for found in piece.records] == [b"a", b"b"]
    assert piece.problem == "the batch at offset 1 cannot be opened: its CRC is wrong"
    assert piece.next_offset == 3
