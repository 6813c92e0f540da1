"""StopReplica: the controller stops replicas of this broker, or deletes them.

Version notes: v0-2 delete all partitions or none, and know no leader epochs. v1 the broker's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from base.pause import Pause
from broker.cluster.control_requests import ControlDoor, refused
from broker.handlers.cluster_action import require_broker
from broker.handlers.declaration import Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from broker.security.authorizer import Authorizer
from config.broker import BrokerConfig
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

FIRST_VERSION_BY_TOPIC = 1
FIRST_VERSION_WITH_STATES = 3


API = Declaration(
    ApiKey.STOP_REPLICA,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    elements=Elements.CONTROL,
    is_served_before_clients=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    control_door: ControlDoor
    sliced_work: SlicedWork


async def handle(services: Needs, request: StopReplicaRequest, context: RequestContext) -> object:
    require_broker(services.config, services.authorizer, context)
    if context.api_version < FIRST_VERSION_WITH_STATES:
        names = _names(request, context.api_version)
        request.topic_states = await _states(names, services.sliced_work.pause, is_deleted=request.delete_partitions)
    return await services.control_door.submit(request, context.correlation_id)


def failed(request: StopReplicaRequest, context: RequestContext, code: ErrorCode) -> object:
    return refused(request, code)


def _names(request: StopReplicaRequest, version: int) -> Iterable[tuple[str, int]]:
    if version < FIRST_VERSION_BY_TOPIC:
        return ((each.topic_name, each.partition_index) for each in request.ungrouped_partitions)
    return ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)


async def _states(names: Iterable[tuple[str, int]], pause: Pause, *, is_deleted: bool) -> list[StopReplicaTopicState]:
    topics: dict[str, StopReplicaTopicState] = {}
    for name, index in names:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = StopReplicaTopicState(topic_name=name, partition_states=[])
        topic.partition_states.append(StopReplicaPartitionState(partition_index=index, delete_partition=is_deleted))
        await pause()
    return list(topics.values())
