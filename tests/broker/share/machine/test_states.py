"""States of share groups: how they follow from calls, and what holds while leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from uuid import UUID

import pytest

from broker.share.machine.deliveries import (
    Acknowledgement,
    Deliveries,
    DeliveryLimits,
    ReadBatch,
    RecordState,
    StateBatch,
)
from broker.share.machine.records import ShareKey, key_of, text_of
from broker.share.machine.state_calls import (
    BATCHES_MAX,
    Call,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    Write,
    check,
    state_after,
)
from broker.share.machine.stored_states import NO_START, ShareState, furthest
from protocol.errors import ErrorCode, KafkaError

AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
KEY = ShareKey("a:group", UUID(int=7), 3)
ACCEPT, RELEASE, REJECT = 1, 2, 3
LIMITS = DeliveryLimits(delivery_count_max=3, in_flight_max=20, lock_duration_ms=100)


def code_of(call: Call, before: ShareState | None) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state_after(call, before)
    return caught.value.code


# Single calls


def test_a_key_is_found_by_its_text() -> None:
    assert key_of(text_of(KEY)) == KEY


@pytest.mark.parametrize(
    "text", ["", "group", "group:3", ":AAAAAAAAAAAAAAAAAAAABw:3", "g:id:3", "g:AAAAAAAAAAAAAAAAAAAABw:x"]
)
def test_other_texts_name_no_state(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|invalid literal"):
        key_of(text)


def test_a_state_begins_once_in_each_state_epoch() -> None:
    begun = state_after(Initialize(KEY, 0), None)
    assert begun == ShareState(0, NO_START)
    read = ShareState(0, 5, [StateBatch(5, 6, AVAILABLE, 1)], leader_epoch=4)
    assert state_after(Initialize(KEY, 0), read) == read
    moved = state_after(Initialize(KEY, 1, 2), read)
    assert moved == ShareState(1, 2, (), leader_epoch=4)
    assert state_after(Initialize(KEY, 0), moved) == moved
    assert code_of(Initialize(KEY, 1), moved._replace(state_epoch=2)) is ErrorCode.FENCED_STATE_EPOCH


def test_a_leader_that_reads_fences_those_before() -> None:
    state = state_after(Read(KEY, 4), ShareState(0, 5, leader_epoch=2))
    assert state is not None
    assert state.leader_epoch == 4
    assert state_after(Read(KEY, 4), state) == state
    assert code_of(Read(KEY, 3), state) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(Write(KEY, 0, 3, 5, ()), state) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_summary_fences_nobody() -> None:
    state = ShareState(0, 5, leader_epoch=2)
    assert state_after(ReadSummary(KEY), state) == state
    assert state_after(ReadSummary(KEY), None) is None


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_write_of_another_state_epoch_is_fenced(epoch: int) -> None:
    assert code_of(Write(KEY, epoch, 9, 5, ()), ShareState(1, 2)) is ErrorCode.FENCED_STATE_EPOCH


@pytest.mark.parametrize("call", [Read(KEY, 0), Write(KEY, 0, 0, 5, ())])
def test_a_state_that_does_not_exist_is_neither_read_nor_written(call: Call) -> None:
    assert code_of(call, None) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state_after(Delete(KEY), None) is None


@pytest.mark.parametrize(
    "call",
    [
        Read(KEY._replace(partition=-1), 0),
        Initialize(KEY, -1),
        Initialize(KEY, 0, -2),
        Write(KEY, 0, 0, -2, ()),
        Write(KEY, 0, 0, 0, [StateBatch(1, 0, AVAILABLE, 1)]),
        Write(KEY, 0, 0, 0, [StateBatch(-1, 0, AVAILABLE, 1)]),
        Write(KEY, 0, 0, 0, [StateBatch(0, 0, RecordState.ACQUIRED, 1)]),
        Write(KEY, 0, 0, 0, [StateBatch(0, 0, AVAILABLE, -1)]),
        Write(KEY, 0, 0, 0, [StateBatch(0, 0, AVAILABLE, 1)] * (BATCHES_MAX + 1)),
    ],
)
def test_what_no_broker_means_is_refused(call: Call) -> None:
    with pytest.raises(KafkaError, match="expected") as caught:
        check(call)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_state_does_not_grow_by_many_writes() -> None:
    state = ShareState(0, 0, [StateBatch(2 * each, 2 * each, AVAILABLE, 1) for each in range(BATCHES_MAX)])
    assert code_of(Write(KEY, 0, 0, 0, [StateBatch(1, 1, ARCHIVED, 1)]), state) is ErrorCode.INVALID_REQUEST
    assert state_after(Write(KEY, 0, 0, 2, [StateBatch(3, 3, ARCHIVED, 1)]), state) is not None


# Updates


def test_the_furthest_state_of_each_record_counts() -> None:
    found = furthest(
        [
            StateBatch(0, 9, AVAILABLE, 1),
            StateBatch(4, 5, AVAILABLE, 2),
            StateBatch(5, 6, ACKNOWLEDGED, 1),
            StateBatch(12, 12, ARCHIVED, 3),
        ],
        2,
    )
    assert found == [
        StateBatch(2, 3, AVAILABLE, 1),
        StateBatch(4, 4, AVAILABLE, 2),
        StateBatch(5, 6, ACKNOWLEDGED, 1),
        StateBatch(7, 9, AVAILABLE, 1),
        StateBatch(12, 12, ARCHIVED, 3),
    ]


def test_a_late_write_makes_nothing_available_that_is_done() -> None:
    """A write fails with two more deliveries of a record; the leader reads the state, and one of them is accepted."""
    state = ShareState(0, 0, [StateBatch(0, 9, AVAILABLE, 1)])
    late = Write(KEY, 0, 0, 0, [StateBatch(5, 5, AVAILABLE, 3)])
    for call in (Write(KEY, 0, 0, 0, [StateBatch(5, 5, ACKNOWLEDGED, 2)]), late):
        after = state_after(call, state)
        assert after is not None
        state = after
    assert StateBatch(5, 5, ACKNOWLEDGED, 2) in state.batches


@pytest.mark.parametrize("seed", range(50))
def test_a_leader_that_writes_all_records_in_flight_changes_what_it_has_changed(seed: int) -> None:
    chance = Random(seed)
    state = ShareState(0).advanced(0, _random_batches(chance, 12), 0)
    update = [
        each if chance.random() < 0.8 else each._replace(state=ACKNOWLEDGED, delivery_count=chance.randrange(4))
        for each in state.batches
    ]
    update += _random_batches(chance, chance.choice((0, 0, 1)))
    start = chance.choice((0, 0, chance.randrange(30)))
    assert list(state.advanced(start, update, 0).batches) == furthest([*state.batches, *update], start)


def _random_batches(chance: Random, count: int) -> list[StateBatch]:
    firsts = [chance.randrange(60) for _ in range(count)]
    return [
        StateBatch(first, first + chance.randrange(9), chance.choice((0, 2, 4)), chance.randrange(4))
        for first in firsts
    ]


@pytest.mark.parametrize("seed", range(20))
def test_updates_give_the_same_state_in_any_order_and_any_number(seed: int) -> None:
    chance = Random(seed)
    updates = []
    for _ in range(5):
        batches = []
        for _ in range(chance.randrange(5)):
            first = chance.randrange(30)
            batches.append(
                StateBatch(first, first + chance.randrange(9), chance.choice((0, 2, 4)), chance.randrange(4))
            )
        updates.append(Write(KEY, 0, chance.randrange(3), chance.randrange(-1, 9), batches))

    def state_of(applied: Sequence[Write]) -> ShareState:
        state = ShareState(0)
        for each in applied:
            state = state.advanced(each.start_offset, each.batches, each.leader_epoch)
        return state

    state = state_of(updates)
    assert state_of(chance.sample(updates, 5) + chance.choices(updates, k=3)) == state
    assert furthest(state.batches, state.start_offset) == list(state.batches)
    for offset in range(state.start_offset, 40):
        said = [
            (what != AVAILABLE, count, what)
            for it in updates
            for first, last, what, count in it.batches
            if first <= offset <= last
        ]
        kept = [
            (what != AVAILABLE, count, what) for first, last, what, count in state.batches if first <= offset <= last
        ]
        assert kept == ([max(said)] if said else [])


# Histories


class Coordinators:
    """One state at its coordinator, which moves: the next one has what is replicated, and perhaps more."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.log: list[ShareState] = [ShareState(0, 0)]
        self.replicated = 1
        self.responses: list[tuple[int, Leader, Call, ShareState]] = []
        """What is sent as soon as the log is replicated so far."""

    def serve(self, leader: Leader, call: Call) -> None:
        try:
            after = state_after(call, self.log[-1])
        except KafkaError:
            leader.responded(call, None)
            return
        assert after is not None
        self.log.append(after)
        self.responses.append((len(self.log), leader, call, after))

    def replicate(self) -> None:
        self.replicated = len(self.log)
        responses, self.responses = self.responses, []
        for _, leader, call, state in responses:
            leader.responded(call, state)

    def move(self) -> None:
        self.responses.clear()
        del self.log[self.chance.randrange(self.replicated, len(self.log) + 1) :]
        self.replicated = len(self.log)


class Leader:
    """The leader of the partition in one epoch: it has one write under way, and changes wait for the next one."""

    def __init__(self, history: History, epoch: int) -> None:
        self.history, self.epoch = history, epoch
        self.deliveries: Deliveries | None = None
        self.holders: dict[int, str] = {}
        self.is_fenced = False
        self.under_way: Call = Read(KEY, epoch)
        self.is_waiting = True
        self.written: set[int] = set()
        """What was acknowledged in the write that is under way."""
        self.unwritten: set[int] = set()
        self.is_dirty = False

    def responded(self, call: Call, state: ShareState | None) -> None:
        if not self.is_waiting or call is not self.under_way:
            return  # to a request that was sent again
        self.is_waiting = False
        if state is None:
            self.is_fenced = True
            return
        if isinstance(call, Read):
            self.deliveries = Deliveries(state.start_offset, state.batches)
            return
        self.history.done |= self.written
        self.written = set()
        if self.is_dirty:
            self.write()

    def write(self) -> None:
        if self.is_waiting:
            self.is_dirty = True
            return
        assert self.deliveries is not None
        self.is_waiting, self.is_dirty = True, False
        self.written, self.unwritten = self.unwritten, set()
        start, batches = self.deliveries.start_offset, self.deliveries.stored_batches()
        self.under_way = Write(KEY, 0, self.epoch, start, batches)
        self.history.network.append((self, self.under_way))

    def acquire(self, member: str, log_end: int, count: int) -> None:
        if self.deliveries is None or self.is_fenced:
            return
        offset = self.deliveries.next_offset(LIMITS)
        if offset is None or offset >= log_end:
            return
        batches = [ReadBatch(each, each) for each in range(offset, log_end)]
        for found in self.deliveries.acquire(member, offset, batches, count, LIMITS, 0):
            assert found.delivery_count <= LIMITS.delivery_count_max
            for each in range(found.first_offset, found.last_offset + 1):
                assert each not in self.history.done, "what is acknowledged is not delivered again"
                assert each not in self.holders, "nobody else has it"
                self.holders[each] = member
        self.deliveries.check()

    def acknowledge(self, member: str, chance: Random) -> None:
        mine = [offset for offset, holder in self.holders.items() if holder == member]
        if self.deliveries is None or self.is_fenced or not mine:
            return
        offset, kind = chance.choice(mine), chance.choice([ACCEPT, ACCEPT, RELEASE, REJECT])
        self.deliveries.acknowledge(member, [Acknowledgement(offset, offset, [kind])], LIMITS)
        del self.holders[offset]
        if kind != RELEASE:
            self.unwritten.add(offset)
        self.write()

    def release(self, member: str) -> None:
        if self.deliveries is not None and not self.is_fenced and self.deliveries.release(member, LIMITS) is not None:
            self.holders = {offset: holder for offset, holder in self.holders.items() if holder != member}
            self.write()


class History:
    """Requests may be lost, repeated and late, also those of leaders that have been replaced."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.done: set[int] = set()
        self.network: list[tuple[Leader, Call]] = []
        self.coordinators = Coordinators(chance)
        self.log_end = 0
        self.leaders: list[Leader] = []
        self.elect()

    @property
    def leader(self) -> Leader:
        return self.leaders[-1]

    def elect(self) -> None:
        self.leaders.append(Leader(self, len(self.leaders)))
        self.network.append((self.leader, self.leader.under_way))

    def arrive(self) -> None:
        if self.network:
            sent = self.chance.choice(self.network)
            if self.chance.random() < 0.8:
                self.network.remove(sent)  # else it arrives once more
            if self.chance.random() < 0.9:
                self.coordinators.serve(*sent)

    def step(self) -> None:
        member = self.chance.choice("abc")
        match self.chance.randrange(16):
            case 0:
                self.log_end += self.chance.randrange(1, 6)
            case 1:
                self.leader.release(member)
            case 2 if self.chance.random() < 0.3:
                self.elect()
            case 3 if self.chance.random() < 0.3:
                self.coordinators.move()
            case 4 | 5 | 6:
                self.arrive()
            case 7 | 8:
                self.coordinators.replicate()
            case 9 | 10:
                self.leader.acquire(member, self.log_end, self.chance.randrange(1, 8))
            case 11:
                self.repeat()
            case _:
                self.leader.acknowledge(member, self.chance)

    def repeat(self) -> None:
        """The leader had no response in time."""
        if self.leader.is_waiting:
            self.network.append((self.leader, self.leader.under_way))

    def settle(self) -> None:
        """Let all requests arrive until the leader waits for nothing."""
        while self.network or self.leader.is_waiting:
            self.repeat()
            while self.network:
                self.coordinators.serve(*self.network.pop(0))
            self.coordinators.replicate()


@pytest.mark.parametrize("seed", range(60))
def test_moves_of_leaders_and_coordinators_lose_and_repeat_nothing(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(300):
        history.step()
    history.elect()
    history.settle()
    leader = history.leader
    assert leader.deliveries is not None
    while history.coordinators.log[-1].start_offset < history.log_end:
        leader.acquire("z", history.log_end, 1 << 30)
        assert leader.holders, "every record is delivered"
        for offset in leader.holders:
            leader.deliveries.acknowledge("z", [Acknowledgement(offset, offset, [ACCEPT])], LIMITS)
        leader.holders.clear()
        leader.write()
        history.settle()
    assert not leader.is_fenced
