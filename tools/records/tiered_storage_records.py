"""The records of `__remote_log_metadata`, as Apache Kafka 3.9 writes them, for kafka-dump-log.

Owns their layouts and the text in which Kafka prints them. Milena has no tiered storage.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from protocol.errors import Malformed
from protocol.records.batch import Record
from protocol.schema import bytes_, int8, int32, int64, stored, string, struct, uuid
from tools.base.topic_ids import topic_id_text
from tools.records.framed_records import read_framed
from tools.records.record_parsers import ParsedRecord

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


@struct
class TopicIdPartition:
    name: string
    id: uuid
    partition: int32


@struct
class RemoteLogSegmentId:
    topic_id_partition: TopicIdPartition
    id: uuid


@struct
class SegmentLeaderEpoch:
    leader_epoch: int32
    offset: int64


@stored(versions=range(0, 1), flexible=0)
class RemoteLogSegmentMetadataRecord:
    remote_log_segment_id: RemoteLogSegmentId
    start_offset: int64
    end_offset: int64
    broker_id: int32
    max_timestamp_ms: int64
    event_timestamp_ms: int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: int32
    custom_metadata: bytes_ | None
    remote_log_segment_state: int8


@stored(versions=range(0, 1), flexible=0)
class RemoteLogSegmentMetadataUpdateRecord:
    remote_log_segment_id: RemoteLogSegmentId
    broker_id: int32
    event_timestamp_ms: int64
    custom_metadata: bytes_ | None
    remote_log_segment_state: int8


@stored(versions=range(0, 1), flexible=0)
class RemotePartitionDeleteMetadataRecord:
    topic_id_partition: TopicIdPartition
    broker_id: int32
    event_timestamp_ms: int64
    remote_partition_delete_state: int8


@stored(versions=range(0, 1), flexible=0)
class RemoteLogSegmentMetadataSnapshotRecord:
    segment_id: uuid
    start_offset: int64
    end_offset: int64
    broker_id: int32
    max_timestamp_ms: int64
    event_timestamp_ms: int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: int32
    custom_metadata: bytes_ | None
    remote_log_segment_state: int8


REMOTE_LOG_RECORDS: Mapping[int, type] = {
    0: RemoteLogSegmentMetadataRecord,
    1: RemoteLogSegmentMetadataUpdateRecord,
    2: RemotePartitionDeleteMetadataRecord,
    3: RemoteLogSegmentMetadataSnapshotRecord,
}
"""The class of each type."""


def parse_remote_log_record(record: Record) -> ParsedRecord:
    """Parse a record of `__remote_log_metadata`. Its key has no meaning."""
    try:
        payload = _text(read_framed(record.value, REMOTE_LOG_RECORDS).fields)
    except Malformed as error:
        return ParsedRecord(None, f"Error at offset {record.offset}, skipping. {error}")
    return ParsedRecord(None, payload)


def _text(fields: object) -> str:
    if isinstance(fields, RemoteLogSegmentMetadataRecord):
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(fields.remote_log_segment_id)}, "
            f"startOffset={fields.start_offset}, endOffset={fields.end_offset}, brokerId={fields.broker_id}, "
            f"maxTimestampMs={fields.max_timestamp_ms}, eventTimestampMs={fields.event_timestamp_ms}, "
            f"segmentLeaderEpochs={_epochs(fields.segment_leader_epochs)}, "
            f"segmentSizeInBytes={fields.segment_size_in_bytes}, customMetadata={_custom(fields.custom_metadata)}, "
            f"state={_state(fields.remote_log_segment_state, _SEGMENT_STATES)}}}"
        )
    if isinstance(fields, RemoteLogSegmentMetadataUpdateRecord):
        return (
            f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(fields.remote_log_segment_id)}, "
            f"customMetadata={_custom(fields.custom_metadata)}, "
            f"state={_state(fields.remote_log_segment_state, _SEGMENT_STATES)}, "
            f"eventTimestampMs={fields.event_timestamp_ms}, brokerId={fields.broker_id}}}"
        )
    if isinstance(fields, RemotePartitionDeleteMetadataRecord):
        return (
            f"RemotePartitionDeleteMetadata{{topicPartition={_partition(fields.topic_id_partition)}, "
            f"state={_state(fields.remote_partition_delete_state, _PARTITION_STATES)}, "
            f"eventTimestampMs={fields.event_timestamp_ms}, brokerId={fields.broker_id}}}"
        )
    assert isinstance(fields, RemoteLogSegmentMetadataSnapshotRecord)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={topic_id_text(fields.segment_id)}, "
        f"startOffset={fields.start_offset}, endOffset={fields.end_offset}, maxTimestampMs={fields.max_timestamp_ms}, "
        f"segmentLeaderEpochs={_epochs(fields.segment_leader_epochs)}, "
        f"segmentSizeInBytes={fields.segment_size_in_bytes}, customMetadata={_custom(fields.custom_metadata)}, "
        f"state={_state(fields.remote_log_segment_state, _SEGMENT_STATES)}}}"
    )


def _segment_id(segment_id: RemoteLogSegmentId) -> str:
    partition = _partition(segment_id.topic_id_partition)
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={topic_id_text(segment_id.id)}}}"


def _partition(partition: TopicIdPartition) -> str:
    return f"{topic_id_text(partition.id)}:{partition.name}-{partition.partition}"


def _epochs(epochs: Sequence[SegmentLeaderEpoch]) -> str:
    """Return the epochs as Java prints a sorted map."""
    start_offsets = {entry.leader_epoch: entry.offset for entry in epochs}
    return "{" + ", ".join(f"{epoch}={start_offsets[epoch]}" for epoch in sorted(start_offsets)) + "}"


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(number: int, states: Sequence[str]) -> str:
    return states[number] if number in range(len(states)) else "null"
