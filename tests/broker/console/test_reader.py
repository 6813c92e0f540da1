"""The reader of records: damage is reported and not shown."""

from __future__ import annotations

from broker.console.records.pieces import Range
from broker.console.records.reader import _Budget, _opened
from protocol.messages.fetch import PartitionData
from protocol.records.builder import RecordData, build_batch


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
