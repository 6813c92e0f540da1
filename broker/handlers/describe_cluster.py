"""DescribeCluster: the cluster's id, controller and brokers (KIP-700)."""

from __future__ import annotations

from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1


def handle(services: Services, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    metadata = services.metadata_cache
    if context.api_version >= 1 and request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type}, expected {BROKERS}: this is a broker's listener",
            cluster_id=metadata.cluster_id,
            brokers=[],
        )
    brokers = []
    for broker in metadata.brokers.values():
        if context.listener in broker.endpoints:
            host, port = broker.endpoints[context.listener]
            brokers.append(DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port, rack=broker.rack))
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id, controller_id=metadata.controller_id, brokers=brokers
    )
