"""InitProducerId (22): gives an idempotent or transactional producer its id and epoch.

v3 lets a producer raise its own epoch (KIP-360), v4 adds PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890).
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, since, string


@message(ApiKey.INIT_PRODUCER_ID, versions=range(0, 6), flexible=2)
class InitProducerIdRequest:
    transactional_id: string | None  # None: only idempotent
    transaction_timeout_ms: int32
    producer_id: int64 = since(3, default=-1)  # -1: requests a new one
    producer_epoch: int16 = since(3, default=-1)


@message(ApiKey.INIT_PRODUCER_ID, versions=range(0, 6), flexible=2)
class InitProducerIdResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = -1
