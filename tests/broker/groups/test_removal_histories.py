"""Random histories of commits and of removals in slices: readable offsets equal those in the log, and none is lost.

Offsets are removed in four ways, over many turns of the event loop, during further commits. In every interleaving, a
new coordinator that reads the log back finds the same offsets, and a commit that was acknowledged stays unless its
removal was asked for later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import suppress
from itertools import product

import pytest

from broker.groups import hosted_groups, removal
from broker.groups.batches import CommittingProducer
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.machine.records import OffsetAndMetadata
from broker.groups.offset_commits import CommitResult, Committer
from broker.groups.settings import CoordinatorSettings
from broker.loop.driver import start
from broker.loop.promise import Promise
from protocol.errors import KafkaError
from protocol.records.control import ControlType, TransactionMarker, build_marker
from tests.broker.groups.fakes import FakeLog, Surroundings

GROUPS = ("g0", "g1", "g2")
TOPICS = ("t0", "t1")
PARTITIONS = range(7)
PRODUCERS = (7, 8)
RETENTION_MS = 1000
SETTINGS = CoordinatorSettings(group=GroupSettings(initial_rebalance_delay_ms=0), offsets_retention_ms=RETENTION_MS)
STEPS = 300


class LateLog(FakeLog):
    """As with replicas: written synchronously, in the order of the calls, and committed some time later.

    Or synchronously too, while nothing else is to be committed: the others have left the ISR.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.undecided: list[asyncio.Future[None]] = []

    def append(
        self, partition: int, batch: bytearray, timeout_ms: int, *, needs_isr: bool = True
    ) -> Awaitable[None] | None:
        self.write(partition, batch)
        if not self.undecided and self.rng.random() < 0.5:
            return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.undecided.append(done)
        return done

    def decide(self, count: int) -> None:
        for done in self.undecided[:count]:
            done.set_result(None)
        del self.undecided[:count]


class History:
    """What happens to a coordinator, step by step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.here = Surroundings(SETTINGS)
        self.log = self.here.log = LateLog(self.rng)
        self.here.coordinator = self.here.new_coordinator()
        self.number = 0
        self.waiting: list[Promise[object]] = []
        self.commits: list[tuple[Promise[CommitResult], str, dict[tuple[str, int], OffsetAndMetadata]]] = []
        self.removed: dict[tuple[str, tuple[str, int]], int] = {}
        """The last commit before an offset was last removed, perhaps."""

    async def run(self) -> None:
        steps = (
            *[self.commit] * 8,
            *[self.commit_in_transaction] * 4,
            self.end_transaction,
            self.delete_offsets,
            self.delete_group,
            self.delete_topic,
            self.expire,
            *[self.decide] * 4,
            *[self.turn] * 6,
        )
        await self.here.lead()
        for _ in range(STEPS):
            self.rng.choice(steps)()
            if self.rng.random() < 0.5:
                await asyncio.sleep(0)
        await self.settle()

    async def settle(self) -> None:
        while self.log.undecided or not all(each.done() for each in self.waiting):
            self.log.decide(len(self.log.undecided))
            await asyncio.sleep(0)
        await self.here.idle()
        self.log.decide(len(self.log.undecided))
        await self.here.idle()
        for each in self.waiting:
            each.exception()

    def offsets(self) -> dict[tuple[str, int], OffsetAndMetadata]:
        topic = self.rng.choice(TOPICS)
        wanted = self.rng.sample(PARTITIONS, self.rng.randint(1, len(PARTITIONS)))
        self.number += 1
        value = OffsetAndMetadata(offset=self.number, metadata="", commit_timestamp_ms=self.here.clock.now_ms())
        return {(topic, partition): value for partition in wanted}

    def wait(self, result: object) -> None:
        if isinstance(result, Promise):
            self.waiting.append(result)

    def commit(self) -> None:
        group_id, offsets = self.rng.choice(GROUPS), self.offsets()
        result = start(self.here.coordinator.offsets.commit(group_id, Committer(), dict(offsets)))
        if isinstance(result, Promise):
            self.waiting.append(result)
            self.commits.append((result, group_id, offsets))

    def removing(self, groups: Iterable[str], partitions: Iterable[tuple[str, int]]) -> None:
        for key in product(groups, partitions):
            self.removed[key] = self.number

    def promised(self) -> Iterator[tuple[str, tuple[str, int], int]]:
        """What was acknowledged and then neither removed nor left to expire: at least this offset is to be there."""
        for asked, group_id, offsets in self.commits:
            if asked.result().error:
                continue
            for partition, value in offsets.items():
                is_kept = self.removed.get((group_id, partition), 0) < value.offset
                if is_kept and value.commit_timestamp_ms + RETENTION_MS > self.here.clock.now_ms():
                    yield group_id, partition, value.offset

    def commit_in_transaction(self) -> None:
        producer = CommittingProducer(self.rng.choice(PRODUCERS), 0)
        self.wait(
            start(self.here.coordinator.offsets.commit(self.rng.choice(GROUPS), Committer(), self.offsets(), producer))
        )

    def end_transaction(self) -> None:
        self.decide(len(self.log.undecided))  # a marker is replicated after what came before it
        producer_id, is_committed = self.rng.choice(PRODUCERS), self.rng.random() < 0.7
        marker = TransactionMarker(ControlType.COMMIT if is_committed else ControlType.ABORT, 0)
        self.log.write(0, build_marker(marker, producer_id=producer_id, producer_epoch=0, now_ms=0))
        self.here.coordinator.offsets.end_transaction(0, producer_id, is_committed=is_committed)

    def delete_offsets(self) -> None:
        wanted = [(topic, partition) for topic in TOPICS for partition in PARTITIONS if self.rng.random() < 0.7]
        group_id = self.rng.choice(GROUPS)
        self.removing([group_id], wanted)
        with suppress(KafkaError):
            self.wait(start(self.here.coordinator.removal.delete_offsets(group_id, wanted)))

    def delete_group(self) -> None:
        group_id = self.rng.choice(GROUPS)
        self.removing([group_id], product(TOPICS, PARTITIONS))
        self.wait(start(self.here.coordinator.removal.delete_group(group_id)))

    def delete_topic(self) -> None:
        topic = self.rng.choice(TOPICS)
        self.removing(GROUPS, product([topic], PARTITIONS))
        self.here.coordinator.removal.topics_deleted({topic})

    def expire(self) -> None:
        self.here.clock.advance(self.rng.choice((0, RETENTION_MS // 2, RETENTION_MS)))
        self.wait(start(self.here.coordinator.removal.expire_offsets()))

    def decide(self, count: int | None = None) -> None:
        self.log.decide(self.rng.randint(0, 5) if count is None else count)

    def turn(self) -> None:
        self.here.clock.advance(1)

    def shown(self, coordinator: GroupCoordinator) -> dict[str, dict[tuple[str, int], int]]:
        found = {}
        for group_id in GROUPS:
            offsets = coordinator.offsets.of(group_id)
            committed = {partition: each.value.offset for partition, each in offsets.committed.items()}
            unstable = {partition: -1 for partition in offsets.partitions() if offsets.is_unstable(partition)}
            found[group_id] = {**unstable, **committed}
        return found


@pytest.mark.parametrize("seed", range(20))
async def test_readable_offsets_equal_those_in_the_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_groups, "SLICE_SIZE", 2)
    monkeypatch.setattr(removal, "SLICE_SIZE", 2)
    monkeypatch.setattr(removal, "INSPECTED_SLICE_SIZE", 3)
    history = History(seed)
    await history.run()
    before = history.here.coordinator
    shown = history.shown(before)
    for group_id, partition, offset in history.promised():
        assert shown[group_id].get(partition, -1) >= offset
    await history.here.restart()
    after = history.here.coordinator
    assert history.shown(after) == history.shown(before)
    for producer_id in PRODUCERS:  # what is still open ends alike
        for each in (before, after):
            each.offsets.end_transaction(0, producer_id, is_committed=True)
    assert history.shown(after) == history.shown(before)
