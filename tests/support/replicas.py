"""A replica manager for tests, with the replicas that a controller assigns to it and nothing that fetches them."""

from __future__ import annotations

from collections.abc import Callable

from base.topic_partition import TopicPartition
from broker.loop.timer import Timer
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.fetch_news import FetchNews
from broker.replica.machine.isr import IsrChange
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition, ReplicaRules
from broker.replica.throttles import UNLIMITED, Direction, Throttle, Throttles, Windows
from config.log_config import LogConfig
from storage.manager.log_manager import LogManager


def throttles(broker_id: int, monotonic_ms: Callable[[], int]) -> Throttles:
    """Return throttles without a rate."""
    windows = Windows(11, 1_000)
    return Throttles(
        *(Throttle(direction, broker_id, lambda: UNLIMITED, windows, monotonic_ms) for direction in Direction)
    )


class Replicas(ReplicaManager):
    """The replicas of one broker. What it asks of the controller is kept in `isr_changes`."""

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        timer: Timer,
        topic_config: Callable[[str], LogConfig],
        rules: ReplicaRules | None = None,
    ) -> None:
        self.isr_changes: list[tuple[Partition, IsrChange]] = []
        super().__init__(
            log_manager,
            timer,
            FetchNews(lambda callback: callback()),
            throttles(broker_id, lambda: 0),
            topic_config=topic_config,
            monotonic_ms=lambda: 0,
            on_isr_change=lambda partition, change: self.isr_changes.append((partition, change)),
            produce_purge_interval=1000,
            fetch_purge_interval=1000,
        )
        self.opened: list[Partition] = []
        self.assigned = AssignedReplicas(
            broker_id,
            log_manager,
            self,
            NoReplication(),
            rules,
            topic_config=topic_config,
            on_opened=self.opened.append,
            on_not_opened=lambda: None,
        )


class NoReplication:
    """`Replication` that fetches nothing."""

    def follow(self, partition: Partition, leader_id: int) -> None: ...

    def unfollow(self, key: TopicPartition) -> None: ...
