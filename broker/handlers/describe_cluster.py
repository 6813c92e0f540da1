"""DescribeCluster: the cluster's id, controller and brokers (KIP-700)."""

from __future__ import annotations

from broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


def handle(services: Services, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    metadata = services.metadata_cache
    if context.api_version >= 1 and request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return failed(request, context, code)
    brokers = []
    for broker in metadata.brokers.values():
        if context.listener in broker.endpoints:
            host, port = broker.endpoints[context.listener]
            brokers.append(DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port, rack=broker.rack))
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def failed(request: DescribeClusterRequest, context: RequestContext, code: ErrorCode) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, cluster_id="", brokers=[])
