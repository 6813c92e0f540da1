"""Metrics of topics (`BrokerTopicMetrics` of Kafka).

Owns: the counts, and the totals over all topics. Must not know: how metrics are shown.

A partition holds the counts of its topic, so that an append or a read adds to one object. Totals are sums, made when a
scrape needs them; the counts of topics that are no longer here stay part of them. Requests for partitions that are not
here count in the totals alone, so that no client can fill the memory with names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from protocol.errors import ErrorCode
from storage.batches.validation import NO_CONVERSION, Refusal, RejectionMeter
from storage.log.log_appends import AppendResult

EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that are no failure of a request, as in Kafka: clients meet them when leaders move or records are deleted."""


class TopicMetrics:
    """The counts of one topic, or of several."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_message_conversions",
        "invalid_magic_number_records",
        "invalid_message_crc_records",
        "invalid_offset_or_sequence_records",
        "messages_in",
        "no_key_compacted_topic_records",
        "partition_count",
        "produce_message_conversions",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.partition_count = 0
        """Partitions hosted here."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of records sent to consumers."""
        self.bytes_rejected = 0
        """Bytes of records that are larger than `max.message.bytes`."""
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        """Bytes of records sent to followers."""
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.total_produce_requests = 0
        """Partitions in Produce requests."""
        self.total_fetch_requests = 0
        """Partitions in Fetch requests; in those of a session, partitions with news."""
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.produce_message_conversions = 0
        """Records converted from older formats."""
        self.fetch_message_conversions = 0
        """Records converted to older formats."""
        self.no_key_compacted_topic_records = 0
        self.invalid_magic_number_records = 0
        self.invalid_message_crc_records = 0
        self.invalid_offset_or_sequence_records = 0

    def appended(self, size: int, result: AppendResult) -> None:
        """Count records of `size` bytes that were appended."""
        first_offset, last_offset, _, _, _, conversion = result
        self.total_produce_requests += 1
        self.bytes_in += size
        if first_offset >= 0:
            self.messages_in += last_offset - first_offset + 1
        if conversion is not NO_CONVERSION:
            self.produce_message_conversions += conversion.records_converted

    def refused(self, refusal: Refusal, size: int) -> None:
        """Count records of `size` bytes that were not appended."""
        self.total_produce_requests += 1
        if refusal.code is ErrorCode.MESSAGE_TOO_LARGE:
            self.bytes_rejected += size
        if refusal.code not in EXPECTED_ERRORS:
            self.failed_produce_requests += 1
        if refusal.meter is not None:
            name = _REJECTIONS[refusal.meter]
            setattr(self, name, getattr(self, name) + 1)

    def fetched(self, code: int, size: int, *, is_follower: bool) -> None:
        """Count what one partition adds to the response of a fetch."""
        self.total_fetch_requests += 1
        if is_follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size
        if code and code not in EXPECTED_ERRORS:
            self.failed_fetch_requests += 1

    def add(self, other: TopicMetrics) -> None:
        """Add the counts of `other`."""
        for name in TopicMetrics.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_REJECTIONS: Mapping[RejectionMeter, str] = MappingProxyType(
    {
        RejectionMeter.INVALID_MAGIC_NUMBER: "invalid_magic_number_records",
        RejectionMeter.INVALID_MESSAGE_CRC: "invalid_message_crc_records",
        RejectionMeter.INVALID_OFFSET_OR_SEQUENCE: "invalid_offset_or_sequence_records",
        RejectionMeter.NO_KEY_COMPACTED_TOPIC: "no_key_compacted_topic_records",
    }
)


class AllTopicMetrics:
    """The counts of every topic with a partition on this broker."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicMetrics] = {}
        self.others = TopicMetrics()
        """Counts of partitions that are not hosted here, or no longer."""

    @property
    def by_topic(self) -> Mapping[str, TopicMetrics]:
        return MappingProxyType(self._topics)

    def opened(self, topic: str) -> TopicMetrics:
        """Return the counts of a topic of which one more partition is hosted here."""
        metrics = self._topics.setdefault(topic, TopicMetrics())
        metrics.partition_count += 1
        return metrics

    def closed(self, topic: str) -> None:
        """Note that a partition of `topic` is no longer hosted here. The last one ends the topic's own counts."""
        metrics = self._topics[topic]
        metrics.partition_count -= 1
        if not metrics.partition_count:
            self.others.add(self._topics.pop(topic))
