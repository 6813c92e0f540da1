"""Produce (0): appends record batches to partitions.

acks 0 has no response. v0-2 may carry message sets of magic 0 or 1, v3+ one batch of magic 2 per partition, v7+
zstd. v3 adds transactions, v8 errors of single records (KIP-467), v10 the new leader (KIP-951), v11 the code
TRANSACTION_ABORTABLE, v12 adds the partitions to the transaction of the producer (KIP-890).
"""

from typing import NamedTuple

from protocol.api_key import ApiKey
from protocol.schema import Records, int16, int32, int64, message, records_, since, string, struct


@struct
class PartitionProduceData:
    index: int32
    records: records_ | None


@struct
class TopicProduceData:
    name: string
    partition_data: list[PartitionProduceData]


@message(ApiKey.PRODUCE, versions=range(0, 13), flexible=9)
class ProduceRequest:
    transactional_id: string | None = since(3, default=None)
    acks: int16  # 0: no response, 1: once the leader has it, -1: once all in-sync replicas have it
    timeout_ms: int32
    topic_data: list[TopicProduceData]


class ProduceRow(NamedTuple):
    """One partition of a request."""

    name: str
    index_: int
    records: Records | None


class ScannedProduce(NamedTuple):
    """The result of scanning a ProduceRequest (`protocol.scanner`)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[ProduceRow]


@struct
class BatchIndexAndErrorMessage:
    batch_index: int32  # of the record within its batch
    batch_index_error_message: string | None = None


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class PartitionProduceResponse:
    index: int32
    error_code: int16 = 0
    base_offset: int64 = -1
    log_append_time_ms: int64 = since(2, default=-1)  # -1 with CreateTime
    log_start_offset: int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, default=[])
    error_message: string | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch | None = since(10, tag=0, default=None)


@struct
class TopicProduceResponse:
    name: string
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: int32
    host: string
    port: int32
    rack: string | None = None


@message(ApiKey.PRODUCE, versions=range(0, 13), flexible=9)
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = since(1, default=0)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0, default=[])
