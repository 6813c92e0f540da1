"""The time of the first unread record, from the batches that hold it."""

from __future__ import annotations

import pytest

from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.records.batch import BASE_OFFSET, NO_TIMESTAMP
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker
from protocol.schema import ZERO_UUID
from tools.monitoring.lag_first_unread import NOTHING_WAITS, READS_MAX, FirstUnread, Source, Unread, first_time_ms

BATCH = build_batch([RecordData(100 + number, None, b"v") for number in range(5)], base_offset=10)
MARKER = (
    BASE_OFFSET.pack(15)
    + build_marker(TransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, now_ms=7)[
        BASE_OFFSET.size :
    ]
)


@pytest.mark.parametrize(
    ("data", "offset", "time_ms"),
    [
        (BATCH, 10, 100),
        (BATCH, 13, 103),
        (BATCH, 5, 100),  # offsets 5 to 9 were removed by compaction
        (MARKER + build_batch([RecordData(9, None, b"v")], base_offset=16), 15, 9),
        (build_batch([RecordData(NO_TIMESTAMP, None, b"v")], base_offset=10), 10, NO_TIMESTAMP),
        (build_batch([RecordData(1_700_000_000 * 10**9, None, b"v")], base_offset=10), 10, 1_700_000_000 * 10**9),
        (BATCH[:-1], 10, None),
        (b"\0" * 100, 10, None),
        (b"", 10, None),
        (MARKER, 15, None),
    ],
)
def test_age_is_that_of_the_first_unread_record(data: bytes, offset: int, time_ms: int | None) -> None:
    assert first_time_ms(data, Unread(("t", 0), offset, 20)) == time_ms


def test_nothing_waits_behind_a_last_marker() -> None:
    assert first_time_ms(MARKER, Unread(("t", 0), 15, 16)) == NOTHING_WAITS


class Leader:
    """Returns the same batches for each request."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests = 0

    def fetch(self, broker_id: int, request: FetchRequest) -> FetchResponse:
        assert broker_id == 7
        self.requests += 1
        part = PartitionData(partition_index=0, records=self.data)
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[part])])


def test_one_reading_sends_a_limited_number_of_requests() -> None:
    leader = Leader(BATCH)
    count = 2 * READS_MAX + 1
    behind = {Unread(("t", number), 10, 20 + number) for number in range(count)}
    sources = {each.partition: Source(7, ZERO_UUID) for each in behind}
    reader = FirstUnread()
    assert reader.read(behind, sources, leader.fetch).keys() == {
        (("t", number), 10) for number in range(READS_MAX + 1, count)
    }
    assert leader.requests == READS_MAX
    for _ in range(3):
        found = reader.read(behind, sources, leader.fetch)
    assert (len(found), leader.requests) == (count, count)


def test_records_after_a_last_marker_are_found() -> None:
    leader = Leader(MARKER)
    sources = {("t", 0): Source(7, ZERO_UUID)}
    reader = FirstUnread()
    for _ in range(2):
        assert reader.read({Unread(("t", 0), 15, 16)}, sources, leader.fetch) == {(("t", 0), 15): NOTHING_WAITS}
    assert leader.requests == 1
    leader.data = MARKER + build_batch([RecordData(9, None, b"v")], base_offset=16)
    assert reader.read({Unread(("t", 0), 15, 17)}, sources, leader.fetch) == {(("t", 0), 15): 9}
