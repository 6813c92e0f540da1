"""TxnOffsetCommit (28): stores the offsets of a group within a transaction.

v2 adds leader epochs, v3 checks member and generation (KIP-447), v4 adds TRANSACTION_ABORTABLE, v5 adds the partition
of the group to the transaction (KIP-890).
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, since, string, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since(2, ignorable=True, default=-1)
    committed_metadata: string | None


@struct
class TxnOffsetCommitRequestTopic:
    name: string
    partitions: list[TxnOffsetCommitRequestPartition]


@message(ApiKey.TXN_OFFSET_COMMIT, versions=range(0, 6), flexible=3)
class TxnOffsetCommitRequest:
    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: int32 = since(3, default=-1)
    member_id: string = since(3, default="")
    group_instance_id: string | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int32
    error_code: int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: string
    partitions: list[TxnOffsetCommitResponsePartition]


@message(ApiKey.TXN_OFFSET_COMMIT, versions=range(0, 6), flexible=3)
class TxnOffsetCommitResponse:
    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]
