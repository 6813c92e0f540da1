"""Control requests in the forms of earlier versions, and their responses in that of the newest.

Owns: which version each request has by `inter.broker.protocol.version`, and what is lost in it. Must not know: why a
request is sent, or how.

The controller builds requests in the newest form. Earlier ones list partitions without their topics (LeaderAndIsr 0-1,
UpdateMetadata 0-4, StopReplica 0) or without states (StopReplica 1-2, where one request deletes all of its partitions
or none), know no topic ids (LeaderAndIsr 0-4, UpdateMetadata 0-6), no recovery after an unclean election (LeaderAndIsr
0-5), and one address for each broker (UpdateMetadata 0). What this broker sends to itself has the newest form, without
what the version would lose and a broker would keep: the topic ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Final, NamedTuple, TypeVar

from base.pause import Pause, through
from base.topic_partition import TopicPartition
from config.inter_broker import InterBrokerProtocol
from controller.active.broker_channels import ControlRequest, ControlResponse
from controller.machine.model import SECURITY_PROTOCOL_IDS
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import (
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicV1,
)
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from protocol.schema import ZERO_UUID

LEADER_AND_ISR_BY_TOPIC: Final = 2
LEADER_AND_ISR_WITH_TYPE: Final = 5
LEADER_AND_ISR_WITH_TOPIC_IDS: Final = 5
LEADER_AND_ISR_WITH_RECOVERY: Final = 6
UPDATE_METADATA_WITH_ENDPOINTS: Final = 1
UPDATE_METADATA_BY_TOPIC: Final = 5
UPDATE_METADATA_WITH_TOPIC_IDS: Final = 7
UPDATE_METADATA_WITH_TYPE: Final = 8
STOP_REPLICA_BY_TOPIC: Final = 1
STOP_REPLICA_WITH_STATES: Final = 3

PLAINTEXT: Final = SECURITY_PROTOCOL_IDS["PLAINTEXT"]

WithTopicIds = TypeVar("WithTopicIds", LeaderAndIsrRequest, UpdateMetadataRequest)


class VersionedRequest(NamedTuple):
    """A request in the form of its version."""

    request: ControlRequest
    version: int


async def versioned(request: ControlRequest, protocol: InterBrokerProtocol, pause: Pause) -> Sequence[VersionedRequest]:
    """Return the requests that say what `request` says, in the order in which they are to be sent; mostly one."""
    if isinstance(request, LeaderAndIsrRequest):
        version = protocol.leader_and_isr
        return [VersionedRequest(await _leader_and_isr(request, version, pause), version)]
    if isinstance(request, UpdateMetadataRequest):
        version = protocol.update_metadata
        return [VersionedRequest(await _update_metadata(request, version, pause), version)]
    version = protocol.stop_replica
    return [VersionedRequest(part, version) for part in await _stop_replica(request, version, pause)]


async def for_own_broker(request: ControlRequest, protocol: InterBrokerProtocol, pause: Pause) -> ControlRequest:
    """Return `request`, which is not sent over a connection, without the topic ids that other brokers do not get."""
    if isinstance(request, LeaderAndIsrRequest) and protocol.leader_and_isr < LEADER_AND_ISR_WITH_TOPIC_IDS:
        return await _without_topic_ids(request, pause)
    if isinstance(request, UpdateMetadataRequest) and protocol.update_metadata < UPDATE_METADATA_WITH_TOPIC_IDS:
        return await _without_topic_ids(request, pause)
    return request


async def _without_topic_ids(request: WithTopicIds, pause: Pause) -> WithTopicIds:
    own = copy(request)
    own.topic_states = []
    async for topic in through(request.topic_states, pause):
        named = copy(topic)
        named.topic_id = ZERO_UUID
        own.topic_states.append(named)
    return own


def in_newest_form(request: ControlRequest, responses: Sequence[ControlResponse]) -> ControlResponse:
    """Return the response to `request` from the responses to its versions: partitions by topic, topics by their ids."""
    first = responses[0]
    if isinstance(request, LeaderAndIsrRequest) and isinstance(first, LeaderAndIsrResponse):
        return _by_topic_id(request, first)
    if isinstance(first, StopReplicaResponse):
        code = next((response.error_code for response in responses if response.error_code), 0)
        errors = [
            error for part in responses if isinstance(part, StopReplicaResponse) for error in part.partition_errors
        ]
        return StopReplicaResponse(error_code=code, partition_errors=errors)
    return first


# -- LeaderAndIsr ------------------------------------------------------------------------------------------------------


async def _leader_and_isr(request: LeaderAndIsrRequest, version: int, pause: Pause) -> LeaderAndIsrRequest:
    if version >= LEADER_AND_ISR_WITH_RECOVERY:
        return request
    older = copy(request)
    if version < LEADER_AND_ISR_WITH_TYPE:
        older.type = 0
    older.topic_states = []
    older.ungrouped_partition_states = ungrouped = []
    for topic in request.topic_states:
        states = [_without_recovery(topic.topic_name, state) async for state in through(topic.partition_states, pause)]
        if version >= LEADER_AND_ISR_BY_TOPIC:
            older.topic_states.append(
                LeaderAndIsrTopicState(topic_name=topic.topic_name, topic_id=topic.topic_id, partition_states=states)
            )
        else:
            ungrouped += states
    return older


def _without_recovery(topic: str, state: LeaderAndIsrPartitionState) -> LeaderAndIsrPartitionState:
    older = copy(state)
    older.topic_name = topic
    older.leader_recovery_state = 0
    return older


def _by_topic_id(request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
    """Name the topics as `request` does, if the response names none or knows no ids."""
    errors: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for error in (*response.partition_errors, *_errors_without_ids(response)):
        errors.setdefault(error.topic_name, []).append(error)
    if not errors:
        return response
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    known = [topic for topic in response.topics if topic.topic_id != ZERO_UUID]
    return LeaderAndIsrResponse(
        error_code=response.error_code,
        topics=[
            *known,
            *(
                LeaderAndIsrTopicError(topic_id=ids[topic], partition_errors=of_topic)
                for topic, of_topic in errors.items()
                if topic in ids
            ),
        ],
    )


def _errors_without_ids(response: LeaderAndIsrResponse) -> Iterator[LeaderAndIsrPartitionError]:
    for topic in response.topics:
        if topic.topic_id == ZERO_UUID:
            yield from topic.partition_errors


# -- UpdateMetadata ----------------------------------------------------------------------------------------------------


async def _update_metadata(request: UpdateMetadataRequest, version: int, pause: Pause) -> UpdateMetadataRequest:
    if version >= UPDATE_METADATA_WITH_TYPE:
        return request
    older = copy(request)
    older.type = 0
    if version < UPDATE_METADATA_BY_TOPIC:
        older.topic_states = []
        older.ungrouped_partition_states = [
            _with_topic(topic.topic_name, state)
            for topic in request.topic_states
            async for state in through(topic.partition_states, pause)
        ]
    if version < UPDATE_METADATA_WITH_ENDPOINTS:
        older.live_brokers = [_with_one_address(broker) for broker in request.live_brokers]
    return older


def _with_topic(topic: str, state: UpdateMetadataPartitionState) -> UpdateMetadataPartitionState:
    older = copy(state)
    older.topic_name = topic
    return older


def _with_one_address(broker: UpdateMetadataBroker) -> UpdateMetadataBroker:
    endpoint = next((it for it in broker.endpoints if it.security_protocol == PLAINTEXT), None)
    if endpoint is None:
        return UpdateMetadataBroker(id=broker.id, v0_host="", v0_port=-1)
    return UpdateMetadataBroker(id=broker.id, v0_host=endpoint.host, v0_port=endpoint.port)


# -- StopReplica -------------------------------------------------------------------------------------------------------


async def _stop_replica(request: StopReplicaRequest, version: int, pause: Pause) -> list[StopReplicaRequest]:
    if version >= STOP_REPLICA_WITH_STATES:
        return [request]
    names: dict[bool, list[TopicPartition]] = {True: [], False: []}
    for topic in request.topic_states:
        async for state in through(topic.partition_states, pause):
            names[state.delete_partition].append((topic.topic_name, state.partition_index))
    return [
        await _without_states(request, of_kind, version, pause, is_deleted=is_deleted)
        for is_deleted, of_kind in names.items()
        if of_kind
    ]


async def _without_states(
    request: StopReplicaRequest, names: Sequence[TopicPartition], version: int, pause: Pause, *, is_deleted: bool
) -> StopReplicaRequest:
    older = copy(request)
    older.topic_states = []
    older.delete_partitions = is_deleted
    if version < STOP_REPLICA_BY_TOPIC:
        older.ungrouped_partitions = [
            StopReplicaPartitionV0(topic_name=topic, partition_index=partition)
            async for topic, partition in through(names, pause)
        ]
        return older
    topics: dict[str, StopReplicaTopicV1] = {}
    async for topic, partition in through(names, pause):
        topics.setdefault(topic, StopReplicaTopicV1(name=topic, partition_indexes=[])).partition_indexes.append(
            partition
        )
    older.topics = list(topics.values())
    return older
