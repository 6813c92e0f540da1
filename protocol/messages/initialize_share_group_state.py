"""InitializeShareGroupState (83): the group coordinator begins states of a share group (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct, uuid


@struct
class PartitionData:
    partition: int32
    state_epoch: int32
    start_offset: int64  # -1: not known yet


@struct
class InitializeStateData:
    topic_id: uuid
    partitions: list[PartitionData]


@message(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class InitializeShareGroupStateRequest:
    group_id: string
    topics: list[InitializeStateData]


@struct
class PartitionResult:
    partition: int32
    error_code: int16 = 0
    error_message: string | None = None


@struct
class InitializeStateResult:
    topic_id: uuid
    partitions: list[PartitionResult]


@message(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult]
