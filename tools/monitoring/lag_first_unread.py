"""When the first record was produced that a group has not read: the age of its lag.

Owns the Fetch requests, and what they found. Must not know groups.

One record costs one request, which returns the batch that holds it. A time is kept while it is asked for, so that a
group that stands still costs nothing, and a reading sends at most `READS_MAX` requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple
from uuid import UUID

from base.topic_partition import TopicPartition
from protocol.errors import Malformed
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import Parts, batches
from protocol.records.entries import entry_records

READS_MAX: Final = 100
"""Records that one reading asks for. The partitions with the largest lag come first."""
FETCH_SIZE: Final = 16 << 10
"""Bytes of one response. A broker returns at least one batch, whatever its size."""


class Unread(NamedTuple):
    """The first offset that was not read in a partition, and the end of the partition, which is greater."""

    partition: TopicPartition
    offset: int
    end: int


class Source(NamedTuple):
    """Where a partition is read."""

    leader: int
    topic_id: UUID


NOTHING_WAITS: Final = 1 << 63
"""The time of a partition in which only transaction markers are unread: it is later than any other."""

Fetch = Callable[[int, FetchRequest], FetchResponse | None]
"""Returns the response of a broker, None if it failed."""


class FirstUnread:
    """The timestamps of first unread records, as their producers have set them."""

    def __init__(self) -> None:
        self._times: dict[tuple[TopicPartition, int], int] = {}
        self._without_records: set[Unread] = set()

    def read(
        self, behind: AbstractSet[Unread], sources: Mapping[TopicPartition, Source], fetch: Fetch
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the times by partition and offset. Those missing are unknown: not read yet, or not readable."""
        wanted = {(each.partition, each.offset) for each in behind}
        self._times = {key: time_ms for key, time_ms in self._times.items() if key in wanted}
        self._without_records &= behind
        unknown = [
            each
            for each in behind
            if (each.partition, each.offset) not in self._times and each not in self._without_records
        ]
        unknown.sort(key=lambda each: (each.offset - each.end, each.partition, each.offset))
        for each in unknown[:READS_MAX]:
            found = first_time_ms(_fetched(each, sources[each.partition], fetch), each)
            if found == NOTHING_WAITS:
                self._without_records.add(each)
            elif found is not None:
                self._times[each.partition, each.offset] = found
        nothing_waits = {(each.partition, each.offset): NOTHING_WAITS for each in self._without_records}
        return self._times | nothing_waits


def first_time_ms(data: bytes, unread: Unread) -> int | None:
    """Return the timestamp of the first unread record in batches, `NOTHING_WAITS` if there is none up to the end.

    None if it is not in these batches, or is in a format older than 0.11.
    """
    next_offset = unread.offset
    try:
        for position, header in batches(data):
            next_offset = header.next_offset
            if header.is_control or next_offset <= unread.offset:
                continue
            for record in entry_records(data, position, parts=Parts.OUTLINE):
                if record.offset >= unread.offset:
                    return record.timestamp
    except Malformed:
        return None
    return NOTHING_WAITS if next_offset >= unread.end else None


def _fetched(unread: Unread, source: Source, fetch: Fetch) -> bytes:
    """Return the batches from the first unread offset on; none if they cannot be read."""
    topic, index = unread.partition
    partition = FetchPartition(partition=index, fetch_offset=unread.offset, partition_max_bytes=FETCH_SIZE)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_SIZE,
        topics=[FetchTopic(topic=topic, topic_id=source.topic_id, partitions=[partition])],
    )
    response = fetch(source.leader, request)
    parts = [part for topic in response.responses for part in topic.partitions] if response is not None else []
    return b"".join(bytes(part.records or b"") for part in parts if not part.error_code)
