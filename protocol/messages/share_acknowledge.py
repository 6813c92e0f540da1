"""ShareAcknowledge (79): a member of a share group acknowledges records without fetching others (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from protocol.schema import int16, int32, message, string, struct, uuid


@struct
class AcknowledgePartition:
    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    topic_id: uuid
    partitions: list[AcknowledgePartition]


@message(ApiKey.SHARE_ACKNOWLEDGE, versions=range(1, 2), flexible=0)
class ShareAcknowledgeRequest:
    group_id: string | None = None
    member_id: string | None
    share_session_epoch: int32  # -1: closes the session
    topics: list[AcknowledgeTopic]


@struct
class PartitionData:
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: uuid
    partitions: list[PartitionData]


@message(ApiKey.SHARE_ACKNOWLEDGE, versions=range(1, 2), flexible=0)
class ShareAcknowledgeResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
