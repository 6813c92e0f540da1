"""AddPartitionsToTxn (24): adds partitions to a transaction, or verifies that they are in it.

v0-3 serve one producer. v4+ serve brokers: many transactions in a request, for verification only if so marked
(KIP-890).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, since, string, struct


@struct
class AddPartitionsToTxnTopic:
    name: string
    partitions: list[int32]


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    verify_only: boolean = False
    topics: list[AddPartitionsToTxnTopic]


@message(ApiKey.ADD_PARTITIONS_TO_TXN, versions=range(0, 6), flexible=3)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = since(4, default=[])
    v3_and_below_transactional_id: string = since(0, until=3, default="")
    v3_and_below_producer_id: int64 = since(0, until=3, default=0)
    v3_and_below_producer_epoch: int16 = since(0, until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, until=3, default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int32
    partition_error_code: int16


@struct
class AddPartitionsToTxnTopicResult:
    name: string
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: string
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(ApiKey.ADD_PARTITIONS_TO_TXN, versions=range(0, 6), flexible=3)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = since(4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(0, until=3, default=[])
