"""What leaders of partitions and group coordinators ask of a share coordinator, about one state each. Pure.

Owns: the calls, which KIP-932 defines, what a call may contain, and which state follows from it. Must not know: who
serves it, or how it is sent.

The result of each is the state, as far as its response has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.share.machine.deliveries import DONE, RecordState, StateBatch
from broker.share.machine.records import ShareKey, text_of
from broker.share.machine.stored_states import NO_START, ShareState
from protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH: Final = 0
"""The state epoch of a call that begins a state which does not exist. The share coordinator replaces it."""
BATCHES_MAX: Final = 12_000
"""Batches of one state: more than a leader may have records in flight (`group.share.partition.max.record.locks`), and
so few that one step for all of them takes less than 50 ms."""
STORED: Final = DONE | {RecordState.AVAILABLE}
"""The states of records that are stored."""


class Initialize(NamedTuple):
    """Begin a state, or begin it anew in a later state epoch.

    One in this epoch stays as it is, and so does any with `FIRST_EPOCH`.
    """

    key: ShareKey
    state_epoch: int
    start_offset: int = NO_START


class Read(NamedTuple):
    """Return the state to the leader of the partition. From now on a leader of an earlier epoch writes nothing."""

    key: ShareKey
    leader_epoch: int


class ReadSummary(NamedTuple):
    """Return the state without batches. One that does not exist has no start offset."""

    key: ShareKey


class Write(NamedTuple):
    """Move the state forward."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class Delete(NamedTuple):
    """End the state, if it exists."""

    key: ShareKey


Call = Initialize | Read | ReadSummary | Write | Delete


def check(call: Call) -> None:
    """Raise KafkaError for what no broker means: INVALID_GROUP_ID, INVALID_REQUEST."""
    if not call.key.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    for problem in _problems(call):
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _problems(call: Call) -> Iterator[str]:
    if call.key.partition < 0:
        yield f"Partition {call.key.partition}: expected a number from 0 on."
    if isinstance(call, Initialize | Write) and call.start_offset < NO_START:
        yield f"Start offset {call.start_offset}: expected an offset from 0 on, or -1."
    if isinstance(call, Initialize) and call.state_epoch < 0:
        yield f"State epoch {call.state_epoch}: expected a number from 0 on."
    if isinstance(call, Write):
        if len(call.batches) > BATCHES_MAX:
            yield f"More batches of a state than expected: at most {BATCHES_MAX}."
        for first, last, state, count in call.batches:
            if not 0 <= first <= last:
                yield f"Offsets {first} to {last}: expected a range from 0 on."
            if state not in STORED:
                yield f"Delivery state {state}: expected 0 (available), 2 (acknowledged) or 4 (archived)."
            if count < 0:
                yield f"Delivery count {count}: expected a number from 0 on."


def state_after(call: Call, before: ShareState | None) -> ShareState | None:
    """Return the state after a call; None if there is none.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION if there is nothing to read or write, FENCED_STATE_EPOCH
    if a write is of another state epoch or a later one has begun, FENCED_LEADER_EPOCH if a later leader is known,
    INVALID_REQUEST if the state would have more than `BATCHES_MAX` batches.
    """
    return _RULES[type(call)](call, before)


def _initialized(call: Initialize, before: ShareState | None) -> ShareState:
    if before is None:
        return ShareState(call.state_epoch, call.start_offset)
    if call.state_epoch in (FIRST_EPOCH, before.state_epoch):
        return before
    if before.state_epoch > call.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
    return ShareState(call.state_epoch, call.start_offset, (), before.leader_epoch)


def _read(call: Read, before: ShareState | None) -> ShareState:
    found = _required(before, call.key)
    _require_leader(found, call.leader_epoch)
    return found._replace(leader_epoch=call.leader_epoch)


def _written(call: Write, before: ShareState | None) -> ShareState:
    found = _required(before, call.key)
    if found.state_epoch != call.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
    _require_leader(found, call.leader_epoch)
    written = found.advanced(call.start_offset, call.batches, call.leader_epoch)
    if len(written.batches) > BATCHES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(written.batches)} batches of a state after the write: expected at most {BATCHES_MAX}.",
        )
    return written


def _required(state: ShareState | None, key: ShareKey) -> ShareState:
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No state of {text_of(key)} is stored.")
    return state


def _require_leader(state: ShareState, leader_epoch: int) -> None:
    if state.leader_epoch > leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


_RULES: Mapping[type[Call], Callable[[Any, ShareState | None], ShareState | None]] = MappingProxyType(
    {
        Initialize: _initialized,
        Read: _read,
        ReadSummary: lambda call, before: before,
        Write: _written,
        Delete: lambda call, before: None,
    }
)
"""By call, what returns the state after it."""
