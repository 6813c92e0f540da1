"""ReadShareGroupStateSummary (87): the group coordinator reads where a share group begins (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct, uuid


@struct
class PartitionData:
    partition: int32
    leader_epoch: int32


@struct
class ReadStateSummaryData:
    topic_id: uuid
    partitions: list[PartitionData]


@message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=range(1), flexible=0)
class ReadShareGroupStateSummaryRequest:
    group_id: string
    topics: list[ReadStateSummaryData]


@struct
class PartitionResult:
    partition: int32
    error_code: int16 = 0
    error_message: string | None = None
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0  # -1: not known yet


@struct
class ReadStateSummaryResult:
    topic_id: uuid
    partitions: list[PartitionResult]


@message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=range(1), flexible=0)
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult]
