"""DescribeCluster: the cluster's id, controller and brokers (KIP-700)."""

from __future__ import annotations

from typing import Protocol

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from broker.security.acls import ResourceType
from broker.security.authorizer import NOT_ASKED, Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


API = Declaration(ApiKey.DESCRIBE_CLUSTER)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    metadata_cache: MetadataCache


def handle(services: Needs, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    metadata = services.metadata_cache
    if context.api_version >= 1 and request.endpoint_type != BROKERS:
        return _refused(request.endpoint_type)
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
            services.authorizer.operations(context, ResourceType.CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


def failed(request: DescribeClusterRequest, context: RequestContext, code: ErrorCode) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, cluster_id="", brokers=[])
