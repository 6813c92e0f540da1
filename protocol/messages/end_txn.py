"""EndTxn (26): commits or aborts a transaction.

v2 adds PRODUCER_FENCED, v3 is flexible, v4 adds TRANSACTION_ABORTABLE, v5 raises the epoch of the producer (KIP-890).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, since, string


@message(ApiKey.END_TXN, versions=range(0, 6), flexible=3)
class EndTxnRequest:
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean  # False: abort


@message(ApiKey.END_TXN, versions=range(0, 6), flexible=3)
class EndTxnResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = since(5, ignorable=True, default=-1)
    producer_epoch: int16 = since(5, ignorable=True, default=-1)
