"""DeleteRecords (21): deletes the records below an offset.

v1 throttles after the response, v2 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct


@struct
class DeleteRecordsPartition:
    partition_index: int32
    offset: int64  # -1: the high watermark


@struct
class DeleteRecordsTopic:
    name: string
    partitions: list[DeleteRecordsPartition]


@message(ApiKey.DELETE_RECORDS, versions=range(0, 3), flexible=2)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: int32
    low_watermark: int64 = -1
    error_code: int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: string
    partitions: list[DeleteRecordsPartitionResult]


@message(ApiKey.DELETE_RECORDS, versions=range(0, 3), flexible=2)
class DeleteRecordsResponse:
    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult]
