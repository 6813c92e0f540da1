"""AllocateProducerIds (67): a broker asks the controller for a block of producer ids (KIP-730)."""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message


@message(ApiKey.ALLOCATE_PRODUCER_IDS, versions=range(0, 1), flexible=0)
class AllocateProducerIdsRequest:
    broker_id: int32
    broker_epoch: int64 = -1


@message(ApiKey.ALLOCATE_PRODUCER_IDS, versions=range(0, 1), flexible=0)
class AllocateProducerIdsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64 = 0
    producer_id_len: int32 = 0
