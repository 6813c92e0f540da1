"""What the simulated clients and the simulated supervisor of brokers do at rare moments."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from protocol.errors import ErrorCode
from tests.sim.checkers import check
from tests.sim.clients.base import Retry, SimulatedClient
from tests.sim.clients.share_member import ShareMember, _Session
from tests.sim.history import DataLoss, Partition, ShareSession
from tests.sim.run import PLAIN
from tests.sim.scripted import Script

P = PLAIN[0]


class Asker(SimulatedClient):
    """Asks one broker for the leader of a partition."""

    async def run(self) -> None: ...

    async def leader_according_to(self, broker: int, partition: Partition) -> int:
        self.any_broker = lambda: broker  # type: ignore[method-assign]
        self.forget_cluster()
        return (await self.leader_of(partition))[0]


@pytest.fixture
def script() -> Script:
    script = Script()
    script.begin()
    return script


@pytest.mark.parametrize("keeps_latest_epoch", [True, False])
def test_client_that_keeps_the_latest_epoch_does_not_go_back_to_a_deposed_leader(
    script: Script, keeps_latest_epoch: bool
) -> None:
    asker = Asker("asker", script)
    asker.keeps_latest_epoch = keeps_latest_epoch
    deposed = script.leader(P)
    script.isolate(deposed)
    script.wait_until(lambda: script.leader(P) not in (deposed, -1))
    leader = script.leader(P)

    def ask(broker: int) -> int:
        task = asker.loop.start(asker.leader_according_to(broker, P))
        script.wait_until(task.done)
        return task.result()

    assert ask(deposed) == deposed
    script.wait_until(lambda: ask(leader) == leader)
    if keeps_latest_epoch:
        with pytest.raises(Retry):
            ask(deposed)
    else:
        assert ask(deposed) == deposed
    assert script.end() == []


def test_disk_that_fills_up_during_a_stop_is_no_failure_of_the_run(script: Script) -> None:
    broker = script.others(script.controller())[0]
    machine = script.cluster.machines[broker]
    process = machine.process
    assert process is not None
    script.cluster.stop(broker)
    first_stop = process.stopped
    machine.disk.is_full = True
    script.wait_until(lambda: machine.process is not process)
    assert process.stopped is not first_stop, "the broker has not stopped because of its disk"
    assert script.end() == []


def test_copier_whose_position_lies_beyond_a_source_that_lost_records_is_not_stuck(script: Script) -> None:
    """Only then: the loss is excused in the partition that it concerns, and nowhere else."""
    copier = Asker("copier", script)
    copier.doing = "Fetch source-0, after OFFSET_OUT_OF_RANGE"
    script._note_stuck(copier)
    assert [it.rule for it in check(script.history)] == ["no client is stuck"]
    script.history.losses += [DataLoss(script.world.now_us, broker) for broker in script.cluster.machines]
    assert check(script.history) == []
    copier.doing = "Fetch source-0, after NOT_LEADER_OR_FOLLOWER"
    script._note_stuck(copier)
    assert [it.rule for it in check(script.history)] == ["no client is stuck"]


@pytest.mark.parametrize(("is_last", "confirmed_us"), [(False, 7), (True, 0)])
async def test_the_response_to_the_end_of_a_share_session_does_not_show_that_it_was_open(
    is_last: bool, confirmed_us: int
) -> None:
    member = object.__new__(ShareMember)
    member._group, member._member_id, member.topic_ids = "g", "m", {}
    response = SimpleNamespace(error_code=ErrorCode.NONE, responses=[])
    member.ask = AsyncMock(return_value=response)  # type: ignore[method-assign]
    member.now_us = lambda: 7  # type: ignore[method-assign]
    known = ShareSession("g", "m", 1)
    await member._acknowledge(1, _Session(known), is_last=is_last)
    assert known.confirmed_us == confirmed_us
