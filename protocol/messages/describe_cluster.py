"""DescribeCluster (60): returns the cluster id, the controller and the brokers (KIP-700).

v1 adds the type of endpoint (KIP-919), v2 brokers that are fenced, which only KRaft has (KIP-1073).
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int8, int16, int32, message, since, string, struct


@message(ApiKey.DESCRIBE_CLUSTER, versions=range(0, 3), flexible=0)
class DescribeClusterRequest:
    include_cluster_authorized_operations: boolean
    endpoint_type: int8 = since(1, default=1)  # 1: brokers, 2: controllers
    include_fenced_brokers: boolean = since(2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: int32
    host: string
    port: int32
    rack: string | None = None
    is_fenced: boolean = since(2, default=False)


@message(ApiKey.DESCRIBE_CLUSTER, versions=range(0, 3), flexible=0)
class DescribeClusterResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    endpoint_type: int8 = since(1, default=1)
    cluster_id: string
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = -0x8000_0000  # the lowest number: not requested
