"""The reader of records: damage is reported and not shown, and what a read holds in memory has a limit."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from base.pause import never
from broker.console.cluster_client import EARLIEST, ClusterClient, Responses
from broker.console.records import reader as reader_module
from broker.console.records.pieces import Range
from broker.console.records.reader import RecordReader, _Budget, _cost, _opened
from broker.network.connection import Dispatcher
from broker.network.outgoing import OutgoingConnection
from broker.requests.services import Services
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression

T = TypeVar("T")

PARTITIONS = 200
RECORDS = 40
VALUE = b"x" * 2_000


class Leader:
    """The leader of all partitions, which have the same batch; `alone` are returned only by requests of their own."""

    def __init__(self, batch: bytes, alone: range) -> None:
        self._batch = batch
        self._alone = alone

    async def ask_each(self, requests: dict[int, FetchRequest]) -> Responses[FetchResponse]:
        ((broker, request),) = requests.items()
        wanted = [each.partition for each in request.topics[0].partitions]
        partitions = [
            PartitionData(
                partition_index=each,
                high_watermark=RECORDS,
                records=b"" if each in self._alone and len(wanted) > 1 else self._batch,
            )
            for each in wanted
        ]
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
        return Responses({broker: response}, {})

    async def offsets(self, wanted: list[tuple[str, int]], timestamp: int, **_: int) -> dict[tuple[str, int], Any]:
        offset = 0 if timestamp == EARLIEST else RECORDS
        return dict.fromkeys(wanted, SimpleNamespace(offset=offset))


async def run(work: Callable[[], T]) -> T:
    return work()


def reader_of(alone: range = range(0)) -> RecordReader:
    """A reader of partitions whose batches are small and open to many bytes."""
    batch = build_batch([RecordData(0, None, VALUE)] * RECORDS, compression=Compression.GZIP)
    services: Any = SimpleNamespace(
        cpu_pool=SimpleNamespace(run=run),
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        metadata_cache=SimpleNamespace(leader_of=lambda topic, partition: 1),
    )
    return RecordReader(cast(Services, services), cast(ClusterClient, Leader(batch, alone)))


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
    piece = _opened(data, Range(0, 3), _Budget(1 << 20, share=1 << 20), is_committed=False, is_counting=False)
    assert [found.record.value for found in piece.records] == [b"a", b"b"]
    assert piece.problem == "the batch at offset 1 cannot be opened: its CRC is wrong"
    assert piece.next_offset == 3


@pytest.mark.parametrize("alone", [range(0), range(0, PARTITIONS, 2)])
async def test_records_of_one_read_take_bounded_memory_however_many_partitions_it_has(
    monkeypatch: pytest.MonkeyPatch, alone: range
) -> None:
    monkeypatch.setattr(reader_module, "OPENED_SIZE_MAX", 2 << 20)
    ranges = {each: Range(0, RECORDS) for each in range(PARTITIONS)}
    pieces = await reader_of(alone).read("t", ranges, is_committed=False)
    costs = [_cost(found.record) for piece in pieces.values() for found in piece.records]
    assert (1 << 20) < sum(costs) <= (2 << 20) + max(costs)
    assert sum(costs) == sum(piece.opened_size for piece in pieces.values())
    assert len([piece for piece in pieces.values() if piece.records]) > 0.8 * PARTITIONS
    for piece in pieces.values():
        assert [found.record.offset for found in piece.records] == list(range(piece.next_offset))


async def test_page_of_many_partitions_ends_when_its_records_take_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_module, "OPENED_SIZE_MAX", 2 << 20)
    monkeypatch.setattr(reader_module, "PAGE_OPENED_SIZE_MAX", 2 << 20)
    page = await reader_of().oldest("t", 100, partitions=range(PARTITIONS), start={}, is_committed=False)
    assert 0 < len(page.found) < 100
    assert not page.is_complete
    assert page.cursor == {each: len(page.found) if each == 0 else 0 for each in range(PARTITIONS)}


async def test_page_is_found_although_one_record_of_each_partition_exceeds_what_one_read_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_module, "OPENED_SIZE_MAX", 100 << 10)
    monkeypatch.setattr(reader_module, "PAGE_OPENED_SIZE_MAX", 100 << 10)
    reader = reader_of()
    for page in (
        await reader.oldest("t", 100, partitions=range(PARTITIONS), start={}, is_committed=False),
        await reader.newest("t", 100, partitions=range(PARTITIONS), before={}, is_committed=False),
    ):
        assert page.found
        assert page.has_more
