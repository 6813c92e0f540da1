"""Heartbeats of the consumer protocol over a log in memory: slow and failing appends, loading, both protocols."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from broker.groups.machine.consumer.assignors import Targets, UniformAssignor
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.group import ConsumerGroup
from broker.groups.machine.consumer.member import Member
from broker.groups.machine.consumer.partitions import NOTHING
from broker.groups.machine.group import Group
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.machine.states import GroupState
from broker.groups.offset_commits import Committer
from broker.groups.settings import CoordinatorSettings
from broker.groups.share_protocol import ShareProtocol
from broker.share.parts import ShareParts
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.fakes import Surroundings
from tests.broker.groups.test_coordinator import at, commit, committed, deleted, join, start, sync

SESSION_MS = 45_000
T = TypeVar("T")
SETTINGS = CoordinatorSettings(group=GroupSettings(initial_rebalance_delay_ms=0), serves_consumer_protocol=True)


def heartbeat(here: Surroundings, member_id: str, epoch: int = 0, **values: Any) -> Any:
    """Send a heartbeat, that of a join if it has epoch 0; return its result, or what waits for it."""
    return start(here.coordinator.consumers.heartbeat("g", heartbeat_request(member_id, epoch, **values)))


def heartbeat_request(member_id: str, epoch: int = 0, **values: Any) -> Heartbeat:
    return Heartbeat(
        **{
            "member_id": member_id,
            "epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1 if epoch else 60_000,
            "topic_names": None if epoch else ("t",),
            "topic_regex": None,
            "server_assignor": None,
            "reported": None if epoch else NOTHING,
            "client_id": member_id,
            "client_host": "/127.0.0.1",
            "may_see": lambda _: True,
            **values,
        }
    )


async def result_of(sent: T | Awaitable[T]) -> T:
    return await cast(Awaitable[T], sent) if isinstance(sent, Awaitable) else sent


async def joined(here: Surroundings, member_id: str) -> HeartbeatResult:
    sent = heartbeat(here, member_id)
    await here.idle()
    return await result_of(sent)


async def classic(here: Surroundings) -> None:
    """A stable group of one classic member that has all partitions."""
    await result_of(join(here, "old"))
    assignment = struct.pack(">hih1s5ii", 0, 1, 1, b"t", 4, 0, 1, 2, 3, -1)
    await result_of(sync(here, "old-1", 1, {"old-1": assignment}))


@pytest.fixture
async def here() -> Surroundings:
    here = Surroundings(SETTINGS)
    await here.lead()
    return here


async def test_a_member_is_told_its_partitions_when_they_are_stored(here: Surroundings) -> None:
    here.log.holds = True
    sent = heartbeat(here, "a")
    await here.idle()
    assert not sent.done()
    assert here.log.records() == []
    while here.log.held:
        here.log.release()
        await here.idle()
    result = await sent
    assert (result.epoch, {number for _, numbers in result.assigned.items() for number in numbers}) == (1, {0, 1, 2, 3})
    assert here.log.records()


@pytest.mark.parametrize(
    ("append_error", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_join_that_cannot_be_stored_leaves_nothing(
    here: Surroundings, append_error: ErrorCode, expected: ErrorCode
) -> None:
    here.log.append_error = append_error
    with pytest.raises(KafkaError) as caught:
        await joined(here, "a")
    assert caught.value.code is expected
    here.log.append_error = None
    result = await joined(here, "a")
    assert (result.epoch, result.assigned is not None) == (1, True)


async def test_a_heartbeat_without_changes_waits_for_those_before(here: Surroundings) -> None:
    first = await joined(here, "a")
    here.log.holds = True
    newcomer = heartbeat(here, "b")
    steady = heartbeat(here, "a", first.epoch)
    await here.idle()
    assert not newcomer.done()
    assert isinstance(steady, Awaitable)
    while here.log.held:
        here.log.release()
        await here.idle()
    assert (await result_of(steady)).member_id == "a"
    assert (await newcomer).epoch == 2


async def test_members_continue_with_another_coordinator(here: Surroundings) -> None:
    first = await joined(here, "a")
    await here.restart()
    again = await result_of(heartbeat(here, "a", first.epoch))
    assert (again.member_id, again.epoch) == ("a", 1)
    here.advance(SESSION_MS + 1)
    with pytest.raises(KafkaError) as caught:
        await result_of(heartbeat(here, "a", first.epoch))
    assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_silent_member_gives_its_partitions_to_others(here: Surroundings) -> None:
    first = await joined(here, "a")
    second = await joined(here, "b")
    assert not second.assigned
    here.advance(SESSION_MS - 1)
    await result_of(heartbeat(here, "b", second.epoch))
    here.advance(2)
    await here.idle()
    moved = await result_of(heartbeat(here, "b", second.epoch))
    assert moved.assigned is not None
    assert sum(map(len, moved.assigned.values())) == 4
    with pytest.raises(KafkaError):
        await result_of(heartbeat(here, "a", first.epoch))


async def test_a_classic_group_is_upgraded_or_stays_as_it_was(here: Surroundings) -> None:
    await classic(here)
    here.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        await joined(here, "new")
    group = here.coordinator.inspection.group("g")
    assert group is not None
    assert group.state is GroupState.STABLE
    here.log.append_error = None
    result = await joined(here, "new")
    assert result.epoch > group.generation_id
    assert join(here, "old", "old-1") is not None


async def test_a_refused_upgrade_does_not_stop_the_rebalance_of_the_classic_group(here: Surroundings) -> None:
    for joining in [join(here, "a"), join(here, "b"), join(here, "a", "a-1")]:
        await result_of(joining)
    nothing = struct.pack(">hii", 0, 0, -1)
    for syncing in [sync(here, "b-1", 2), sync(here, "a-1", 2, {"a-1": nothing, "b-1": nothing})]:
        await result_of(syncing)
    rejoining = join(here, "a", "a-1")
    here.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        await joined(here, "new")
    here.log.append_error = None
    here.advance(60_000)
    assert cast(Any, rejoining).done()
    assert (await result_of(rejoining)).error is ErrorCode.NONE


async def test_a_join_that_waits_for_targets_is_answered_when_the_group_becomes_classic(here: Surroundings) -> None:
    here.topics.put("t", 3_000)  # the targets are computed in slices
    await joined(here, "new")
    joining = cast(Any, join(here, "old"))
    await result_of(heartbeat(here, "new", -1))
    assert joining.done()
    with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
        await joining
    assert isinstance(here.coordinator.inspection.group("g"), Group)


async def test_a_heartbeat_that_waits_for_targets_is_answered_when_a_classic_group_begins(here: Surroundings) -> None:
    here.topics.put("t", 3_000)
    waiting = heartbeat(here, "new")
    await result_of(heartbeat(here, "new", -1))
    assert (await result_of(join(here, "old"))).error is ErrorCode.NONE
    assert waiting.done()
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        await waiting


async def test_a_waiting_request_whose_step_raises_is_logged_and_the_others_are_answered(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.topics.put("t", 100)  # the targets are computed in slices
    failing, other = heartbeat(here, "a"), heartbeat(here, "b")
    step = ConsumerGroup._step

    def step_or_raise(group: ConsumerGroup, member: Member, *rest: Any) -> None:
        if member.member_id == "a":
            raise RuntimeError("out of step")
        step(group, member, *rest)

    monkeypatch.setattr(ConsumerGroup, "_step", step_or_raise)
    await here.idle()
    assert other.done()
    assert (await other).member_id == "b"
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        await failing
    assert "out of step" in caplog.text


async def test_a_group_that_is_deleted_while_its_targets_are_computed_does_not_come_back(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def assign(*_: object) -> Targets:
        await result_of(heartbeat(here, "a", -1))
        assert await deleted(here) is ErrorCode.NONE
        return {}

    monkeypatch.setattr(UniformAssignor, "assign", assign)
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        await joined(here, "a")
    await here.restart()
    assert here.coordinator.inspection.group("g") is None


@pytest.mark.parametrize("migration", ["disabled", "downgrade"])
async def test_a_policy_may_forbid_an_upgrade(migration: str) -> None:
    here = Surroundings(replace(SETTINGS, migration=migration))
    await here.lead()
    await classic(here)
    with pytest.raises(KafkaError) as caught:
        await joined(here, "new")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_member_learns_of_new_partitions_without_a_change_of_its_own(here: Surroundings) -> None:
    first = await joined(here, "a")
    here.topics.put("t", 6)
    later = await result_of(heartbeat(here, "a", first.epoch))
    assert later.epoch > first.epoch
    assert sorted(number for numbers in later.assigned.values() for number in numbers) == [0, 1, 2, 3, 4, 5]


async def test_a_heartbeat_after_a_change_of_other_topics_is_answered(here: Surroundings) -> None:
    first = await joined(here, "a")
    here.topics.put("other", 1)
    later = await result_of(heartbeat(here, "a", first.epoch))
    assert (later.epoch, later.assigned) == (first.epoch, None)


def share_protocol(here: Surroundings) -> ShareProtocol:
    """Share groups whose members subscribe to nothing, so that no states are begun."""
    groups, runner, pause = here.coordinator._groups, here.coordinator.runner, here.sliced_work.pause
    return ShareProtocol(groups, runner, lambda: here.topics, pause, cast(Any, None), cast(ShareParts, None))


@pytest.mark.parametrize("is_consumer_group", [True, False])
async def test_no_member_joins_a_group_while_its_offsets_are_removed(
    here: Surroundings, is_consumer_group: bool
) -> None:
    if is_consumer_group:
        first = await joined(here, "a")
        commit(here, {("t", index): at(index) for index in range(1200)}, Committer("a", None, first.epoch))
        await result_of(heartbeat(here, "a", -1))
    else:
        commit(here, {("t", index): at(index) for index in range(1200)})
    deleting = asyncio.ensure_future(deleted(here))
    await asyncio.sleep(0)
    shares = share_protocol(here)
    for request in (
        lambda: join(here, "b"),
        lambda: heartbeat(here, "b"),
        lambda: start(shares.heartbeat("g", heartbeat_request("b", topic_names=None))),
        lambda: start(shares.move("g", {})),
    ):
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            request()
    assert await deleting is ErrorCode.NONE
    assert (await joined(here, "b")).epoch == 1
    await here.restart()
    assert committed(here) == {}
