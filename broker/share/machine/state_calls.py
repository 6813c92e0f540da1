"""What leaders of partitions and group coordinators ask of a share coordinator, about one state each. Pure.

Owns: the calls, which KIP-932 defines, and what a call may contain. Must not know: who serves it, or how it is sent.

The result of each is the state, as far as its response has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.share.machine.deliveries import DONE, RecordState, StateBatch
from broker.share.machine.records import ShareKey
from broker.share.machine.stored_states import NO_START
from protocol.errors import ErrorCode, KafkaError

STORED: Final = DONE | {RecordState.AVAILABLE}
"""The states of records that are stored."""


class Initialize(NamedTuple):
    """Begin a state, or begin it anew in a later state epoch. One in this epoch stays as it is."""

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
        for first, last, state, count in call.batches:
            if not 0 <= first <= last:
                yield f"Offsets {first} to {last}: expected a range from 0 on."
            if state not in STORED:
                yield f"Delivery state {state}: expected 0 (available), 2 (acknowledged) or 4 (archived)."
            if count < 0:
                yield f"Delivery count {count}: expected a number from 0 on."
