"""DescribeConfigs: effective settings of brokers, topics, loggers, groups and subscriptions, with their sources.

Version notes: v0 has is_default instead of a source; v1 synonyms; v3 types and documentation.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_configs import TopicConfigs
from broker.groups.group_configs import GroupConfigs
from broker.handlers.config_permissions import authorize_resources
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from broker.settings.config_changes import ResourceType
from broker.settings.logger_levels import describe_loggers
from broker.telemetry.client_instances import ClientInstances
from config.broker import BrokerConfig
from config.definition import Source
from config.describe import (
    ConfigRow,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from controller.machine.topic_creation import topic_name_problem
from protocol.api_key import ApiKey
from protocol.codec import encode_element
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

WITHOUT_GROUPS = frozenset(ResourceType) - {ResourceType.GROUP}

API = Declaration(
    ApiKey.DESCRIBE_CONFIGS,
    permissions=Permissions(
        topic=Operation.DESCRIBE_CONFIGS,
        note="DescribeConfigs on the group for groups, on the cluster for everything else",
    ),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    broker_id: int
    config: BrokerConfig
    metadata_cache: MetadataCache
    topic_configs: TopicConfigs
    client_instances: ClientInstances
    group_configs: GroupConfigs
    sliced_work: SlicedWork


async def handle(services: Needs, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Return each resource once, with the keys of its first entry in the request."""
    pause = services.sliced_work.pause
    known = frozenset(ResourceType) if services.config.has_group_settings else WITHOUT_GROUPS
    for resource in request.resources:
        if resource.resource_type not in known:
            # In a cluster with ZooKeeper the groups of Kafka 4.0 too: a request that names one fails as a whole.
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        await pause()
    seen: set[tuple[int, str]] = set()
    results = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        if key not in seen:
            seen.add(key)
            results.append(_written(services, resource, request, context.api_version))
        await pause()
    return DescribeConfigsResponse(results=results)


def failed(request: DescribeConfigsRequest, context: RequestContext, code: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_error(resource, KafkaError(code)) for resource in request.resources])


def _written(
    services: Needs, resource: DescribeConfigsResource, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResult:
    """Return the encoded result for a resource, which takes far less memory than its hundreds of small objects."""
    result = _result(services, resource, request)
    if result.error_code:
        return result
    return cast(DescribeConfigsResult, encode_element(DescribeConfigsResponse, result, version))


def _result(
    services: Needs, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        rows = _rows(services, resource)
    except KafkaError as error:
        return _error(resource, error)
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_described(row, request) for row in rows],
    )


def _rows(services: Needs, resource: DescribeConfigsResource) -> list[ConfigRow]:
    name, keys = resource.resource_name, resource.configuration_keys or None
    if resource.resource_type == ResourceType.TOPIC:
        if name not in services.metadata_cache.topics:
            problem = topic_name_problem(name)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describe_topic(services.config, services.topic_configs.overrides(name), keys)
    if resource.resource_type == ResourceType.BROKER and not name:
        return describe_cluster_default(services.config, keys)
    if resource.resource_type == ResourceType.BROKER:
        _require_this_broker(services, name)
        return describe_broker(services.config, keys)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        _require_this_broker(services, name)
        return describe_loggers(keys)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(services.config, services.group_configs.settings.get(name, {}), keys)
    if not services.config.has_own_metadata_store:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters")
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    subscription = services.client_instances.subscriptions.get(name)
    return describe_client_metrics({} if subscription is None else subscription.settings, keys)


def _require_this_broker(services: Needs, name: str) -> None:
    if name != str(services.broker_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.broker_id} or empty string, but received {name}",
        )


def _described(row: ConfigRow, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.needs_restart,
        is_default=row.source is Source.DEFAULT_CONFIG,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (row.synonyms if request.include_synonyms else ())
        ],
        config_type=row.type,
        documentation=row.documentation if request.include_documentation else None,
    )


def _error(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


async def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    return await authorize_resources(guard, services, request, context, Operation.DESCRIBE_CONFIGS, results="results")
