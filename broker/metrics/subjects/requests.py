"""Metrics of requests by name, and of topics.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from broker.metrics.histogram import distribution
from broker.metrics.metric import Kind, Metric, Sample
from broker.replica.topic_metrics import AllTopicMetrics
from broker.requests.request_metrics import RequestMetrics
from protocol.errors import ErrorCode

FETCH, PRODUCE = "Fetch", "Produce"
FETCH_PARTS = ("FetchConsumer", "FetchFollower")
"""The names that Fetch requests are counted under; `FETCH` is their sum."""

ALL: Collection[str] = ()
CONVERTING = (PRODUCE, FETCH, *FETCH_PARTS)

MS_PER_S = 1000.0

_ERROR_NAMES: Mapping[int, str] = MappingProxyType({int(code): code.name for code in ErrorCode})

PARTS: tuple[tuple[str, str, float, Collection[str], str], ...] = (
    ("TotalTimeMs", "total_s", MS_PER_S, ALL, "From the arrival of a request until its response was sent."),
    ("RequestQueueTimeMs", "queue_s", MS_PER_S, ALL, "Time that requests waited before they were decoded."),
    ("LocalTimeMs", "local_s", MS_PER_S, ALL, "Work on requests, with waits for this broker's disks and threads."),
    ("RemoteTimeMs", "remote_s", MS_PER_S, ALL, "Waits for replicas, records, group members or the controller."),
    ("ThrottleTimeMs", "throttle_s", MS_PER_S, ALL, "Time for which connections were muted after responses."),
    ("ResponseQueueTimeMs", "response_queue_s", MS_PER_S, ALL, "Time that complete responses waited to be written."),
    ("ResponseSendTimeMs", "send_s", MS_PER_S, ALL, "Time to hand responses to the socket."),
    ("RequestBytes", "size", 1.0, ALL, "Bytes of requests."),
    ("TemporaryMemoryBytes", "temporary_size", 1.0, CONVERTING, "Bytes allocated to open or convert records."),
    (
        "MessageConversionsTimeMs",
        "conversion_s",
        MS_PER_S,
        CONVERTING,
        "Time spent on converting records.",
    ),
)
"""Name, field of `RequestParts`, factor to the unit, request names that have it, text."""

_TOPIC_METERS = (
    ("MessagesInPerSec", "messages_in", "Records appended."),
    ("BytesInPerSec", "bytes_in", "Bytes of records appended."),
    ("BytesOutPerSec", "bytes_out", "Bytes of records sent to consumers."),
    ("BytesRejectedPerSec", "bytes_rejected", "Bytes of records above max.message.bytes."),
    ("TotalProduceRequestsPerSec", "total_produce_requests", "Partitions in Produce requests."),
    ("TotalFetchRequestsPerSec", "total_fetch_requests", "Partitions read by Fetch requests."),
    ("FailedProduceRequestsPerSec", "failed_produce_requests", "Partitions that Produce requests failed for."),
    ("FailedFetchRequestsPerSec", "failed_fetch_requests", "Partitions that Fetch requests failed for."),
    ("ProduceMessageConversionsPerSec", "produce_message_conversions", "Records converted from older formats."),
    ("FetchMessageConversionsPerSec", "fetch_message_conversions", "Records converted to older formats."),
    (
        "NoKeyCompactedTopicRecordsPerSec",
        "no_key_compacted_topic_records",
        "Records rejected because they have no key and the topic is compacted.",
    ),
    (
        "InvalidMagicNumberRecordsPerSec",
        "invalid_magic_number_records",
        "Batches rejected because of their magic number.",
    ),
    (
        "InvalidMessageCrcRecordsPerSec",
        "invalid_message_crc_records",
        "Batches rejected because of their checksum, or because they are cut short.",
    ),
    (
        "InvalidOffsetOrSequenceRecordsPerSec",
        "invalid_offset_or_sequence_records",
        "Batches rejected because of their offsets or sequence numbers.",
    ),
)
_BROKER_METERS = (
    ("ReplicationBytesInPerSec", "replication_bytes_in", "Bytes of records fetched from leaders."),
    ("ReplicationBytesOutPerSec", "replication_bytes_out", "Bytes of records sent to followers."),
    ("ReassignmentBytesInPerSec", "reassignment_bytes_in", "Bytes fetched from leaders for reassignments."),
    ("ReassignmentBytesOutPerSec", "reassignment_bytes_out", "Bytes sent to followers for reassignments."),
)


def request_metrics(metrics: Mapping[str, RequestMetrics]) -> Iterator[Metric]:
    """Return the metrics of all requests; `metrics` has them by request name."""
    bean = "kafka.network:type=RequestMetrics"
    yield Metric(
        Kind.METER, f"{bean},name=RequestsPerSec", "Requests.", lambda: _requests(metrics), ("request", "version")
    )
    yield Metric(
        Kind.METER,
        f"{bean},name=DeprecatedRequestsPerSec",
        "Requests of versions that Kafka 4.0 no longer serves (KIP-896), by client library.",
        lambda: _deprecated(metrics),
        ("request", "version", "clientSoftwareName", "clientSoftwareVersion"),
    )
    yield Metric(
        Kind.METER,
        f"{bean},name=ErrorsPerSec",
        "Error codes in responses.",
        lambda: _errors(metrics),
        ("request", "error"),
    )
    for name, part, factor, only, text in PARTS:
        read = partial(_distributions, metrics, part, factor, only)
        yield Metric(Kind.HISTOGRAM, f"{bean},name={name}", text, read, ("request",))


def topic_metrics(topics: AllTopicMetrics) -> Iterator[Metric]:
    """Return the metrics of all topics together, and of each one."""
    bean = "kafka.server:type=BrokerTopicMetrics"
    for name, fact, text in _TOPIC_METERS:
        yield Metric(Kind.METER, f"{bean},name={name}", text, partial(_topics, topics, fact), ("topic",))
    for name, fact, text in _BROKER_METERS:
        yield Metric(Kind.METER, f"{bean},name={name}", text, partial(_total, topics, fact))


def _named(metrics: Mapping[str, RequestMetrics]) -> Iterator[tuple[str, Sequence[RequestMetrics]]]:
    """Each request name with what counts its requests."""
    for name, one in metrics.items():
        yield name, [metrics[part] for part in FETCH_PARTS] if name == FETCH else [one]


def _requests(metrics: Mapping[str, RequestMetrics]) -> Iterator[Sample]:
    for name, counted in _named(metrics):
        counts: Counter[int] = Counter()
        for one in counted:
            counts.update(one.counts)
        for version, count in sorted(counts.items()):
            yield (name, str(version)), count


def _deprecated(metrics: Mapping[str, RequestMetrics]) -> Iterator[Sample]:
    for name, one in metrics.items():
        for (version, *software), count in sorted(one.deprecated.items()):
            yield (name, str(version), *software), count


def _errors(metrics: Mapping[str, RequestMetrics]) -> Iterator[Sample]:
    for name, counted in _named(metrics):
        errors: Counter[int] = Counter()
        for one in counted:
            errors.update(one.errors)
        for code, count in sorted(errors.items()):
            yield (name, _ERROR_NAMES.get(code, str(code))), count


def _distributions(
    metrics: Mapping[str, RequestMetrics], part: str, factor: float, only: Collection[str]
) -> Iterator[Sample | None]:
    for name, counted in _named(metrics):
        if only and name not in only:
            continue
        total = factor * sum(getattr(one.sums, part) for one in counted)
        sample = [factor * getattr(parts, part) for one in counted for parts in one.sample.values()]
        yield (name,), distribution(sum(one.count for one in counted), total, sample)
        if sample:
            yield None


def _topics(topics: AllTopicMetrics, fact: str) -> Iterator[Sample]:
    """The sum, which has no topic, then each topic."""
    by_topic = [(topic, getattr(metrics, fact)) for topic, metrics in topics.by_topic.items()]
    yield from _total(topics, fact)
    for topic, value in by_topic:
        yield (topic,), value


def _total(topics: AllTopicMetrics, fact: str) -> Iterator[Sample]:
    yield (), getattr(topics.others, fact) + sum(getattr(metrics, fact) for metrics in topics.by_topic.values())
