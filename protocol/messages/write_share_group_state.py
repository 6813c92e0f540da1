"""WriteShareGroupState (85): the leader of a partition stores what a share group has done in it (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, int64, message, string, struct, uuid


@struct
class StateBatch:
    """Consecutive records in the same state."""

    first_offset: int64
    last_offset: int64
    delivery_state: int8  # 0: available, 2: acknowledged, 4: archived
    delivery_count: int16


@struct
class PartitionData:
    partition: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64  # -1: as before
    state_batches: list[StateBatch]


@struct
class WriteStateData:
    topic_id: uuid
    partitions: list[PartitionData]


@message(ApiKey.WRITE_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class WriteShareGroupStateRequest:
    group_id: string
    topics: list[WriteStateData]


@struct
class PartitionResult:
    partition: int32
    error_code: int16 = 0
    error_message: string | None = None


@struct
class WriteStateResult:
    topic_id: uuid
    partitions: list[PartitionResult]


@message(ApiKey.WRITE_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class WriteShareGroupStateResponse:
    results: list[WriteStateResult]
