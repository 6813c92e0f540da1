"""Whether a broker serves, and whether it may be stopped now without harm to its partitions.

Owns the reasons against either. Must not know how they are served, or when a broker is stopped.

A broker may be stopped if each partition of which it holds an in-sync replica keeps a leader and `min.insync.replicas`
without it, and if no partition that it leads is under-replicated: a follower that catches up reads from it. A leader
knows the in-sync replicas of its partition; those of other partitions are in the metadata of the cluster. A partition
with a single replica always counts against the stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol

from base.dataclass import dataclass
from base.pause import Pause
from broker.cluster.broker_state import BrokerState
from broker.cluster.metadata_cache import MetadataCache
from broker.replica.partition import Partition

LAG_MAX_S = 5.0
"""The lag of the event loop at which a broker stops counting as alive."""
SHOWN_MAX = 100
"""How many partitions are named for each reason; `count` is the number of all."""


class Reason(Enum):
    """Why a broker should not be stopped. Each value is the text for people and programs."""

    ONLY_IN_SYNC = "without this broker no in-sync replica is alive"
    MIN_ISR = "without this broker fewer than min.insync.replicas are in sync"
    UNDER_REPLICATED = "a partition that this broker leads is under-replicated"


class HostedPartitions(Protocol):
    """The part of the replica manager that is needed here."""

    def hosted(self) -> Iterator[Partition]: ...


@dataclass(frozen=True)
class Verdict:
    """The result of a check, as a JSON object."""

    is_positive: bool
    content: dict[str, object]


class Health:
    """The checks of one broker; `state` returns its present state."""

    def __init__(
        self,
        broker_id: int,
        partitions: HostedPartitions,
        metadata: MetadataCache,
        state: Callable[[], BrokerState],
        closed_listeners: Callable[[], list[str]] = list,
        loop_lag_s: Callable[[], float] = float,
        is_registered: Callable[[], bool] = lambda: True,
    ) -> None:
        """Store the sources of the checks.

        `closed_listeners()` returns the names of the listeners that accept no connections now. `loop_lag_s()` returns
        the present lag of the event loop in seconds. `is_registered()` is False between the end of one session with
        the metadata store and the beginning of the next.
        """
        self._is_registered = is_registered
        self._loop_lag_s = loop_lag_s
        self._closed_listeners = closed_listeners
        self._state = state
        self._broker_id = broker_id
        self._partitions = partitions
        self._metadata = metadata

    def live(self) -> Verdict:
        """Return whether the lag of the event loop is below `LAG_MAX_S`."""
        lag_s = self._loop_lag_s()
        if lag_s < LAG_MAX_S:
            return Verdict(True, {"status": "UP"})
        reason = f"the event loop was {lag_s:.1f} s late; less than {LAG_MAX_S:.0f} s is expected"
        return Verdict(False, {"status": "DOWN", "reasons": [reason]})

    def ready(self) -> Verdict:
        """Return whether clients are served."""
        reasons = self._reasons_not_ready()
        return Verdict(not reasons, {"status": "DOWN" if reasons else "UP", "reasons": reasons})

    async def safe(self, pause: Pause) -> Verdict:
        """Return whether this broker may be stopped now."""
        reasons: list[dict[str, object]] = [{"reason": reason} for reason in self._reasons_not_ready()]
        found: dict[Reason, list[str]] = {}
        for partition in list(self._partitions.hosted()):
            reason = self._reason_against(partition)
            if reason is not None:
                found.setdefault(reason, []).append(f"{partition.topic}-{partition.partition}")
            await pause()
        for reason in Reason:
            names = sorted(found.get(reason, ()))
            if names:
                reasons.append({"reason": reason.value, "count": len(names), "partitions": names[:SHOWN_MAX]})
        return Verdict(not reasons, {"safe": not reasons, "broker": self._broker_id, "reasons": reasons})

    def _reasons_not_ready(self) -> list[str]:
        reasons = []
        state = self._state()
        if state != BrokerState.RUNNING:
            reasons.append(f"the broker is in the state {state.name}")
        if not self._is_registered():
            reasons.append("the session with the metadata store has ended, and with it the registration")
        if self._broker_id not in self._metadata.brokers:
            reasons.append(f"the cluster's metadata have no broker {self._broker_id}")
        reasons += [f"the listener {name} accepts no connections" for name in self._closed_listeners()]
        return reasons

    def _reason_against(self, partition: Partition) -> Reason | None:
        in_sync = self._in_sync(partition)
        if self._broker_id in in_sync:
            others = in_sync - {self._broker_id}
            if others.isdisjoint(self._metadata.brokers):
                return Reason.ONLY_IN_SYNC
            if len(others) < partition.min_in_sync:
                return Reason.MIN_ISR
        return Reason.UNDER_REPLICATED if partition.is_under_replicated else None

    def _in_sync(self, partition: Partition) -> frozenset[int]:
        if partition.is_leader:
            return frozenset(partition.leadership.isr)
        topic = self._metadata.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        return frozenset(() if known is None else known.isr)
