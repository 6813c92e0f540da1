"""Which partitions stay loaded, and what their release costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from uuid import UUID

from base.pause import AT_ONCE, Awaited, InThread, never
from broker.loop.driver import start
from broker.loop.promise import resolved
from broker.loop.purgatory import Purgatory
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer
from broker.replica.manager import ReplicaManager
from broker.share.links import StateLinks
from broker.share.machine.deliveries import DeliveryLimits
from broker.share.machine.records import ShareKey
from broker.share.machine.sessions import ShareSession, ShareSessions
from broker.share.machine.stored_states import ShareState
from broker.share.shared_partition import SharedPartitions
from tests.support.manual_clock import ManualClock

TOPIC, TOPIC_ID = "orders", UUID(int=7)


class Leader:
    """A broker that leads all partitions of a topic, and the partitions that groups have loaded."""

    def __init__(self) -> None:
        self.sessions = ShareSessions(10)
        self.pauses = 0
        self.fetch_purgatory = Purgatory("fetch", Timer())
        self._partitions: dict[int, SimpleNamespace] = {}
        self.shared = SharedPartitions(
            cast(StateLinks, SimpleNamespace(call=lambda call, patience_ms: resolved(ShareState(0, 5)))),
            self.sessions,
            cast(ReplicaManager, self),
            lambda group_id: SimpleNamespace(limits=DeliveryLimits()),  # type: ignore[arg-type,return-value]
            Timer(),
            ManualClock(),
            cast(InThread, never),
            cast(SlicedWork, SimpleNamespace(start=start, pause=self._pause)),
        )

    def find(self, topic: str, number: int) -> SimpleNamespace:
        partition = SimpleNamespace(
            topic=topic,
            partition=number,
            leading_since=0,
            leader_epoch=0,
            log=SimpleNamespace(topic_id=TOPIC_ID),
            require_leader=lambda epoch: None,
        )
        return self._partitions.setdefault(number, partition)

    def _pause(self) -> Awaited:
        self.pauses += 1
        return AT_ONCE

    def begin(self, group_id: str, count: int) -> ShareSession:
        """Begin a session that loads partitions."""
        session = self.sessions.open(group_id, "ann", "connection")
        for number in range(count):
            session.add((TOPIC_ID, number))
            assert self.shared.find(group_id, TOPIC, TOPIC_ID, number).done()
        return session

    def end(self, session: ShareSession) -> None:
        places = self.sessions.close(session)
        self.shared.release(session.group_id, [ShareKey(session.group_id, *place) for place in places], session)


def test_the_end_of_a_group_visits_no_partitions_of_others() -> None:
    leader = Leader()
    small, large = leader.begin("small", 3), leader.begin("large", 100)
    assert len(leader.shared) == 103
    leader.end(small)
    assert len(leader.shared) == 100
    assert leader.pauses == 2 * 3
    leader.end(large)
    assert len(leader.shared) == 0
