"""DescribeTransactions (65): returns the state of transactions (KIP-664)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string, struct


@message(ApiKey.DESCRIBE_TRANSACTIONS, versions=range(0, 1), flexible=0)
class DescribeTransactionsRequest:
    transactional_ids: list[string]


@struct
class TopicData:
    topic: string
    partitions: list[int32]


@struct
class TransactionState:
    error_code: int16 = 0
    transactional_id: string
    transaction_state: string = ""
    transaction_timeout_ms: int32 = 0
    transaction_start_time_ms: int64 = 0
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    topics: list[TopicData] = []


@message(ApiKey.DESCRIBE_TRANSACTIONS, versions=range(0, 1), flexible=0)
class DescribeTransactionsResponse:
    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState]
