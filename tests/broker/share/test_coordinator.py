"""A share coordinator: appends that fail, and the epochs of states that begin again."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from broker.coordination.background import BackgroundTasks
from broker.share.links import REPEATED
from broker.share.machine.records import ShareKey
from broker.share.machine.state_calls import Initialize
from broker.share.machine.stored_states import ShareState
from broker.share.states import ENDED_MAX, EPOCH_MAX, ShareStates, StatePartition
from protocol.errors import ErrorCode, KafkaError
from protocol.records.compression import Compression
from tests.broker.groups.fakes import FakeLog
from tests.support.in_process_cluster import until
from tests.support.manual_clock import ManualClock


async def ensure(topic: str) -> None:
    """The topic exists."""


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
)
async def test_a_call_whose_append_is_not_replicated_is_repeated(code: ErrorCode) -> None:
    log = FakeLog()
    states = ShareStates(
        log, ManualClock(), ensure, load_buffer_size=1000, write_timeout_ms=1000, compression=Compression.NONE
    )
    states.partitions.become_leader(0, 0)
    await until(lambda: bool([*states.partitions.active()]))
    log.holds = True
    outcome = states.serve(Initialize(ShareKey("g", UUID(int=7), 0), 0))
    log.release(error=code)
    with pytest.raises(KafkaError) as caught:
        await outcome
    assert caught.value.code in REPEATED


def test_a_state_begins_again_in_a_later_epoch_and_the_memory_of_ended_ones_is_bounded() -> None:
    partition = StatePartition(0, 0, BackgroundTasks(logging.getLogger(__name__)))
    keys = [ShareKey("g", UUID(int=7), number) for number in range(ENDED_MAX + 1)]
    assert partition.first_epoch(keys[1]) == 0
    for key in keys:
        partition.states[key] = ShareState(3)
        partition.end(key)
    assert [partition.first_epoch(key) for key in (keys[0], keys[1], keys[-1])] == [0, 4, 4]
    partition.end(keys[1])
    assert (partition.first_epoch(keys[1]), partition.states) == (4, {})
    partition.states[keys[1]] = ShareState(EPOCH_MAX)
    partition.end(keys[1])
    assert partition.first_epoch(keys[1]) == 0
