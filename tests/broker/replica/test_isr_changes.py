"""How changes of the ISR reach the controller: batched, one request at a time, repeated until a response arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.replica import isr_changes
from broker.replica.isr_changes import IsrChanges
from broker.replica.machine.isr import IsrChange
from broker.replica.partition import Effects, IsrResponse, Partition
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from tests.broker.replica.test_partition import ME, A, B, append, led_by, partition_in

Responder = Callable[[AlterPartitionRequest], AlterPartitionResponse]


class Controller:
    """Responds to each request with the next of its responses, then applies every change."""

    def __init__(self, *responses: Responder) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self._responds = list(responses)
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        await self.may_respond.wait()
        return self._responds.pop(0)(request) if self._responds else applied(request)


def with_code(code: int) -> Responder:
    def respond(request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = applied(request)
        for topic in response.topics:
            topic.partitions = [
                PartitionResult(partition_index=one.partition_index, error_code=code) for one in topic.partitions
            ]
        return response

    return respond


def whole(code: ErrorCode) -> Responder:
    return lambda request: AlterPartitionResponse(error_code=code)


def unavailable(request: AlterPartitionRequest) -> AlterPartitionResponse:
    raise ConnectionError("broker 1 at 127.0.0.1:9092: connection lost")


def applied(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            TopicResult(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResult(
                        partition_index=one.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=one.leader_epoch,
                        isr=[it.broker_id for it in one.new_isr_with_epochs],
                        partition_epoch=one.partition_epoch + 1,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Leader:
    """A broker that leads partitions which follower B has caught up with."""

    def __init__(self, controller: Controller) -> None:
        self.changes = IsrChanges(ME, lambda: 11, controller.ask, self._responded)

    def _responded(self, partition: Partition, change: IsrChange, respond: IsrResponse) -> Effects:
        effects = partition.isr_responded(change, respond, 0)
        for effect in effects:
            if isinstance(effect, IsrChange):
                self.changes.submit(partition, effect)
        return effects

    def expand(self, folder: Path) -> Partition:
        partition = partition_in(folder)
        partition.lead(led_by(ME, 0, (ME, A)), 0)
        append(partition)
        for effect in partition.follower_fetched(B, 1, 0, 0, broker_epoch=22):
            if isinstance(effect, IsrChange):
                self.changes.submit(partition, effect)
        return partition


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_S", 0)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - a turn of the loop, no time
            await asyncio.sleep(0)


async def test_changes_of_one_turn_share_a_request_and_later_ones_the_next(tmp_path: Path) -> None:
    controller = Controller()
    controller.may_respond.clear()
    leader = Leader(controller)
    partitions = [leader.expand(tmp_path / "a"), leader.expand(tmp_path / "b")]
    await until(lambda: bool(controller.requests))
    # Both are partition 0 of topic t, with ids of their own: the later change has replaced the earlier one.
    (request,) = controller.requests
    (topic,) = request.topics
    (data,) = topic.partitions
    assert (request.broker_id, request.broker_epoch, topic.topic_id) == (ME, 11, partitions[1].topic_id)
    assert [(it.broker_id, it.broker_epoch) for it in data.new_isr_with_epochs] == [(ME, 11), (A, -1), (B, 22)]
    assert (data.leader_epoch, data.partition_epoch, data.leader_recovery_state) == (0, 0, 0)
    third = leader.expand(tmp_path / "c")
    await asyncio.sleep(0)
    assert len(controller.requests) == 1
    controller.may_respond.set()
    await until(lambda: third.isr_change is None)
    assert len(controller.requests) == 2
    assert leader.changes.expand_count == 2


async def test_change_submitted_right_after_the_last_response_is_requested(tmp_path: Path) -> None:
    second: list[Partition] = []

    def respond(request: AlterPartitionRequest) -> AlterPartitionResponse:
        # In the turn after the one in which the task ends.
        asyncio.get_running_loop().call_soon(lambda: second.append(leader.expand(tmp_path / "b")))
        return applied(request)

    controller = Controller(respond)
    leader = Leader(controller)
    leader.expand(tmp_path / "a")
    await until(lambda: bool(second) and second[0].isr_change is None)
    assert len(controller.requests) == 2


@pytest.mark.parametrize(
    "refusal",
    [unavailable, whole(ErrorCode.NOT_CONTROLLER), whole(ErrorCode.STALE_BROKER_EPOCH)],
    ids=["unreachable", "not the controller", "stale broker epoch"],
)
async def test_change_is_requested_until_a_response_arrives(tmp_path: Path, refusal: Responder) -> None:
    controller = Controller(refusal, refusal)
    leader = Leader(controller)
    partition = leader.expand(tmp_path)
    await until(lambda: partition.isr_change is None)
    assert tuple(partition.leadership.isr) == (ME, A, B)
    assert len(controller.requests) == 3
    assert (leader.changes.expand_count, leader.changes.failure_count) == (1, 0)


@pytest.mark.parametrize(
    ("code", "requests"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, 1),
        (ErrorCode.FENCED_LEADER_EPOCH, 1),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 2),
        (max(ErrorCode) + 1, 2),
    ],
)
async def test_refused_change_is_counted_and_repeated_only_if_that_may_help(
    tmp_path: Path, code: int, requests: int
) -> None:
    controller = Controller(with_code(code))
    leader = Leader(controller)
    leader.expand(tmp_path)
    await until(lambda: leader.changes._task is None)
    assert len(controller.requests) == requests
    assert leader.changes.failure_count == 1


async def test_partition_missing_in_the_response_is_requested_again(tmp_path: Path) -> None:
    controller = Controller(lambda request: AlterPartitionResponse())
    leader = Leader(controller)
    partition = leader.expand(tmp_path)
    await until(lambda: partition.isr_change is None)
    assert len(controller.requests) == 2


async def test_change_that_newer_metadata_has_ended_is_not_requested_again(tmp_path: Path) -> None:
    controller = Controller(unavailable)
    controller.may_respond.clear()
    leader = Leader(controller)
    partition = leader.expand(tmp_path)
    await until(lambda: bool(controller.requests))
    partition.lead(led_by(ME, 1, (ME, A)), 0)
    controller.may_respond.set()
    await until(lambda: leader.changes._task is None)
    assert len(controller.requests) == 1


async def test_nothing_is_requested_after_a_stop(tmp_path: Path) -> None:
    controller = Controller()
    controller.may_respond.clear()
    leader = Leader(controller)
    leader.expand(tmp_path / "a")
    await until(lambda: bool(controller.requests))
    await leader.changes.stop()
    leader.expand(tmp_path / "b")
    await asyncio.sleep(0)
    assert len(controller.requests) == 1


async def test_request_names_a_bounded_number_of_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "PARTITIONS_MAX", 2)
    controller = Controller()
    leader = Leader(controller)
    partitions = []
    for index in range(5):
        partition = partition_in(tmp_path / str(index))
        partition.topic = f"t{index}"
        partition.lead(led_by(ME, 0, (ME, A)), 0)
        append(partition)
        partitions.append(partition)
        for effect in partition.follower_fetched(B, 1, 0, 0, broker_epoch=22):
            if isinstance(effect, IsrChange):
                leader.changes.submit(partition, effect)
    await until(lambda: leader.changes.expand_count == 5)
    assert [sum(len(topic.partitions) for topic in it.topics) for it in controller.requests] == [2, 2, 1]


async def test_repetition_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", isr_changes.logger.name)
    controller = Controller(*[unavailable] * 5)
    leader = Leader(controller)
    leader.expand(tmp_path / "a")
    await until(lambda: leader.changes.expand_count == 1)
    wanted, refused, changed = caplog.messages
    assert (wanted[:36], refused[:30]) == ("t-0: the ISR is to change from [1, 2", "the controller cannot be asked")
    assert changed.startswith("t-0: the ISR is [")


async def test_shrink_is_counted_and_logged_with_the_lag_of_each_removed_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", isr_changes.logger.name)
    leader = Leader(Controller())
    partition = partition_in(tmp_path)
    partition.lead(led_by(ME, 0, (ME, A, B)), 0)
    append(partition)
    partition.follower_fetched(A, 0, 0, 10_000)
    for effect in partition.time_passed(40_000):
        if isinstance(effect, IsrChange):
            leader.changes.submit(partition, effect)
    await until(lambda: partition.isr_change is None)
    assert (leader.changes.shrink_count, leader.changes.expand_count, leader.changes.failure_count) == (1, 0, 0)
    assert caplog.messages[0] == (
        f"t-0: the ISR is to change from {[ME, A, B]} to {[ME]}; "
        f"replica {A}: end offset 0, leader 1; last caught up 40000 ms ago; "
        f"replica {B}: end offset unknown, leader 1; last caught up 40000 ms ago"
    )


async def test_a_follower_that_restarts_meanwhile_is_named_with_the_registration_it_had(tmp_path: Path) -> None:
    """It may have lost what had made it complete, so the controller must be able to see that."""
    controller = Controller(unavailable)
    controller.may_respond.clear()
    partition = Leader(controller).expand(tmp_path)
    await until(lambda: bool(controller.requests))
    partition.follower_fetched(B, 0, 0, 0, broker_epoch=23)
    controller.may_respond.set()
    await until(lambda: partition.isr_change is None)
    named = [request.topics[0].partitions[0].new_isr_with_epochs[-1] for request in controller.requests]
    assert [(it.broker_id, it.broker_epoch) for it in named] == [(B, 22), (B, 22)]
