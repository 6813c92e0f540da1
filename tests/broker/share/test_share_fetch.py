"""How a share fetch waits for the records of many partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from base.pause import AT_ONCE, Awaited, InThread, Pause, never
from broker.loop.driver import Running, start
from broker.loop.promise import Promise, resolved
from broker.loop.purgatory import Purgatory
from broker.loop.timer import Timer
from broker.loop.waits import Waits
from broker.network.unsent_responses import UnsentResponses
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.share.machine.deliveries import DeliveryLimits
from broker.share.machine.records import ShareKey
from broker.share.machine.sessions import ShareSessions
from broker.share.machine.stored_states import ShareState
from broker.share.share_fetch import ROUNDS_MAX, AcquiredRecords, ShareFetchService, ShareFetchTerms
from broker.share.shared_partition import SharedPartition, SharedPartitions
from tests.support.manual_clock import ManualClock

TOPIC, TOPIC_ID, GROUP = "orders", UUID(int=7), "workers"
END = 5


def shared_partition(number: int) -> SharedPartition:
    """Return a partition that the group has read to its end."""
    partition = SimpleNamespace(
        topic=TOPIC,
        partition=number,
        leading_since=0,
        leader_epoch=0,
        log=SimpleNamespace(log_start_offset=0),
        readable_end_offset=lambda isolation: END,
    )
    return SharedPartition(ShareKey(GROUP, TOPIC_ID, number), cast(Partition, partition), 0, ShareState(0, END))


class Fetching:
    """One fetch, its partitions and what wakes it."""

    def __init__(self, count: int) -> None:
        self.partitions = [shared_partition(number) for number in range(count)]
        self.visits = 0
        """How often the fetch has found no records in a partition."""
        self.pause: Pause = never
        """Called where the fetch may pause."""
        self._timer = Timer()
        self.purgatory = Purgatory("fetch", self._timer)
        self._service = ShareFetchService(
            cast(SharedPartitions, self),
            cast(ReplicaManager, SimpleNamespace(fetch_purgatory=self.purgatory)),
            UnsentResponses(lambda delay_ms, callback: None),
            ManualClock(),
            self._pause,
            cast(InThread, never),
        )

    def _pause(self) -> Awaited:
        return self.pause()

    def terms(self, group_id: str) -> SimpleNamespace:
        return SimpleNamespace(limits=DeliveryLimits(), read_committed=False)

    def store_start(self, shared: SharedPartition) -> None:
        self.visits += 1

    def begin(self, loads: Sequence[Promise[SharedPartition]] = ()) -> Promise[list[AcquiredRecords]]:
        """Fetch the partitions, or what is being loaded in their place."""
        session = ShareSessions(1).open(GROUP, "ann", "connection")
        terms = ShareFetchTerms(session, max_wait_ms=30_000, bytes_max=1 << 20, count_max=500, batch_size=500)
        loads = loads or [resolved(shared) for shared in self.partitions]
        fetch = self._service.fetch({(TOPIC_ID, number): load for number, load in enumerate(loads)}, terms, Waits())
        outcome = start(fetch)
        return outcome if isinstance(outcome, Running) else resolved(outcome)

    def elect_again(self, shared: SharedPartition) -> None:
        """Let the leader stay in a new leader epoch, as after the death of a follower."""
        shared.partition.leader_epoch += 1
        self.purgatory.check_and_complete((TOPIC, shared.partition.partition))

    def wake_for_nothing(self) -> None:
        due_ms = self._timer.next_deadline_ms()
        assert due_ms is not None
        self._timer.advance(due_ms)


def test_a_fetch_ends_when_a_partition_has_to_be_loaded_again() -> None:
    fetching = Fetching(10)
    fetch = fetching.begin()
    assert not fetch.done()
    fetching.elect_again(fetching.partitions[3])
    assert fetch.result() == []
    assert fetching.visits == 10 + 9


def test_a_fetch_waits_on_however_many_loads_end() -> None:
    fetching = Fetching(2 * ROUNDS_MAX)
    loads = [Promise[SharedPartition]() for _ in fetching.partitions]
    fetch = fetching.begin(loads)
    for load, shared in zip(loads, fetching.partitions, strict=True):
        load.set_result(shared)
    assert not fetch.done()


def test_a_fetch_of_many_partitions_ends_after_a_few_wakes_for_nothing() -> None:
    fetching = Fetching(2 * ROUNDS_MAX)
    fetch = fetching.begin()
    for _ in range(ROUNDS_MAX):
        fetching.wake_for_nothing()
        assert not fetch.done()
    fetching.wake_for_nothing()
    assert fetch.result() == []


def test_many_loaded_partitions_are_collected_in_steps() -> None:
    fetching, counts = Fetching(100), [0]

    class Load(Promise[SharedPartition]):
        def result(self) -> SharedPartition:
            counts[-1] += 1
            return super().result()

    def pause() -> Awaited:
        counts.append(0)
        return AT_ONCE

    fetching.pause = pause
    loads = [Load() for _ in fetching.partitions]
    for load, shared in zip(loads, fetching.partitions, strict=True):
        load.set_result(shared)
    fetching.begin(loads)
    assert sum(counts) == 100
    assert max(counts) == 1


def test_a_wait_for_many_partitions_begins_in_steps() -> None:
    fetching, sizes = Fetching(100), [0]

    def pause() -> Awaited:
        sizes.append(len(fetching.purgatory.watched))
        return AT_ONCE

    fetching.pause = pause
    fetching.begin()
    assert sizes[-1] == 2 * 100
    assert max(after - before for before, after in pairwise(sizes)) == 2


@pytest.mark.parametrize("number", [0, 9])
def test_a_change_while_a_wait_begins_ends_it(number: int) -> None:
    fetching = Fetching(10)

    def pause() -> Awaited:
        if len(fetching.purgatory.watched) == 10:
            fetching.elect_again(fetching.partitions[number])
        return AT_ONCE

    fetching.pause = pause
    assert fetching.begin().result() == []


def test_a_fetch_whose_client_leaves_while_its_wait_begins_is_forgotten() -> None:
    fetching, paused = Fetching(10), Promise[None]()
    fetching.pause = lambda: paused if len(fetching.purgatory.watched) == 10 else AT_ONCE
    fetch = fetching.begin()
    assert fetching.purgatory.delayed_count == 1
    fetch.cancel()
    assert fetching.purgatory.delayed_count == 0
