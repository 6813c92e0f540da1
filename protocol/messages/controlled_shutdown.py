"""ControlledShutdown (7): a broker asks the controller to move leadership off it before it stops.

v0 has its own request header, without a client id. v2 adds the broker epoch (KIP-380).
"""

from protocol.api_key import ApiKey
from protocol.schema import int16, int32, int64, message, since, string, struct


@message(ApiKey.CONTROLLED_SHUTDOWN, versions=range(0, 4), flexible=3)
class ControlledShutdownRequest:
    broker_id: int32
    broker_epoch: int64 = since(2, ignorable=True, default=-1)


@struct
class RemainingPartition:
    topic_name: string
    partition_index: int32


@message(ApiKey.CONTROLLED_SHUTDOWN, versions=range(0, 4), flexible=3)
class ControlledShutdownResponse:
    error_code: int16 = 0
    remaining_partitions: list[RemainingPartition] = []
