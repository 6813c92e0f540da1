"""OffsetCommit (8): stores the offsets that a group has consumed.

v0 stored in ZooKeeper, v1+ in the coordinator with generation and member, v1 alone with a timestamp each. v2-4 let
the client choose the retention, v6 adds leader epochs, v7 static members.
"""

from typing import NamedTuple

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, since, string, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since(6, ignorable=True, default=-1)
    commit_timestamp: int64 = since(1, until=1, default=-1)
    committed_metadata: string | None


@struct
class OffsetCommitRequestTopic:
    name: string
    partitions: list[OffsetCommitRequestPartition]


@message(ApiKey.OFFSET_COMMIT, versions=range(0, 10), flexible=8)
class OffsetCommitRequest:
    group_id: string
    generation_id_or_member_epoch: int32 = since(1, ignorable=True, default=-1)  # -1: not a member
    member_id: string = since(1, ignorable=True, default="")
    group_instance_id: string | None = since(7, default=None)
    retention_time_ms: int64 = since(2, until=4, ignorable=True, default=-1)  # -1: the broker's configuration
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitRow(NamedTuple):
    """One partition of a request."""

    name: str
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    commit_timestamp: int
    committed_metadata: str | None


class ScannedOffsetCommit(NamedTuple):
    """The result of scanning an OffsetCommitRequest (`protocol.scanner`)."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRow]


@struct
class OffsetCommitResponsePartition:
    partition_index: int32
    error_code: int16 = 0


@struct
class OffsetCommitResponseTopic:
    name: string
    partitions: list[OffsetCommitResponsePartition]


@message(ApiKey.OFFSET_COMMIT, versions=range(0, 10), flexible=8)
class OffsetCommitResponse:
    throttle_time_ms: int32 = since(3, default=0)
    topics: list[OffsetCommitResponseTopic]
