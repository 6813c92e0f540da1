"""ListTransactions (66): lists the transactions that a broker coordinates (KIP-664).

v1 filters by duration (KIP-994), v2 by a regular expression (KIP-1152).
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, since, string, struct


@message(ApiKey.LIST_TRANSACTIONS, versions=range(0, 3), flexible=0)
class ListTransactionsRequest:
    state_filters: list[string]
    producer_id_filters: list[int64]
    duration_filter: int64 = since(1, default=-1)  # milliseconds; below 0: any
    transactional_id_pattern: string | None = since(2, default=None)  # RE2; None or empty: any


@struct
class TransactionState:
    transactional_id: string
    producer_id: int64
    transaction_state: string


@message(ApiKey.LIST_TRANSACTIONS, versions=range(0, 3), flexible=0)
class ListTransactionsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[string] = []
    transaction_states: list[TransactionState] = []
