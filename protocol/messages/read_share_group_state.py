"""ReadShareGroupState (84): the leader of a partition reads how far a share group is in it (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.messages.write_share_group_state import StateBatch
from protocol.schema import int16, int32, int64, message, string, struct, uuid


@struct
class PartitionData:
    partition: int32
    leader_epoch: int32


@struct
class ReadStateData:
    topic_id: uuid
    partitions: list[PartitionData]


@message(ApiKey.READ_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class ReadShareGroupStateRequest:
    group_id: string
    topics: list[ReadStateData]


@struct
class PartitionResult:
    partition: int32
    error_code: int16 = 0
    error_message: string | None = None
    state_epoch: int32 = 0
    start_offset: int64 = 0  # -1: not known yet
    state_batches: list[StateBatch] = []


@struct
class ReadStateResult:
    topic_id: uuid
    partitions: list[PartitionResult]


@message(ApiKey.READ_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class ReadShareGroupStateResponse:
    results: list[ReadStateResult]
