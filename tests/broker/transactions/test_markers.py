"""The sender by itself: what each code means, several leaders, and retries that look up the leader again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from base.topic_partition import TopicPartition
from broker.loop.timer import Timer
from broker.transactions.marker_channels import OwnMarkerChannel
from broker.transactions.markers import FATES, RETRY_BACKOFF_MS, Fate, Marker, MarkerChannel, MarkerSender
from protocol.errors import ErrorCode
from tests.broker.transactions.fakes import FakeChannel, FakeLeaders
from tests.broker.transactions.support import A0, A1, B0
from tests.support.manual_clock import ManualClock

MARKER = Marker(7, 0, True, 3)
DONE = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
SUPERSEDED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
RETRY = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class Sending:
    """A sender with channels to brokers 1 and 2, unless others are given."""

    def __init__(self, channels: Mapping[int, MarkerChannel] | None = None) -> None:
        self.clock = ManualClock()
        self.timer = Timer()
        self.leaders = FakeLeaders()
        self.channels = {1: FakeChannel(), 2: FakeChannel()}
        self.sender = MarkerSender(
            "__transaction_state", self.leaders, channels or self.channels, self.timer, self.clock
        )

    async def send(self, name: str, marker: Marker, partitions: list[TopicPartition]) -> Fate:
        sent = self.sender.send(name, marker, partitions)
        return sent if isinstance(sent, Fate) else await sent

    async def wait(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_backoff(self) -> None:
        await self.wait()
        self.clock.advance(RETRY_BACKOFF_MS)
        self.timer.advance(self.clock.monotonic_ms())
        await self.wait()


@pytest.mark.parametrize("code", ErrorCode)
async def test_each_error_code_is_final_or_retried_as_in_kafka(code: ErrorCode) -> None:
    expected = Fate.DONE if code in DONE else Fate.SUPERSEDED if code in SUPERSEDED else Fate.FAILED
    sending = Sending()
    sending.channels[1].codes[A0] = [code]
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0]))
    await sending.wait()
    if code in RETRY:
        assert FATES[code] is Fate.RETRY
        assert not asked.done()
        await sending.pass_backoff()
        expected = Fate.DONE
    assert await asked is expected


async def test_each_leader_gets_its_own_partitions() -> None:
    sending = Sending()
    sending.leaders.leaders[B0] = 2
    assert await sending.send("id", MARKER, [A0, B0, A1]) is Fate.DONE
    assert sending.channels[1].written == [(MARKER, A0), (MARKER, A1)]
    assert sending.channels[2].written == [(MARKER, B0)]


async def test_a_marker_follows_the_leader_of_its_partition() -> None:
    sending = Sending()
    sending.channels[1].codes[A0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0, A1]))
    await sending.wait()
    sending.leaders.leaders[A0] = 2
    await sending.pass_backoff()
    assert await asked is Fate.DONE
    assert sending.channels[1].asked == [(A0, A1)]
    assert sending.channels[2].asked == [(A0,)]


async def test_leader_that_does_not_respond_delays_no_marker_of_another() -> None:
    sending = Sending()
    sending.leaders.leaders[B0] = 2
    sending.channels[1].codes[A0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    sending.channels[2].holds = True
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0, B0]))
    await sending.pass_backoff()
    assert sending.channels[1].written == [(MARKER, A0)]
    assert not asked.done()
    sending.channels[2].held[0].release()
    assert await asked is Fate.DONE


async def test_partitions_whose_leaders_part_are_sent_apart() -> None:
    sending = Sending()
    sending.leaders.leaders |= {A0: -1, A1: -1, B0: -1}
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0, A1, B0]))
    await sending.wait()
    sending.leaders.leaders |= {A0: 1, B0: 2}
    sending.channels[2].holds = True
    await sending.pass_backoff()
    assert sending.channels[1].asked == [(A0,)]
    assert sending.channels[2].held[0].partitions == (B0,)
    assert sending.sender.waiting_count == 1
    sending.leaders.leaders[A1] = 1
    await sending.pass_backoff()
    assert sending.channels[1].asked == [(A0,), (A1,)]
    sending.channels[2].held[0].release()
    assert await asked is Fate.DONE


async def test_a_newer_coordinator_ends_the_send_before_other_leaders_respond() -> None:
    sending = Sending()
    sending.leaders.leaders[B0] = 2
    sending.channels[1].codes[A0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    sending.channels[2].holds = True
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0, B0]))
    await sending.wait()
    assert asked.done()
    assert asked.result() is Fate.SUPERSEDED
    assert sending.channels[2].held[0].done.cancelled()


@pytest.mark.parametrize("leader", [-1, 9], ids=["no leader", "no way to it"])
async def test_leader_without_a_channel_is_retried(leader: int) -> None:
    sending = Sending()
    sending.leaders.leaders[A0] = leader
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0]))
    await sending.pass_backoff()
    assert not asked.done()
    assert sending.sender.waiting_count == 1
    sending.leaders.leaders[A0] = 1
    await sending.pass_backoff()
    assert await asked is Fate.DONE
    assert sending.sender.waiting_count == 0


async def test_a_topic_that_is_deleted_during_retries_is_skipped() -> None:
    sending = Sending()
    sending.channels[1].codes[A0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 9
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0]))
    await sending.wait()
    sending.leaders.deleted.add("a")
    await sending.pass_backoff()
    assert await asked is Fate.DONE
    assert sending.channels[1].written == []


async def test_send_without_partitions_ends_at_once() -> None:
    assert await Sending().send("id", MARKER, []) is Fate.DONE


async def test_cancelled_send_sends_no_further_request() -> None:
    sending = Sending()
    sending.leaders.leaders[A0] = -1
    asked = asyncio.ensure_future(sending.send("id", MARKER, [A0]))
    await sending.wait()
    asked.cancel()
    sending.leaders.leaders[A0] = 1
    await sending.pass_backoff()
    assert sending.channels[1].asked == []
    assert asked.cancelled()
    assert sending.sender.waiting_count == 0


async def test_other_work_runs_between_the_markers_of_many_partitions_of_this_broker() -> None:
    turns: list[int] = []
    own = FakeChannel()

    async def pause() -> None:
        turns.append(len(own.asked))
        await asyncio.sleep(0)

    sending = Sending({1: OwnMarkerChannel(own, pause)})
    own.codes["t", 150] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partitions = [("t", number) for number in range(1_000)]
    asked = asyncio.ensure_future(sending.send("id", MARKER, partitions))
    await sending.pass_backoff()
    assert await asked is Fate.DONE
    assert turns == [*range(1, 11)]
    assert [len(piece) for piece in own.asked] == [100] * 10 + [1]
    assert sorted(partition for _, partition in own.written) == partitions


async def test_all_partitions_of_this_broker_get_their_marker_although_another_broker_refuses_its_own() -> None:
    own, other = FakeChannel(), FakeChannel()

    async def pause() -> None:
        await asyncio.sleep(0)

    sending = Sending({1: OwnMarkerChannel(own, pause), 2: other})
    sending.leaders.leaders["u", 0] = 2
    other.codes["u", 0] = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    partitions = [("t", number) for number in range(1_000)]
    assert await sending.send("id", MARKER, [*partitions, ("u", 0)]) is Fate.FAILED
    await sending.wait()
    assert sorted(partition for _, partition in own.written) == partitions
