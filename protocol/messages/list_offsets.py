"""ListOffsets (2): finds offsets by timestamp, or the ends of a partition.

v0 returns a list of segment base offsets, v1+ one exact offset. v2 adds isolation levels, v4 leader epochs, v7 the
offset of the largest timestamp, v8 the earliest local and v9 the latest tiered offset, v10 the timeout of reads from
remote storage.
"""

from typing import NamedTuple

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, int64, message, since, string, struct


@struct
class ListOffsetsPartition:
    partition_index: int32
    current_leader_epoch: int32 = since(4, ignorable=True, default=-1)
    timestamp: int64  # -1: latest, -2: earliest, -3: largest timestamp, -4: earliest local, -5: latest tiered
    max_num_offsets: int32 = since(0, until=0, default=1)


@struct
class ListOffsetsTopic:
    name: string
    partitions: list[ListOffsetsPartition]


@message(ApiKey.LIST_OFFSETS, versions=range(0, 11), flexible=6)
class ListOffsetsRequest:
    replica_id: int32  # -1: a consumer
    isolation_level: int8 = since(2, default=0)  # 0: read uncommitted, 1: read committed
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = since(10, ignorable=True, default=0)


class ListOffsetsTopicRow(NamedTuple):
    """One topic of a scanned request. Its partitions are no rows: the response repeats the topics one by one."""

    name: str
    partitions: list[ListOffsetsPartition]


class ScannedListOffsets(NamedTuple):
    """The result of scanning a ListOffsetsRequest (`protocol.scanner`)."""

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopicRow]


@struct
class ListOffsetsPartitionResponse:
    partition_index: int32
    error_code: int16 = 0
    old_style_offsets: list[int64] = since(0, until=0, default=[])
    timestamp: int64 = since(1, default=-1)
    offset: int64 = since(1, default=-1)
    leader_epoch: int32 = since(4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: string
    partitions: list[ListOffsetsPartitionResponse]


@message(ApiKey.LIST_OFFSETS, versions=range(0, 11), flexible=6)
class ListOffsetsResponse:
    throttle_time_ms: int32 = since(2, default=0)
    topics: list[ListOffsetsTopicResponse]
