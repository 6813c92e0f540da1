"""FindCoordinator (10): finds the coordinator of groups or transactions.

v1 adds the type of the key, v4 several keys in a request, v6 the code TRANSACTION_ABORTABLE (KIP-890).
"""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, message, since, string, struct


@message(ApiKey.FIND_COORDINATOR, versions=range(0, 7), flexible=3)
class FindCoordinatorRequest:
    key: string = since(0, until=3, default="")
    key_type: int8 = since(1, default=0)  # 0: group, 1: transaction
    coordinator_keys: list[string] = since(4, default=[])


@struct
class Coordinator:
    key: string
    node_id: int32 = -1
    host: string = ""
    port: int32 = -1
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.FIND_COORDINATOR, versions=range(0, 7), flexible=3)
class FindCoordinatorResponse:
    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = since(0, until=3, default=0)
    error_message: string | None = since(1, until=3, default=None)
    node_id: int32 = since(0, until=3, default=-1)
    host: string = since(0, until=3, default="")
    port: int32 = since(0, until=3, default=-1)
    coordinators: list[Coordinator] = since(4, default=[])
