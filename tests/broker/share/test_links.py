"""How share coordinators of other brokers are found and asked, and how long a call is repeated."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from base.pause import AT_ONCE, Awaited
from broker.coordination.partitioner import partition_for
from broker.network.outgoing import PeerUnavailable
from broker.share.links import PAUSE_MS_MAX, StateLinks
from broker.share.machine.deliveries import StateBatch
from broker.share.machine.records import ShareKey, text_of
from broker.share.machine.state_calls import Call, Read, Write
from broker.share.machine.stored_states import ShareState
from broker.share.states import ShareStates
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from protocol.messages.write_share_group_state import StateBatch as SentBatch
from tests.support.manual_clock import ManualClock

TOPIC_ID = UUID(int=7)
THIS, OTHER, THIRD = 1, 2, 3
NO_LEADER = -1


class Here:
    """The share coordinator of this broker, the leaders, and the other brokers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.own_error: ErrorCode | None = ErrorCode.NOT_COORDINATOR
        self.leaders = [OTHER]
        """The leaders of the one partition, each until it is asked for; the last one stays."""
        self.outcomes: dict[int, list[Exception | ErrorCode]] = {OTHER: [], THIRD: []}
        """What a broker responds first; then it succeeds."""
        self.asked: list[tuple[int, ReadShareGroupStateRequest]] = []
        self.closed: list[int] = []
        self.count = 1
        """Of partitions of the topic."""
        self.held: dict[int, asyncio.Event] = {}
        """Partitions of the topic whose replicas are slow, until something happens."""
        self.pauses = 0
        own = cast(ShareStates, self)
        self.links = StateLinks(
            THIS, own, self, lambda each: Other(self, each), self.clock, self.sleep, self.pause, 5000
        )

    def serve(self, call: Call) -> Any:
        if self.own_error is not None:
            raise KafkaError(self.own_error)
        return asyncio.sleep(0, ShareState(0, 42))

    def contains(self, topic: str, partition: int) -> bool:
        return partition < len(self.leaders)

    def partition_count(self, topic: str) -> int | None:
        return self.count

    def leader_of(self, topic: str, partition: int) -> int:
        return self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]

    async def sleep(self, milliseconds: int) -> None:
        assert milliseconds <= PAUSE_MS_MAX
        self.clock.advance(milliseconds)

    def pause(self) -> Awaited:
        self.pauses += 1
        return AT_ONCE


class Other:
    """A `Peer`."""

    def __init__(self, here: Here, broker_id: int) -> None:
        self.here, self.broker_id = here, broker_id

    async def ask(self, request: ReadShareGroupStateRequest, version: int, *, timeout_ms: int) -> Any:
        self.here.asked.append((self.broker_id, request))
        key = ShareKey(request.group_id, request.topics[0].topic_id, request.topics[0].partitions[0].partition)
        if (held := self.here.held.get(partition_for(text_of(key), self.here.count))) is not None:
            await held.wait()
        outcomes = self.here.outcomes[self.broker_id]
        outcome = outcomes.pop(0) if outcomes else ErrorCode.NONE
        if isinstance(outcome, Exception):
            raise outcome
        return ReadShareGroupStateResponse(
            results=[
                ReadStateResult(
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionResult(
                            partition=each.partition,
                            error_code=outcome,
                            state_epoch=1,
                            start_offset=10 * each.partition,
                            state_batches=[
                                SentBatch(first_offset=0, last_offset=1, delivery_state=2, delivery_count=1)
                            ],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def abandon(self) -> bool:
        return False

    def close(self) -> None:
        self.here.closed.append(self.broker_id)


def read(partition: int, group: str = "g") -> Read:
    return Read(ShareKey(group, TOPIC_ID, partition), 3)


async def test_a_slow_partition_of_the_topic_does_not_delay_calls_to_others() -> None:
    here = Here()
    here.count = 2
    by_partition = {partition_for(text_of(read(each).key), 2): read(each) for each in range(10)}
    assert set(by_partition) == {0, 1}
    here.held[0] = asyncio.Event()
    slow = here.links.call(by_partition[0], 0)
    await asyncio.sleep(0.01)
    quick = here.links.call(by_partition[1], 0)
    assert (await quick).start_offset == 10 * by_partition[1].key.partition
    assert not slow.done()
    here.held[0].set()
    assert (await slow).start_offset == 10 * by_partition[0].key.partition


async def test_the_coordinator_of_this_broker_is_called_directly() -> None:
    here = Here()
    here.own_error = None
    assert (await here.links.call(read(0), 0)).start_offset == 42
    assert not here.asked


async def test_calls_of_one_turn_share_a_request_for_each_group() -> None:
    here = Here()
    calls = [here.links.call(each, 0) for each in (read(1), read(2), read(3, "h"))]
    states = [await each for each in calls]
    assert states == [ShareState(1, 10 * each, [StateBatch(0, 1, 2, 1)]) for each in (1, 2, 3)]
    assert [(broker, request.group_id) for broker, request in here.asked] == [(OTHER, "g"), (OTHER, "h")]
    assert here.pauses == 3, "each result may be large"


@pytest.mark.parametrize(
    "failure",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, PeerUnavailable("gone"), ErrorCode.NONE],
)
async def test_the_coordinator_is_looked_up_again(failure: Exception | ErrorCode) -> None:
    here = Here()
    here.leaders = [NO_LEADER, THIS, OTHER, THIRD]
    here.outcomes[OTHER] = [failure]
    await here.links.call(read(0), 10_000)
    assert [broker for broker, _ in here.asked] == ([OTHER] if failure is ErrorCode.NONE else [OTHER, THIRD])


async def test_calls_of_other_groups_do_not_each_wait_for_a_broker_that_does_not_respond() -> None:
    here = Here()
    here.outcomes[OTHER] = [PeerUnavailable("no response"), PeerUnavailable("no response")]
    calls = [here.links.call(read(0, group), 0) for group in "ghi"]
    for each in calls:
        with pytest.raises(KafkaError) as caught:
            await each
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert len(here.asked) == 1


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
async def test_other_errors_are_final(code: ErrorCode) -> None:
    here = Here()
    here.outcomes[OTHER] = [code]
    with pytest.raises(KafkaError) as caught:
        await here.links.call(read(0), 10_000)
    assert caught.value.code is code
    assert len(here.asked) == 1


async def test_a_call_is_repeated_for_as_long_as_its_caller_is_patient() -> None:
    here = Here()
    here.leaders = [NO_LEADER]
    began_ms = here.clock.monotonic_ms()
    with pytest.raises(KafkaError) as caught:
        await here.links.call(read(0), 5_000)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 4_000 <= here.clock.monotonic_ms() - began_ms <= 5_000


async def test_a_broker_without_share_groups_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    here = Here()
    here.outcomes[OTHER] = [KafkaError(ErrorCode.UNSUPPORTED_VERSION, "broker 2 does not support it")] * 2
    for _ in range(2):
        with pytest.raises(KafkaError):
            await here.links.call(read(0), 0)
    (line,) = caplog.messages
    assert line.startswith("Broker 2 ")
    assert "group.coordinator.rebalance.protocols" in line


async def test_a_write_that_its_caller_abandons_is_made() -> None:
    here = Here()
    here.links.call(Write(ShareKey("g", TOPIC_ID, 0), 0, 0, 0, ()), 0).cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(here.asked) == 1


async def test_connections_to_brokers_that_are_gone_are_closed() -> None:
    here = Here()
    await here.links.call(read(0), 0)
    here.links.brokers_changed([THIS, THIRD])
    assert here.closed == [OTHER]
