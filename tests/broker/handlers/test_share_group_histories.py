"""Random histories of a share group, with members that vanish and a broker that is started again.

What was acknowledged is never delivered again, nothing is delivered to two members at once, nothing is delivered more
often than allowed, and in the end every record was.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from protocol.errors import ErrorCode
from tests.broker.handlers.test_commits_in_a_row import until_it_coordinates
from tests.broker.handlers.test_share_groups import ACCEPT, REJECT, RELEASE, SETTINGS, Member, Shared, acquired
from tests.support.in_process import running_broker

DELIVERIES_MAX = 3
STEPS, RESTARTS = 60, 3


class History:
    """What a group was told, and what it has said."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.written = 0
        self.done: set[int] = set()
        self.deliveries: dict[int, int] = {}
        """The delivery count that the last member was told."""
        self.held: dict[str, set[int]] = {}
        """What each member holds."""

    def delivered(self, member: str, first: int, last: int, count: int) -> None:
        for offset in range(first, last + 1):
            assert offset not in self.done, "what was acknowledged is not delivered again"
            assert not any(offset in held for held in self.held.values()), "nobody else has it"
            assert 1 <= count <= DELIVERIES_MAX, "it is not delivered more often than allowed"
            self.deliveries[offset] = count
            self.held.setdefault(member, set()).add(offset)

    async def step(self, shared: Shared, members: dict[str, Member]) -> None:
        name = self.chance.choice("abcd")
        member = members.get(name)
        action = self.chance.randrange(8)
        if action == 0:
            count = self.chance.randrange(1, 9)
            await shared.produce(count, batch_size=count)
            self.written += count
        elif member is None:
            member = members[name] = shared.member(name)
            await self.fetch(member)
        elif action == 1:
            del members[name]  # it vanishes; the next one of this name opens a new session, which ends the old one
        elif action == 2:
            assert await member.acknowledge(epoch=-1) in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
            del members[name]
            self.held.pop(name, None)
        elif action <= 4:
            await self.fetch(member)
        else:
            await self.acknowledge(member)

    async def fetch(self, member: Member) -> None:
        if member.epoch == 0:
            self.held.pop(member.member_id, None)
        for first, last, count in acquired(await member.fetch(max_records=self.chance.randrange(1, 12))):
            self.delivered(member.member_id, first, last, count)

    async def acknowledge(self, member: Member) -> None:
        held = sorted(self.held.get(member.member_id, ()))
        for offset in self.chance.sample(held, self.chance.randrange(len(held) + 1)):
            kind = self.chance.choice((ACCEPT, ACCEPT, RELEASE, REJECT))
            assert await member.acknowledge((offset, offset, kind)) is ErrorCode.NONE
            self.held[member.member_id].discard(offset)
            if kind != RELEASE or self.deliveries[offset] == DELIVERIES_MAX:
                self.done.add(offset)


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_acknowledged_is_delivered_again_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    settings = {
        **SETTINGS,
        "group.share.delivery.count.limit": str(DELIVERIES_MAX),
        "group.share.max.share.sessions": "9",
    }
    history = History(Random(seed))
    for round_number in range(RESTARTS):
        async with running_broker(tmp_path / "broker", settings) as broker:
            shared = Shared(broker, "shared")
            if not round_number:
                await broker.create_topic("shared")
            await until_it_coordinates(broker)
            await shared.begin()
            history.held.clear()
            members: dict[str, Member] = {}
            for _ in range(STEPS):
                await history.step(shared, members)
            if round_number == RESTARTS - 1:
                await finish(shared, history)


async def finish(shared: Shared, history: History) -> None:
    """Let one member read all that is left."""
    for name in "abcd":
        await shared.member(name).fetch(max_records=1)  # ends the session of one that has vanished
    for session in shared.broker.services.share().sessions:
        member = shared.member(session.member_id)
        member.epoch = session.epoch
        await member.acknowledge(epoch=-1)
    history.held.clear()
    last = shared.member("z")
    while True:
        got = acquired(await last.fetch())
        if not got:
            break
        for first, end, count in got:
            history.delivered("z", first, end, count)
            assert await last.acknowledge((first, end, ACCEPT)) is ErrorCode.NONE
            history.done |= set(range(first, end + 1))
    assert await shared.start_offset() == history.written
    archived = set(range(history.written)) - history.done
    assert all(history.deliveries.get(offset) == DELIVERIES_MAX for offset in archived), "every record was delivered"
