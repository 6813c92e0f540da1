"""ListConfigResources: the names of what can have configurations (KIP-1142)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.cluster.metadata_cache import MetadataCache
from broker.groups.group_configs import GroupConfigs
from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from broker.settings.config_changes import ResourceType
from broker.telemetry.client_instances import ClientInstances
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

LISTED = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)

API = Declaration(ApiKey.LIST_CONFIG_RESOURCES, permissions=Permissions(cluster=Operation.DESCRIBE_CONFIGS))


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    client_instances: ClientInstances
    group_configs: GroupConfigs
    metadata_cache: MetadataCache
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    supported = LISTED if context.api_version else (ResourceType.CLIENT_METRICS,)
    wanted = set(request.resource_types) or {*supported}
    if not wanted.issubset(supported):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resource types {wanted.difference(supported)}")
    resources = []
    for resource_type in supported:
        for name in _names(services, context, resource_type) if resource_type in wanted else ():
            resources.append(ConfigResource(resource_name=name, resource_type=resource_type))
            await services.sliced_work.pause()
    return ListConfigResourcesResponse(config_resources=resources)


def _names(services: Needs, context: RequestContext, resource_type: int) -> Iterable[str]:
    metadata = services.metadata_cache
    match resource_type:
        case ResourceType.TOPIC:
            return metadata.topics
        case ResourceType.CLIENT_METRICS:
            return sorted(services.client_instances.subscriptions)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            brokers = metadata.brokers.values()
            return [str(broker.node_id) for broker in brokers if context.listener in broker.endpoints]
        case _:
            return sorted(services.group_configs.settings)
