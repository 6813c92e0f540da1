"""The requests between brokers about states of share groups, and the calls that they carry (KIP-932).

Owns: the layouts, for the broker that sends a request and for the one that serves it. Must not know: what a call does.

Each request is of one group, and lists partitions by topic. The response has a result for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from base.pause import Pause, through
from broker.share.machine.deliveries import StateBatch
from broker.share.machine.records import ShareKey
from broker.share.machine.state_calls import BATCHES_MAX, Call, Delete, Initialize, Read, ReadSummary, Write
from broker.share.machine.stored_states import ShareState
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    delete_share_group_state as deleting,
)
from protocol.messages import (
    initialize_share_group_state as initializing,
)
from protocol.messages import (
    read_share_group_state as reading,
)
from protocol.messages import (
    read_share_group_state_summary as summing_up,
)
from protocol.messages import (
    write_share_group_state as writing,
)

NO_LEADER_EPOCH: Final = -1


class Form(NamedTuple):
    """The layouts of one kind of call."""

    request: Callable[..., Any]
    topic: Callable[..., Any]
    part: Callable[[Any], Any]
    """Returns the part of a request that carries a call."""
    call: Callable[[ShareKey, Any], Call]
    """Returns the call that a part carries."""
    response: Callable[..., Any]
    topic_result: Callable[..., Any]
    result: Callable[..., Any]
    fields: Callable[[ShareState], dict[str, Any]]
    """Returns the fields of a result without an error."""
    state: Callable[[Any], ShareState]
    """Returns the state in a result without an error."""


def _to_batches(batches: Sequence[StateBatch]) -> list[writing.StateBatch]:
    return [
        writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _from_batches(batches: Sequence[writing.StateBatch]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    ]


def _no_fields(state: ShareState) -> dict[str, Any]:
    return {}


def _no_state(result: object) -> ShareState:
    return ShareState(0)


FORMS: Mapping[type[Call], Form] = MappingProxyType(
    {
        Initialize: Form(
            initializing.InitializeShareGroupStateRequest,
            initializing.InitializeStateData,
            lambda call: initializing.PartitionData(
                partition=call.key.partition, state_epoch=call.state_epoch, start_offset=call.start_offset
            ),
            lambda key, part: Initialize(key, part.state_epoch, part.start_offset),
            initializing.InitializeShareGroupStateResponse,
            initializing.InitializeStateResult,
            initializing.PartitionResult,
            _no_fields,
            _no_state,
        ),
        Read: Form(
            reading.ReadShareGroupStateRequest,
            reading.ReadStateData,
            lambda call: reading.PartitionData(partition=call.key.partition, leader_epoch=call.leader_epoch),
            lambda key, part: Read(key, part.leader_epoch),
            reading.ReadShareGroupStateResponse,
            reading.ReadStateResult,
            reading.PartitionResult,
            lambda state: {
                "state_epoch": state.state_epoch,
                "start_offset": state.start_offset,
                "state_batches": _to_batches(state.batches),
            },
            lambda result: ShareState(result.state_epoch, result.start_offset, _from_batches(result.state_batches)),
        ),
        ReadSummary: Form(
            summing_up.ReadShareGroupStateSummaryRequest,
            summing_up.ReadStateSummaryData,
            lambda call: summing_up.PartitionData(partition=call.key.partition, leader_epoch=NO_LEADER_EPOCH),
            lambda key, part: ReadSummary(key),
            summing_up.ReadShareGroupStateSummaryResponse,
            summing_up.ReadStateSummaryResult,
            summing_up.PartitionResult,
            lambda state: {
                "state_epoch": state.state_epoch,
                "leader_epoch": state.leader_epoch,
                "start_offset": state.start_offset,
            },
            lambda result: ShareState(result.state_epoch, result.start_offset, (), result.leader_epoch),
        ),
        Write: Form(
            writing.WriteShareGroupStateRequest,
            writing.WriteStateData,
            lambda call: writing.PartitionData(
                partition=call.key.partition,
                state_epoch=call.state_epoch,
                leader_epoch=call.leader_epoch,
                start_offset=call.start_offset,
                state_batches=_to_batches(call.batches),
            ),
            lambda key, part: Write(
                key,
                part.state_epoch,
                part.leader_epoch,
                part.start_offset,
                _from_batches(part.state_batches[: BATCHES_MAX + 1]),  # one too many: `check` refuses them
            ),
            writing.WriteShareGroupStateResponse,
            writing.WriteStateResult,
            writing.PartitionResult,
            _no_fields,
            _no_state,
        ),
        Delete: Form(
            deleting.DeleteShareGroupStateRequest,
            deleting.DeleteStateData,
            lambda call: deleting.PartitionData(partition=call.key.partition),
            lambda key, part: Delete(key),
            deleting.DeleteShareGroupStateResponse,
            deleting.DeleteStateResult,
            deleting.PartitionResult,
            _no_fields,
            _no_state,
        ),
    }
)
"""By kind of call."""


def request_of(calls: Sequence[Call]) -> Any:
    """Return the request that carries calls of one kind and one group."""
    form = FORMS[type(calls[0])]
    topics: dict[UUID, list[Any]] = {}
    for call in calls:
        topics.setdefault(call.key.topic_id, []).append(form.part(call))
    return form.request(
        group_id=calls[0].key.group_id,
        topics=[form.topic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
    )


async def results_of(calls: Sequence[Call], response: Any, pause: Pause) -> list[ShareState | KafkaError]:
    """Return the result of each call; UNKNOWN_SERVER_ERROR for one that the response does not have."""
    form = FORMS[type(calls[0])]
    found: dict[tuple[UUID, int], ShareState | KafkaError] = {
        (topic.topic_id, each.partition): (
            KafkaError(ErrorCode(each.error_code), each.error_message) if each.error_code else form.state(each)
        )
        for topic in response.results
        async for each in through(topic.partitions, pause)  # each may have thousands of batches
    }
    missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The response lacks the partition.")
    return [found.get((call.key.topic_id, call.key.partition), missing) for call in calls]
