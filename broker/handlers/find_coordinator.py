"""FindCoordinator: return the broker that leads the internal topic's partition of a key.

Groups (key type 0) belong to `__consumer_offsets`, transactional ids (key type 1) to `__transaction_state`, and states
of share groups (key type 2, `group:topic id:partition`) to `__share_group_state`. The first request creates the topic
and waits for it, so that the response names a broker that is the coordinator.

Version notes: v0 groups only; v1 key types and a message; v4 several keys, each with its own error; v6 share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from broker.cluster.metadata_cache import MetadataCache
from broker.coordination.led_partitions import LedPartitions
from broker.coordination.partitioner import partition_for
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import CONTROLLER, Declaration, Each, Elements, Permissions, itself
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork, Step
from broker.security.acls import Operation, ResourceType
from broker.share.machine.records import key_of
from broker.share.parts import ShareParts
from broker.transactions.coordinator import TransactionCoordinator
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.internal_topics import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
GROUP_KEY = 0
FIRST_VERSION_WITH_SHARE = 6
NO_NODE = -1
SHARE = 2
"""The key type of share groups (KIP-932)."""

STEP_SIZE = 100
"""Keys between two yields; finding the partition of a key reads all its characters."""

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE

TOPICS: Mapping[int, str] = MappingProxyType(
    {GROUP_KEY: GROUP_METADATA_TOPIC, 1: TRANSACTION_STATE_TOPIC, SHARE: SHARE_GROUP_STATE_TOPIC}
)
"""The internal topic by key type."""


API = Declaration(
    ApiKey.FIND_COORDINATOR,
    permissions=Permissions(
        transactional_id=Operation.DESCRIBE,
        group=Operation.DESCRIBE,
        note="by the kind of the key; ClusterAction on the cluster for states of share groups",
    ),
    waits_for=CONTROLLER,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    metadata_cache: MetadataCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share: Callable[[], ShareParts]
    sliced_work: SlicedWork


async def handle(services: Needs, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Each key once, however often the request names it."""
    topic = TOPICS.get(request.key_type)
    if topic is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"coordinator type {request.key_type}, expected 0 (group), 1 (transaction) or 2 (share)",
        )
    if request.key_type == SHARE and context.api_version < FIRST_VERSION_WITH_SHARE:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partitions = _coordinated(services, request.key_type)
    partition_count = partitions.count() or await partitions.ensure_topic()
    coordinators: dict[str, Coordinator] = {}
    step = Step(STEP_SIZE)
    for key in _keys(request, context):
        if key not in coordinators:
            coordinators[key] = (
                _locate(services, context, topic, key, partition_count)
                if request.key_type != SHARE or _is_state(key)
                else _no_coordinator(key, ErrorCode.INVALID_REQUEST)
            )
        if step.is_over(key):
            await services.sliced_work.pause()
    return _response(context, list(coordinators.values()))


def failed(request: FindCoordinatorRequest, context: RequestContext, code: ErrorCode) -> FindCoordinatorResponse:
    return _response(
        context, [_no_coordinator(key, code, ERRORS[code].message or "") for key in _keys(request, context)]
    )


def _coordinated(services: Needs, key_type: int) -> LedPartitions[Any]:
    """Return the partitions of which the leaders are coordinators. Raises KafkaError."""
    if key_type == GROUP_KEY:
        return services.groups.partitions
    if key_type != SHARE:
        return services.transactions.partitions
    if not services.groups.settings.serves_share_groups:
        raise KafkaError(UNAVAILABLE)
    return services.share().states.partitions


def _is_state(key: str) -> bool:
    try:
        key_of(key)
    except ValueError:
        return False
    return True


def _locate(services: Needs, context: RequestContext, topic: str, key: str, partition_count: int) -> Coordinator:
    metadata = services.metadata_cache
    leader = metadata.leader_of(topic, partition_for(key, partition_count))
    broker = metadata.brokers.get(leader)
    if broker is None or context.listener not in broker.endpoints:
        return _no_coordinator(key, UNAVAILABLE)
    host, port = broker.endpoints[context.listener]
    return Coordinator(key=key, node_id=leader, host=host, port=port, error_message="")


def _no_coordinator(key: str, code: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message)


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> Sequence[str]:
    return request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_SEVERAL_KEYS else (request.key,)


def _response(context: RequestContext, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    code = ErrorCode(only.error_code)
    return FindCoordinatorResponse(
        error_code=code,
        error_message=ERRORS[code].message or code.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    if request.key_type == SHARE:
        guard.require_cluster(context, Operation.CLUSTER_ACTION)
        return guard.handle(services, request, context)
    resource_type = ResourceType.GROUP if request.key_type == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        guard.require(context, resource_type, request.key)
        return guard.handle(services, request, context)
    each = Each(resource_type, "coordinator_keys", "coordinators", itself)
    return guard.serve_each(services, request, context, each)
