"""DeleteShareGroupState (86): the group coordinator ends states of a share group (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, message, string, struct, uuid


@struct
class PartitionData:
    partition: int32


@struct
class DeleteStateData:
    topic_id: uuid
    partitions: list[PartitionData]


@message(ApiKey.DELETE_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class DeleteShareGroupStateRequest:
    group_id: string
    topics: list[DeleteStateData]


@struct
class PartitionResult:
    partition: int32
    error_code: int16 = 0
    error_message: string | None = None


@struct
class DeleteStateResult:
    topic_id: uuid
    partitions: list[PartitionResult]


@message(ApiKey.DELETE_SHARE_GROUP_STATE, versions=range(1), flexible=0)
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult]
