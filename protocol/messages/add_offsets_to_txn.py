"""AddOffsetsToTxn (25): adds the offsets of a group to a transaction.

v3 is flexible, v4 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, string


@message(ApiKey.ADD_OFFSETS_TO_TXN, versions=range(0, 5), flexible=3)
class AddOffsetsToTxnRequest:
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


@message(ApiKey.ADD_OFFSETS_TO_TXN, versions=range(0, 5), flexible=3)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
