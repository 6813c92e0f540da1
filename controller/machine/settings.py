"""The configuration values that the controller uses, and the figures that its metrics report.

Owns both. Must not know the names of settings or metrics, or who reads them.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from base.dataclass import dataclass
from config.features import NO_FEATURES
from config.inter_broker import InterBrokerProtocol, inter_broker_protocol
from config.log_config import ANY_COMPACTION_LAG, CompactionLag
from controller.machine.model import ReplicaAssignment
from protocol.messages.create_topics import CreatableTopic

CheckNewTopic = Callable[[CreatableTopic, Mapping[int, ReplicaAssignment]], None]
"""Raises KafkaError if a planned topic must not be created."""


def allow_new_topic(topic: CreatableTopic, planned: Mapping[int, ReplicaAssignment]) -> None:
    """Allow any topic; the check of a broker without a policy."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The configuration values that decisions depend on, under Kafka's names."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    unclean_leader_election_enable: bool = False
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    inter_broker_listener_name: str = "PLAINTEXT"
    protocol: InterBrokerProtocol = inter_broker_protocol()
    features: Mapping[str, range] = field(default_factory=lambda: NO_FEATURES)
    """The features of Kafka 4 that brokers support, with their levels."""
    compaction_lag: CompactionLag = ANY_COMPACTION_LAG
    check_new_topic: CheckNewTopic = allow_new_topic


LATEST_COUNT = 1028
"""How many durations of one kind of event are kept."""


@dataclass(slots=True)
class EventTimes:
    """The number of processed events of one kind, and their processing times."""

    count: int = 0
    total_ms: int = 0
    longest_ms: int = 0
    latest_ms: deque[int] = field(default_factory=lambda: deque(maxlen=LATEST_COUNT))
    """The last durations."""

    def add(self, duration_ms: int) -> None:
        self.count += 1
        self.total_ms += duration_ms
        self.longest_ms = max(self.longest_ms, duration_ms)
        self.latest_ms.append(duration_ms)


RECENT_EVENTS_MAX: Final = 100


class RecentEvent(NamedTuple):
    """An event that was processed: its kind, the wall clock when it was, and how long that took."""

    kind: str
    processed_ms: int
    duration_ms: int
    error: str
    """The name of the error code; empty if it succeeded."""


@dataclass(slots=True)
class ControllerStatistics:
    """Plain counters that are read when metrics are scraped. They are kept across elections."""

    present: str = ""
    """The statistic of the event that is being processed; empty between events."""
    unclean_leader_elections: int = 0
    queue_time: EventTimes = field(default_factory=EventTimes)
    by_event: dict[str, EventTimes] = field(default_factory=dict)
    recent: deque[RecentEvent] = field(default_factory=lambda: deque(maxlen=RECENT_EVENTS_MAX))
    """The events that this broker processed last, the oldest first."""
