"""Configurations of topics, groups, brokers, loggers and clients' metrics, for kafka-configs and kafka-client-metrics.

Owns the requests that describe and alter them, and the printed lines. Must not know options.
"""

from collections.abc import Iterator, Mapping, Sequence

from config.definition import Source, text_of
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tools.admin.configuration.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    DEFAULT_NAME,
    GROUPS,
    TOPICS,
    Entity,
)
from tools.base.java_names import hash_map_order
from tools.client.admin_client import AdminClient, raise_for

RESOURCE_TYPES: Mapping[str, int] = {TOPICS: 2, BROKERS: 4, BROKER_LOGGERS: 8, CLIENT_METRICS: 16, GROUPS: 32}
_SET, _DELETE = 0, 1


class InvalidConfigs(Exception):  # noqa: N818 - named as what it reports
    """Keys that cannot be deleted because they are not set."""


def describe_resources(admin: AdminClient, entity: Entity, *, describe_all: bool) -> Iterator[str]:
    """Yield the lines of one entity, or of all of its type. Raises KafkaError after the lines before the error."""
    names = [entity.name] if entity.name is not None else _all_names(admin, entity.type)
    for named in (Entity(entity.type, name) for name in names):
        yield _heading(named, describe_all=describe_all)
        for config in read_configs(admin, named, describe_all=describe_all):
            synonyms = ", ".join(
                f"{Source(synonym.source).name}:{synonym.name}={_shown(synonym.value)}" for synonym in config.synonyms
            )
            sensitive = text_of(config.is_sensitive)
            yield f"  {config.name}={_shown(config.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def alter_resource(admin: AdminClient, entity: Entity, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Set and delete configurations of one entity. Raises InvalidConfigs and KafkaError."""
    present = {config.name for config in read_configs(admin, entity, describe_all=entity.type == BROKER_LOGGERS)}
    if missing := [key for key in deleted if key not in present]:
        raise InvalidConfigs(f"Invalid config(s): {','.join(missing)}")
    write_configs(admin, entity, added, deleted)


def write_configs(admin: AdminClient, entity: Entity, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Set and delete configurations of one entity, whether they are set or not. Raises KafkaError."""
    resource = AlterConfigsResource(
        resource_type=RESOURCE_TYPES[entity.type],
        resource_name=entity.name or DEFAULT_NAME,
        configs=[
            *(AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in added.items()),
            *(AlterableConfig(name=key, config_operation=_DELETE, value="") for key in deleted),
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = admin.call(request, IncrementalAlterConfigsResponse, broker_id=_broker_id(entity))
    for result in response.responses:
        raise_for(result.error_code, result.error_message)


def _heading(entity: Entity, *, describe_all: bool) -> str:
    if entity.name == DEFAULT_NAME:
        return f"Default configs for {entity.type} in the cluster are:"
    return f"{'All' if describe_all else 'Dynamic'} configs for {entity.singular} {entity.name} are:"


def read_configs(admin: AdminClient, entity: Entity, *, describe_all: bool) -> list[DescribeConfigsResourceResult]:
    """Return the configurations of an entity, by name: all, or those that were set on it. Raises KafkaError."""
    resource = DescribeConfigsResource(
        resource_type=RESOURCE_TYPES[entity.type], resource_name=entity.name or DEFAULT_NAME, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    broker_id = _broker_id(entity)
    if broker_id is not None:
        admin.metadata([])
    response = admin.call(request, DescribeConfigsResponse, broker_id=broker_id)
    (result,) = response.results
    raise_for(result.error_code, result.error_message)
    own = _own_source(entity)
    configs = [config for config in result.configs if describe_all or own is None or config.config_source == own]
    return sorted(configs, key=lambda config: config.name)


def _own_source(entity: Entity) -> Source | None:
    """Return the source of values that were set on the entity itself; None if all were."""
    match entity.type:
        case "topics":
            return Source.DYNAMIC_TOPIC_CONFIG
        case "brokers" if entity.name == DEFAULT_NAME:
            return Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        case "brokers":
            return Source.DYNAMIC_BROKER_CONFIG
        case "groups":
            return Source.GROUP_CONFIG
        case _:
            return None


def _broker_id(entity: Entity) -> int | None:
    """Return the id of the broker that must get the request; None for any."""
    is_one_broker = entity.type in (BROKERS, BROKER_LOGGERS) and entity.name
    return int(entity.name) if is_one_broker and entity.name is not None else None


def _all_names(admin: AdminClient, entity_type: str) -> list[str]:
    """Return the names of all entities of a type. Raises KafkaError."""
    if entity_type in (CLIENT_METRICS, GROUPS):
        return own_names(admin, entity_type)
    if entity_type == TOPICS:
        return hash_map_order(topic.name or "" for topic in admin.metadata().topics)
    brokers = [str(broker.node_id) for broker in admin.metadata([]).brokers]
    return [*brokers, DEFAULT_NAME] if entity_type == BROKERS else brokers


def own_names(admin: AdminClient, entity_type: str) -> list[str]:
    """Return the names of all subscriptions to metrics of clients, or groups with settings.

    Raises KafkaError, with UNSUPPORTED_VERSION from a broker in a cluster with ZooKeeper.
    """
    try:
        response = admin.call(ListConfigResourcesRequest(), ListConfigResourcesResponse)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise KafkaError(error.code, "The node does not support LIST_CLIENT_METRICS_RESOURCES") from error
    raise_for(response.error_code)
    # Newer brokers list every type if none is requested, older ones cannot be asked for one.
    ours = RESOURCE_TYPES[entity_type]
    return [resource.resource_name for resource in response.config_resources if resource.resource_type == ours]


def _shown(value: str | None) -> str:
    return "null" if value is None else value
