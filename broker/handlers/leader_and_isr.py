"""LeaderAndIsr: the controller makes this broker the leader or a follower of partitions.

Version notes: v0-1 name the topic of each partition. v1 says whether it is new. v2 the broker's epoch. v0-4 respond
with the name of each partition's topic, v5+ with topic ids. A topic id of zero is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from base.pause import Pause, through
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
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from storage.manager.log_manager import LogManager

FIRST_VERSION_WITH_IS_NEW = 1
FIRST_VERSION_BY_TOPIC = 2
FIRST_VERSION_WITH_TOPIC_IDS = 5


API = Declaration(
    ApiKey.LEADER_AND_ISR,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    elements=Elements.CONTROL,
    is_served_before_clients=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    control_door: ControlDoor
    log_manager: LogManager
    sliced_work: SlicedWork


async def handle(services: Needs, request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    pause = services.sliced_work.pause
    require_broker(services.config, services.authorizer, context)
    if context.api_version < FIRST_VERSION_WITH_IS_NEW and not services.log_manager.directories.has_offline:
        await _mark_new(request.ungrouped_partition_states, pause)
    if context.api_version < FIRST_VERSION_BY_TOPIC:
        request.topic_states = await _by_topic(request.ungrouped_partition_states, pause)
    response = cast(LeaderAndIsrResponse, await services.control_door.submit(request, context.correlation_id))
    return response if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS else await _flat(response, pause)


def failed(request: LeaderAndIsrRequest, context: RequestContext, code: ErrorCode) -> object:
    return refused(request, code)


async def _mark_new(states: Iterable[LeaderAndIsrPartitionState], pause: Pause) -> None:
    """Mark the partitions as new whose first state is sent: a log that is missing was not lost.

    The first state may also be that of an old partition, so this does not hold while a log directory is offline.
    """
    async for state in through(states, pause):
        state.is_new = state.leader_epoch == 0 and state.partition_epoch == 0


async def _by_topic(states: Iterable[LeaderAndIsrPartitionState], pause: Pause) -> list[LeaderAndIsrTopicState]:
    topics: dict[str, LeaderAndIsrTopicState] = {}
    for state in states:
        topic = topics.get(state.topic_name)
        if topic is None:
            topic = topics[state.topic_name] = LeaderAndIsrTopicState(topic_name=state.topic_name, partition_states=[])
        topic.partition_states.append(state)
        await pause()
    return list(topics.values())


async def _flat(response: LeaderAndIsrResponse, pause: Pause) -> LeaderAndIsrResponse:
    for topic in response.topics:
        response.partition_errors += topic.partition_errors
        await pause()
    return response
