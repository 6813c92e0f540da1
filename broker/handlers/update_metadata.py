"""UpdateMetadata: the controller sends the brokers and partitions of the cluster.

Version notes: v0 one address for each broker; v1-2 addresses by security protocol, which is then the name of the
listener; v3 names of listeners. v0-4 name the topic of each partition. v5 the broker's epoch.
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
from controller.machine.model import SECURITY_PROTOCOL_IDS
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

FIRST_VERSION_WITH_ENDPOINTS = 1
FIRST_VERSION_WITH_LISTENERS = 3
FIRST_VERSION_BY_TOPIC = 5

PLAINTEXT_ID = SECURITY_PROTOCOL_IDS["PLAINTEXT"]
PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}


API = Declaration(
    ApiKey.UPDATE_METADATA,
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


async def handle(services: Needs, request: UpdateMetadataRequest, context: RequestContext) -> object:
    require_broker(services.config, services.authorizer, context)
    version = context.api_version
    if version < FIRST_VERSION_WITH_LISTENERS:
        for broker in request.live_brokers:
            _name_listeners(broker, version)
    if version < FIRST_VERSION_BY_TOPIC:
        request.topic_states = await _by_topic(request.ungrouped_partition_states, services.sliced_work.pause)
    return await services.control_door.submit(request, context.correlation_id)


def failed(request: UpdateMetadataRequest, context: RequestContext, code: ErrorCode) -> object:
    return refused(request, code)


def _name_listeners(broker: UpdateMetadataBroker, version: int) -> None:
    """Name the listeners of a broker after their security protocols. Raises KafkaError(INVALID_REQUEST)."""
    if version < FIRST_VERSION_WITH_ENDPOINTS:
        only = UpdateMetadataEndpoint(port=broker.v0_port, host=broker.v0_host, security_protocol=PLAINTEXT_ID)
        broker.endpoints = [only]
    for endpoint in broker.endpoints:
        name = PROTOCOL_NAMES.get(endpoint.security_protocol)
        if name is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"security protocol {endpoint.security_protocol} of broker {broker.id}, expected one of 0 to 3",
            )
        endpoint.listener = name


async def _by_topic(states: Iterable[UpdateMetadataPartitionState], pause: Pause) -> list[UpdateMetadataTopicState]:
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in states:
        topic = topics.get(state.topic_name)
        if topic is None:
            topic = topics[state.topic_name] = UpdateMetadataTopicState(
                topic_name=state.topic_name, partition_states=[]
            )
        topic.partition_states.append(state)
        await pause()
    return list(topics.values())
