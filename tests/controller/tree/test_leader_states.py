"""The states that leaders write themselves by an old protocol, and how the controller learns of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from base.topic_partition import TopicPartition
from broker.replica.partition import RETURNS_TO_COMMITTED, WAITS_FOR_METADATA
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.machine.model import LeaderAndIsr
from controller.store.state_store import Create, Node, StoreUnavailable, Watch
from controller.tree import paths
from controller.tree.leader_states import LeaderStates
from controller.tree.registration import ensure_paths
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from tests.support.manual_clock import ManualClock

LEADER, OTHER = 1, 2
CONTROLLER_EPOCH = 7
PARTITION = ("t", 0)


class Leader:
    """A leader of partitions that have the ISR [1, 2] in the store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.states = LeaderStates(LEADER, store, self.clock)

    async def change(
        self, isr: list[int], *, leader_epoch: int = 3, partition_epoch: int = 0, partition: TopicPartition = PARTITION
    ) -> tuple[ErrorCode, int]:
        """Request an ISR; return the code and the new partition epoch."""
        data = PartitionData(
            partition_index=partition[1],
            leader_epoch=leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
            partition_epoch=partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=LEADER, topics=[TopicData(topic_name=partition[0], partitions=[data])]
        )
        ((result,),) = [topic.partitions for topic in (await self.states.alter_partition(request)).topics]
        return ErrorCode(result.error_code), result.partition_epoch

    async def stored(self) -> dict[str, object]:
        node: dict[str, object] = json.loads((await self.store.get(paths.partition_state_path(PARTITION))).data or b"")
        return node

    async def notifications(self) -> list[object]:
        names = await self.store.children(paths.ISR_CHANGE_NOTIFICATIONS)
        nodes = await self.store.get_many([f"{paths.ISR_CHANGE_NOTIFICATIONS}/{name}" for name in names])
        return [json.loads(node.data or b"") for node in nodes if node is not None]


@pytest.fixture
async def leader() -> Leader:
    store = MemoryStore(MemoryTree())
    await store.open()
    await ensure_paths(store)
    await store.create(paths.topic_path("t"))
    await store.create(paths.partitions_path("t"))
    for partition in (PARTITION, ("t", 1)):
        state = paths.encode_partition_state(LeaderAndIsr(LEADER, 3, (LEADER, OTHER)), CONTROLLER_EPOCH)
        path = paths.partition_state_path(partition)
        await store.multi([Create(paths.partition_path(partition)), Create(path, state)])
    return Leader(store)


async def test_isr_is_written_over_the_known_version_and_keeps_the_epoch_of_the_controller(leader: Leader) -> None:
    assert await leader.change([LEADER]) == (ErrorCode.NONE, 1)
    assert await leader.stored() == {
        "controller_epoch": CONTROLLER_EPOCH, "leader": LEADER, "version": 1, "leader_epoch": 3, "isr": [LEADER],
    }  # fmt: skip


async def test_change_whose_result_was_lost_may_be_repeated(leader: Leader) -> None:
    assert await leader.change([LEADER]) == (ErrorCode.NONE, 1)
    assert await leader.change([LEADER]) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (LeaderAndIsr(OTHER, 4, (OTHER,)), ErrorCode.FENCED_LEADER_EPOCH),
        (LeaderAndIsr(LEADER, 3, (LEADER, OTHER)), ErrorCode.INVALID_UPDATE_VERSION),
    ],
    ids=["another leader", "another state"],
)
async def test_deposed_leader_changes_nothing(leader: Leader, state: LeaderAndIsr, code: ErrorCode) -> None:
    path = paths.partition_state_path(PARTITION)
    await leader.store.set(path, paths.encode_partition_state(state, CONTROLLER_EPOCH))
    before = await leader.stored()
    assert (await leader.change([LEADER]))[0] == code
    assert await leader.stored() == before


def show_once(leader: Leader, monkeypatch: pytest.MonkeyPatch, stale: list[Node | None]) -> None:
    """Have the next read return nodes that a server of the store has which lags behind."""
    get_many, unread = leader.store.get_many, [stale]

    async def lagging(wanted: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return unread.pop() if unread else await get_many(wanted, watch)

    monkeypatch.setattr(leader.store, "get_many", lagging)


async def test_own_write_that_the_store_does_not_show_yet_is_accepted(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = await leader.store.get_many([paths.partition_state_path(PARTITION)])
    assert await leader.change([LEADER]) == (ErrorCode.NONE, 1)
    show_once(leader, monkeypatch, stale)
    assert await leader.change([LEADER]) == (ErrorCode.NONE, 1)


async def test_leader_whose_election_the_store_does_not_show_yet_asks_again(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = paths.partition_state_path(PARTITION)
    await leader.store.set(path, paths.encode_partition_state(LeaderAndIsr(OTHER, 2, (OTHER,)), CONTROLLER_EPOCH))
    stale = await leader.store.get_many([path])
    elected = LeaderAndIsr(LEADER, 3, (LEADER, OTHER))
    await leader.store.set(path, paths.encode_partition_state(elected, CONTROLLER_EPOCH))
    show_once(leader, monkeypatch, stale)
    code, _ = await leader.change([LEADER], partition_epoch=2)
    assert code not in WAITS_FOR_METADATA | RETURNS_TO_COMMITTED
    assert await leader.change([LEADER], partition_epoch=2) == (ErrorCode.NONE, 3)


async def test_partition_that_was_deleted_is_unknown(leader: Leader) -> None:
    assert (await leader.change([LEADER], partition=("t", 9)))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_controller_is_notified_once_of_all_changes_after_a_quiet_time(leader: Leader) -> None:
    await leader.change([LEADER])
    await leader.change([LEADER], partition=("t", 1))
    leader.clock.advance(5_000)
    await leader.states.notify()
    assert await leader.notifications() == []
    leader.clock.advance(1)
    for _ in range(2):
        await leader.states.notify()
    assert await leader.notifications() == [
        {"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]}
    ]


async def test_controller_is_notified_within_a_minute_although_changes_go_on(leader: Leader) -> None:
    partition_epoch = 0
    for number in range(16):
        leader.clock.advance(4_000)
        isr = [LEADER] if number % 2 == 0 else [LEADER, OTHER]
        code, partition_epoch = await leader.change(isr, partition_epoch=partition_epoch)
        assert code == ErrorCode.NONE
        await leader.states.notify()
    assert len(await leader.notifications()) == 1


async def test_notification_stays_below_the_size_that_the_store_accepts(leader: Leader) -> None:
    changed = {("t" * 249, number): None for number in range(5_000)}
    leader.states._changed.update(changed)
    leader.clock.advance(6_000)
    await leader.states.notify()
    names = await leader.store.children(paths.ISR_CHANGE_NOTIFICATIONS)
    nodes = await leader.store.get_many([f"{paths.ISR_CHANGE_NOTIFICATIONS}/{name}" for name in sorted(names)])
    notes = [node.data or b"" for node in nodes if node is not None]
    assert [key for note in notes for key in paths.decode_partition_list(note)] == list(changed)
    assert all(len(note) < 1 << 20 for note in notes)


async def test_notification_that_fails_is_written_later(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    await leader.change([LEADER])
    leader.clock.advance(6_000)

    async def unavailable(*_: object, **__: object) -> str:
        raise StoreUnavailable("no connection")

    with monkeypatch.context() as broken:
        broken.setattr(leader.store, "create", unavailable)
        await leader.states.notify()
    await leader.states.notify()
    assert len(await leader.notifications()) == 1
