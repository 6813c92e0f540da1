"""What clients, ZooKeeper and disks saw during one run: the material of the checkers.

Owns the records of a history. Must not know how they came about, or what is right.

Times are virtual microseconds. Values are unique over all producers of a run, so a value identifies its record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Partition(NamedTuple):
    """A partition of one incarnation of a topic; see `History.incarnation`."""

    topic: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(slots=True)
class Send:
    """One batch of a producer, over all its attempts."""

    producer: str
    partition: Partition
    values: tuple[str, ...]
    number: int
    """Its position among the batches of this producer."""
    acks: int
    is_idempotent: bool
    sent_us: int
    transaction: str | None = None
    acked_us: int | None = None
    offset: int | None = None
    """Of the first value; None unless acknowledged."""
    broker: int | None = None
    """The one that acknowledged it."""
    last_sent_us: int = 0
    """When the attempt began that was acknowledged."""
    stored_by: int | None = None
    """How many replicas had it when the producer heard of it."""
    instance: tuple[int, int] = (-1, -1)
    """The producer id and epoch of a transactional batch."""


@dataclass(slots=True)
class Transaction:
    """One transaction: what it read and how it ended. `outcome` is what the producer knows."""

    name: str
    producer: str
    began_us: int
    outcome: Literal["open", "committed", "aborted", "unknown"] = "open"
    end_asked_us: int | None = None
    ended_us: int | None = None
    reads: list[str] = field(default_factory=list)
    """Values that it read before it wrote."""
    decided_by: int | None = None
    """How many replicas had the decision when the producer heard of it."""
    group: str = ""
    """The group whose position it commits."""
    instance: tuple[int, int] = (-1, -1)
    """The producer id and epoch of its producer."""
    last_asked_us: int = 0
    """When the attempt to end it began that was acknowledged."""


class Initialization(NamedTuple):
    """A response to InitProducerId."""

    transactional_id: str
    producer_id: int
    epoch: int
    asked_us: int
    received_us: int


class Lookup(NamedTuple):
    """A response to ListOffsets for a time; `offset` is -1 without a record."""

    consumer: str
    partition: Partition
    broker: int
    epoch: int
    timestamp_ms: int
    offset: int
    asked_us: int
    received_us: int
    is_committed: bool


class PolledRecord(NamedTuple):
    offset: int
    epoch: int
    value: str


@dataclass(slots=True)
class Poll:
    """One response for one partition."""

    consumer: str
    partition: Partition
    is_committed: bool
    """Whether the consumer reads committed records only."""
    broker: int
    epoch: int
    """The leader epoch that the consumer named, which the leader has checked."""
    position: int
    asked_us: int
    received_us: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: tuple[PolledRecord, ...]
    next_position: int
    incarnation: int = 0
    """Which process of the broker responded. A restarted one may lead on in its epoch, with a lower high watermark."""
    stored_by: int | None = None
    """How many replicas had the last record when the consumer received it; None without records."""
    reads_followers: bool = False
    """Whether the consumer may read from any replica, as from Fetch 11 on."""


@dataclass(slots=True)
class Commit:
    """A committed offset of a group, as a member asked for it."""

    group: str
    member: str
    generation: int
    partition: Partition
    offset: int
    asked_us: int
    acked_us: int | None = None
    stored_by: int | None = None
    """How many replicas had it when the member heard of it."""


@dataclass(slots=True)
class CommittedRead:
    """A committed offset as the coordinator reported it; -1: none."""

    group: str
    partition: Partition
    offset: int
    broker: int
    """The one that responded as the coordinator."""
    asked_us: int
    received_us: int


@dataclass(slots=True)
class Deletion:
    """A DeleteRecords request for one partition, over all its attempts."""

    partition: Partition
    offset: int | None
    """Records below it are to be deleted; None: all below the high watermark."""
    asked_us: int
    acked_us: int | None = None
    broker: int | None = None
    """The one that acknowledged it."""
    low_watermark: int = -1
    """Where all live replicas begin at least, according to this broker."""


@dataclass(slots=True)
class Assignment:
    """What a member may read in one generation."""

    group: str
    member: str
    generation: int
    partitions: tuple[Partition, ...]
    at_us: int
    """When the member heard of it."""


class Claim(NamedTuple):
    """What a member of the consumer protocol has after a heartbeat, as it sees it; see `Release` for the end."""

    group: str
    member_id: str
    member: str
    """The instance id of a static member."""
    epoch: int
    partitions: tuple[Partition, ...]
    broker: int
    """The one that responded as the coordinator."""
    asked_us: int
    received_us: int
    until_us: int
    """The coordinator cannot have ended the session of the member before."""


class Release(NamedTuple):
    """A member has given up partitions, before it said so, or because it learned that it is fenced."""

    group: str
    member_id: str
    partitions: tuple[Partition, ...]
    at_us: int


GAP, ACCEPT, RELEASE, REJECT = range(4)
"""What a member of a share group says of a record."""


@dataclass(slots=True)
class ShareSession:
    """A share session of a member with the leaders on one broker."""

    group: str
    member_id: str
    broker: int
    confirmed_us: int = 0
    """When the last response came that showed that the session was open."""


@dataclass(slots=True)
class Delivery:
    """A record that a member of a share group has acquired."""

    session: ShareSession
    partition: Partition
    offset: int
    value: str | None
    """None if there is no such record."""
    count: int
    """How often it has been delivered, according to the leader."""
    asked_us: int
    received_us: int
    said: int | None = None
    """What the member says of it; None: nothing."""
    said_us: int | None = None
    """When it sent that; None: never."""
    confirmed_us: int | None = None
    """When the response came that it is stored."""
    refusal: str = ""
    """The error in place of that."""


class LostShareFetch(NamedTuple):
    """A fetch without a response. It may have acquired records."""

    group: str
    partitions: tuple[Partition, ...]
    asked_us: int


@dataclass(slots=True)
class LeaderState:
    """The state node of a partition after a write."""

    at_us: int
    partition: Partition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    replicas: tuple[int, ...]


@dataclass(slots=True)
class DataLoss:
    """A machine lost what its disk had not synced, or its whole disk."""

    at_us: int
    broker: int


@dataclass(slots=True)
class Departure:
    """The session of a broker ended: it stopped, died, or was separated from ZooKeeper."""

    at_us: int
    broker: int


class LogRecord(NamedTuple):
    """A record in the log of a replica. The value of a control record is `COMMIT` or `ABORT`."""

    offset: int
    epoch: int
    value: str
    producer_id: int
    is_control: bool
    is_transactional: bool
    timestamp_ms: int = -1


@dataclass(slots=True)
class ReplicaLog:
    """The log of one replica after healing."""

    broker: int
    partition: Partition
    log_start: int
    high_watermark: int
    records: list[LogRecord]
    size: int = 0
    """How many bytes its segments have."""

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.log_start


@dataclass(slots=True)
class Anomaly:
    """Something that a client or the world saw that must never be."""

    name: str
    text: str
    at_us: int = 0
    partition: Partition | None = None
    """The one that it concerns; it is forgiven if that partition may have lost records."""


@dataclass(slots=True)
class History:
    """Everything that one run recorded."""

    sends: list[Send] = field(default_factory=list)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    initializations: list[Initialization] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    committed_reads: list[CommittedRead] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    lost_share_fetches: list[LostShareFetch] = field(default_factory=list)
    delivery_count_max: int = 5
    """`group.share.delivery.count.limit`."""
    lock_us: int = 0
    """`group.share.record.lock.duration.ms`."""
    share_groups: dict[str, list[Partition]] = field(default_factory=dict)
    """What each share group reads from the start on, up to the end."""
    leader_states: list[LeaderState] = field(default_factory=list)
    losses: list[DataLoss] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    logs: list[ReplicaLog] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Operations, faults and what the brokers did, by kind."""
    created_topics: dict[str, int] = field(default_factory=dict)
    """How many partitions each topic has whose creation was acknowledged."""
    deleted_topics: dict[str, int] = field(default_factory=dict)
    """When the deletion of each incarnation of a topic was first requested."""
    partition_counts: dict[str, set[int]] = field(default_factory=dict)
    """How many partitions each name of a topic has had."""
    topic_ids: dict[str, list[str]] = field(default_factory=dict)
    """The ids that each name of a topic had, in order."""
    retained: dict[str, int] = field(default_factory=dict)
    """How many bytes of a log retention keeps, of the topics that have such a limit."""
    settings: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """The value of each changed setting, by topic and key; None if it is not certain."""
    remains: dict[str, list[str]] = field(default_factory=dict)
    """Where something of each incarnation is after healing: nodes of ZooKeeper, and brokers with a replica."""
    min_isr: int = 1
    allows_unclean: bool = False
    leaders_write_states: bool = False
    """Whether some brokers have a protocol (before 2.7) in which leaders change ISRs, and topics have no ids."""
    healed_us: int | None = None
    final_replicas: dict[Partition, tuple[int, ...]] = field(default_factory=dict)
    """After healing. A move ends with a change of the replicas, which no state follows."""

    def incarnation(self, topic: str, topic_id: str | None) -> str:
        """Return the name of a topic if it has the first id of that name, else with a number.

        Without an id, as in a replica whose machine lost power, it is the latest one.
        """
        known = self.topic_ids.setdefault(topic, [])
        if topic_id is not None and topic_id not in known:
            known.append(topic_id)
        number = len(known) if topic_id is None else known.index(topic_id) + 1
        return topic if number <= 1 else f"{topic}#{number}"

    def incarnations(self, topic: str) -> list[str]:
        """Return all that are known so far; the first one also if it is not known yet."""
        return [self.incarnation(topic, topic_id) for topic_id in self.topic_ids.get(topic, ())] or [topic]

    def acked(self) -> Iterator[tuple[Send, int, str]]:
        """Yield each acknowledged record as (send, offset, value)."""
        for send in self.sends:
            if send.offset is not None:
                for position, value in enumerate(send.values):
                    yield send, send.offset + position, value

    def may_begin_at(self, partition: Partition, offset: int, by_us: float) -> bool:
        """Return whether retention, or a deletion requested by then, may have raised a log start to an offset."""
        return partition.topic in self.retained or self.was_deleted_up_to(partition, offset, by_us)

    def was_deleted_up_to(self, partition: Partition, offset: int, by_us: float = math.inf) -> bool:
        """Return whether a deletion was requested by then after which a log may begin at an offset."""
        return offset <= 0 or any(
            deletion.partition == partition
            and deletion.asked_us <= by_us
            and (deletion.offset is None or offset <= deletion.offset)
            for deletion in self.deletions
        )

    def logs_of(self, partition: Partition) -> list[ReplicaLog]:
        return [log for log in self.logs if log.partition == partition]

    def final_state(self, partition: Partition) -> LeaderState | None:
        states = [state for state in self.leader_states if state.partition == partition]
        return states[-1] if states else None
