"""ShareFetch (78): a member of a share group acknowledges records and acquires others (KIP-932)."""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, int64, message, records_, string, struct, uuid


@struct
class AcknowledgementBatch:
    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]  # one for all, or one for each offset; 0: gap, 1: accept, 2: release, 3: reject


@struct
class FetchPartition:
    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    topic_id: uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic_id: uuid
    partitions: list[int32]


@message(ApiKey.SHARE_FETCH, versions=range(1, 2), flexible=0)
class ShareFetchRequest:
    group_id: string | None = None
    member_id: string | None
    share_session_epoch: int32  # 0: opens a session, -1: closes it
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 0x7FFF_FFFF
    max_records: int32
    batch_size: int32
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = 0
    leader_epoch: int32 = 0


@struct
class AcquiredRecords:
    first_offset: int64
    last_offset: int64
    delivery_count: int16


@struct
class PartitionData:
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: string | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: records_ = b""
    acquired_records: list[AcquiredRecords] = []


@struct
class ShareFetchableTopicResponse:
    topic_id: uuid
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: int32
    host: string
    port: int32
    rack: string | None = None


@message(ApiKey.SHARE_FETCH, versions=range(1, 2), flexible=0)
class ShareFetchResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
