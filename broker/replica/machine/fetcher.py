"""What one fetcher requests of one leader, and what the responses mean: the follower's side of KIP-227 and KIP-595.

Owns: the partitions that are fetched, the incremental session with the leader, and the decision on each part of a
response. Pure: time is an argument, and the caller sends the requests and puts the decisions into effect. Must
not know: logs, connections or tasks.

A partition is *ready*, and then part of the requests, or it is *held*: an effect of an earlier response is not
complete, or it waits for its back-off to end. The first back-off is short, because a follower often hears of an
election a little earlier than the new leader; it doubles while the partition keeps failing.

A request of a session names only what is new to the leader:

==================  ==========================================================================================
session             request
==================  ==========================================================================================
none                every ready partition; the response says which session it opens, if any
open                ready partitions whose offset, log start or leader epoch have changed; those that are no
                    longer fetched are to be forgotten
lost, or refused    as with none; it names the lost session, so that the leader closes that
==================  ==========================================================================================

So the cost of a round depends on the partitions with news, not on those in the session.

Before a follower fetches from a new leader, its log must not hold what the leader's does not. Since Fetch 12 the leader
says so in the response to a fetch. By an older `inter.broker.protocol.version`, and for a log without leader epochs,
the partition is *compared* first: the leader is asked where the latest epoch of the log ends, as often as the response
does not settle it, or the log is truncated to its high watermark.

Invariant: a part of a response is applied only if its partition is still fetched at the offset, in the leader epoch and
with the log start of the request: everything else belongs to a request that is out of date.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode
from protocol.java_hash import absolute, string_hash, to_int32
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochRequest

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
FIRST_VERSION_WITH_LAST_EPOCH: Final = 12
NO_EPOCH: Final = -1
NO_SESSION: Final = 0
FULL: Final = 0
EPOCH_MAX: Final = 2**31 - 1
COMPARED_MAX: Final = 500
"""How many partitions are compared at a time: each begins a task, and a request is built in one step."""

LATEST: Final = -1
EARLIEST: Final = -2

FIRST_BACKOFF_MS: Final = 20
BACKOFF_GROWTH: Final = 2


SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class GrowingBackOff:
    """How long to wait after each failure in a row: from `FIRST_BACKOFF_MS` to `longest_ms`."""

    __slots__ = ("_next_ms",)

    def __init__(self) -> None:
        self._next_ms = FIRST_BACKOFF_MS

    def after_failure(self, longest_ms: int) -> int:
        """Return how many milliseconds to wait now."""
        wait_ms = min(self._next_ms, longest_ms)
        self._next_ms = wait_ms * BACKOFF_GROWTH
        return wait_ms

    def after_success(self) -> None:
        self._next_ms = FIRST_BACKOFF_MS


def fetcher_index(topic: str, partition: int, count: int) -> int:
    """Return which of `count` fetchers of a source broker fetches a partition, as Kafka chooses it."""
    return absolute(to_int32(31 * string_hash(topic) + partition)) % count


class FetchVersions(NamedTuple):
    """The versions of a follower's requests, by `inter.broker.protocol.version`."""

    fetch: int = 17
    list_offsets: int = 9
    offset_for_leader_epoch: int | None = 4
    """None: logs are not compared by epochs."""
    compares_by_fetch: bool = True
    """Whether the response to a fetch says where the logs diverge."""


class Position(NamedTuple):
    """Where a follower's log ends and begins."""

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class _Known(NamedTuple):
    """What the leader's session knows of a partition."""

    topic_id: UUID
    leader_epoch: int
    position: Position


class FetchedPartition:
    """One partition that is fetched."""

    __slots__ = ("back_off", "is_ready", "key", "lag", "leader_epoch", "needs_comparison", "position", "topic_id")

    def __init__(self, key: TopicPartition, topic_id: UUID | None, leader_epoch: int, position: Position) -> None:
        self.key = key
        self.topic_id = ZERO_UUID if topic_id is None else topic_id
        self.leader_epoch = leader_epoch
        self.position = position
        self.is_ready = True
        """Whether the partition is part of the requests."""
        self.needs_comparison = False
        """Whether its log has to be compared with the leader's before it is fetched."""
        self.lag = 0
        """How many offsets the log's end is behind the leader's high watermark."""
        self.back_off = GrowingBackOff()

    @property
    def known(self) -> _Known:
        return _Known(self.topic_id, self.leader_epoch, self.position)


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """The settings `replica.fetch.*`."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 10_485_760
    partition_bytes_max: int = 1_048_576


class Append(NamedTuple):
    """Append the records, if any, and follow the leader's high watermark and log start."""

    data: PartitionData


class Truncate(NamedTuple):
    """Truncate the log to where it diverges from the leader's, whose records of `epoch` end at `end_offset`."""

    epoch: int
    end_offset: int


class FindOffset(NamedTuple):
    """Ask the leader where its log begins and ends: the offset is out of its range."""


class BackOff(NamedTuple):
    """Fetch the partition again after a pause."""

    code: ErrorCode


class Fence(NamedTuple):
    """Fetch the partition no more until the controller names its leader again: the leader has a newer epoch."""


Effect = Append | Truncate | FindOffset | BackOff | Fence


class FetchFailedError(Exception):
    """The leader has refused a request as a whole."""


class Fetcher:
    """The partitions that one fetcher fetches from one leader."""

    def __init__(self, replica_id: int, terms: FetchTerms, versions: FetchVersions) -> None:
        self._replica_id = replica_id
        self._terms = terms
        self.versions = versions
        self._partitions: dict[TopicPartition, FetchedPartition] = {}
        self._uncompared: dict[TopicPartition, FetchedPartition] = {}
        self._without_id_count = 0
        self._topics: dict[UUID, str] = {}
        self._session_id = NO_SESSION
        self._epoch = FULL
        self._session: dict[TopicPartition, _Known] = {}
        self._has_ids = versions.fetch >= FIRST_VERSION_WITH_TOPIC_IDS  # whether the session names topics by their ids
        self._changed: dict[TopicPartition, None] = {}  # partitions that may differ from what the session knows
        self._delays: list[tuple[int, int, FetchedPartition]] = []
        self._delay_count = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[FetchedPartition]:
        return iter(self._partitions.values())

    def get(self, key: TopicPartition) -> FetchedPartition | None:
        return self._partitions.get(key)

    @property
    def version(self) -> int:
        """The version of the last request."""
        newest = self.versions.fetch
        return newest if self._has_ids else min(newest, FIRST_VERSION_WITH_TOPIC_IDS - 1)

    # Partitions

    def add(self, partition: FetchedPartition) -> None:
        """Fetch a partition. It replaces the one with the same key."""
        self.remove(partition.key)
        self._partitions[partition.key] = partition
        if partition.topic_id == ZERO_UUID:
            self._without_id_count += 1
        else:
            self._topics[partition.topic_id] = partition.key[0]
        self._changed[partition.key] = None
        position = partition.position
        has_unknown_epochs = position.last_fetched_epoch < 0 and position.fetch_offset > position.log_start_offset
        partition.needs_comparison = has_unknown_epochs or not self.versions.compares_by_fetch
        if partition.needs_comparison:
            partition.is_ready = False
            self._uncompared[partition.key] = partition

    def remove(self, key: TopicPartition) -> None:
        """Fetch a partition no more. Has no effect if it is not fetched."""
        partition = self._partitions.pop(key, None)
        self._uncompared.pop(key, None)
        if partition is not None:
            self._without_id_count -= partition.topic_id == ZERO_UUID
            self._changed[key] = None

    def is_fetched(self, partition: FetchedPartition) -> bool:
        """Return whether this very partition is fetched, not one that has replaced it."""
        return self._partitions.get(partition.key) is partition

    def hold(self, partition: FetchedPartition) -> None:
        """Leave the partition out of the requests until `resume`."""
        partition.is_ready = False
        self._changed[partition.key] = None

    def resume(self, partition: FetchedPartition, position: Position) -> None:
        """Fetch the partition from `position` on, after the partitions that wait already, or compare it first."""
        if self.is_fetched(partition):
            partition.position = position
            if partition.needs_comparison:
                self._uncompared[partition.key] = partition
                return
            partition.is_ready = True
            self._changed[partition.key] = None
            self._partitions[partition.key] = self._partitions.pop(partition.key)

    def take_uncompared(self, now_ms: int) -> list[FetchedPartition]:
        """Return some of the partitions that have to be compared now. They are held until `resume` or `delay`."""
        self.end_delays(now_ms)
        keys = list(islice(self._uncompared, COMPARED_MAX))
        return [self._uncompared.pop(key) for key in keys]

    def settle(self, partition: FetchedPartition) -> None:
        """Note that the log holds nothing that the leader's does not: it may be fetched on without a comparison."""
        partition.needs_comparison = False

    def delay(self, partition: FetchedPartition, due_ms: int) -> None:
        """Leave the partition out of the requests until `due_ms`."""
        self.hold(partition)
        self._delay_count += 1
        heapq.heappush(self._delays, (due_ms, self._delay_count, partition))

    def failed(self, partition: FetchedPartition, position: Position, now_ms: int, longest_ms: int) -> int:
        """Fetch the partition from `position` on after a pause of at most `longest_ms`; return that in milliseconds."""
        partition.position = position
        wait_ms = partition.back_off.after_failure(longest_ms)
        self.delay(partition, now_ms + wait_ms)
        return wait_ms

    def appended(self, partition: FetchedPartition, position: Position, leader_high_watermark: int) -> None:
        """Note that the log ends at `position`, after an append; a held partition stays where it is fetched."""
        partition.lag = max(0, leader_high_watermark - position.fetch_offset)
        partition.back_off.after_success()
        if position != partition.position and partition.is_ready:
            self.resume(partition, position)

    def end_delays(self, now_ms: int) -> None:
        """Fetch the partitions again whose delay has ended."""
        while self._delays and self._delays[0][0] <= now_ms:
            _, _, partition = heapq.heappop(self._delays)
            self.resume(partition, partition.position)

    @property
    def next_due_ms(self) -> int | None:
        """When the next delay ends; None if there is none."""
        return self._delays[0][0] if self._delays else None

    @property
    def has_unnamed(self) -> bool:
        """Whether a partition is to be compared, or a ready one is new to the leader or has changed since then."""
        if self._uncompared:
            return True
        for key in self._changed:
            partition = self._partitions.get(key)
            if partition is not None and partition.is_ready and partition.known != self._session.get(key):
                return True
        return False

    # Requests

    def request(self, now_ms: int, broker_epoch: int) -> FetchRequest | None:
        """Return the next request; None if there is nothing to be fetched now.

        The leader may hold it no longer than until the next delay ends.
        """
        self.end_delays(now_ms)
        has_ids = not self._without_id_count and self.versions.fetch >= FIRST_VERSION_WITH_TOPIC_IDS
        if has_ids != self._has_ids:
            self._has_ids = has_ids
            self._epoch = FULL
        named, forgotten = self._everything() if self._epoch == FULL else self._news()
        if not self._session and not forgotten:
            return None
        terms, due_ms = self._terms, self.next_due_ms
        is_full = self._epoch == FULL
        request = FetchRequest(
            max_wait_ms=terms.wait_ms_max if due_ms is None else min(terms.wait_ms_max, due_ms - now_ms),
            min_bytes=terms.bytes_min,
            max_bytes=terms.bytes_max,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=self._by_topic(named),
            forgotten_topics_data=[] if is_full else _forgotten_by_topic(forgotten),
        )
        if self.version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = ReplicaState(replica_id=self._replica_id, replica_epoch=broker_epoch)
        else:
            request.replica_id = self._replica_id
        return request

    def _everything(self) -> tuple[list[FetchedPartition], list[tuple[TopicPartition, UUID]]]:
        self._changed.clear()
        named = [partition for partition in self._partitions.values() if partition.is_ready]
        self._session = {partition.key: partition.known for partition in named}
        self._topics = {partition.topic_id: partition.key[0] for partition in self._partitions.values()}
        return named, []

    def _news(self) -> tuple[list[FetchedPartition], list[tuple[TopicPartition, UUID]]]:
        """Bring the session up to date; return the partitions to name and those to forget."""
        named: list[FetchedPartition] = []
        forgotten: list[tuple[TopicPartition, UUID]] = []
        for key in self._changed:
            partition, known = self._partitions.get(key), self._session.get(key)
            wanted = None if partition is None or not partition.is_ready else partition.known
            if wanted == known:
                continue
            # By name, to forget the topic's earlier id would remove what the same request names.
            if known is not None and (wanted is None or (self._has_ids and wanted.topic_id != known.topic_id)):
                forgotten.append((key, known.topic_id))
            if wanted is None:
                del self._session[key]
            else:
                assert partition is not None
                self._session[key] = wanted
                named.append(partition)
        self._changed.clear()
        return named, forgotten

    def _by_topic(self, named: list[FetchedPartition]) -> list[FetchTopic]:
        topics: dict[tuple[str, UUID], FetchTopic] = {}
        has_last_epoch = self.version >= FIRST_VERSION_WITH_LAST_EPOCH
        for partition in named:
            (name, index), topic_id = partition.key, partition.topic_id
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[name, topic_id] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            position = partition.position
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch if has_last_epoch else NO_EPOCH,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._terms.partition_bytes_max,
                )
            )
        return list(topics.values())

    # Responses

    def lost(self) -> None:
        """Note that there is no response: what the leader's session knows is uncertain."""
        self._epoch = FULL

    def received(self, response: FetchResponse) -> list[tuple[FetchedPartition, PartitionData]]:
        """Return the parts of a response, for `effect_of`.

        Raises:
            FetchFailedError: The leader has refused the request; the next one opens a session again.
        """
        code = response.error_code
        if code:
            self._epoch = FULL
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            if code in SESSION_ERRORS:
                return []
            raise FetchFailedError(ErrorCode(code).name)
        if self._epoch == FULL:
            self._session_id = response.session_id
            self._epoch = 1 if response.session_id != NO_SESSION else FULL
        elif response.session_id != self._session_id:
            self._session_id, self._epoch = response.session_id, FULL  # the leader has closed it
        else:
            self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1
        parts = []
        for topic in response.responses:
            name = self._topics.get(topic.topic_id) if self._has_ids else topic.topic
            for data in topic.partitions:
                partition = None if name is None else self._partitions.get((name, data.partition_index))
                if partition is not None:
                    parts.append((partition, data))
        return parts

    def effect_of(self, partition: FetchedPartition, data: PartitionData) -> Effect | None:
        """Return what a part of the last response demands; None if it does not belong to what is fetched now."""
        if (
            not self.is_fetched(partition)
            or not partition.is_ready
            or self._session.get(partition.key) != partition.known
        ):
            return None
        if data.error_code == ErrorCode.NONE:
            diverging = data.diverging_epoch
            if diverging is not None and diverging.end_offset >= 0:
                return Truncate(diverging.epoch, diverging.end_offset)
            return Append(data)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return FindOffset()
        if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            return Fence()
        return BackOff(ErrorCode(data.error_code))


def _forgotten_by_topic(forgotten: list[tuple[TopicPartition, UUID]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for (name, index), topic_id in forgotten:
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = topics[name, topic_id] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())


# The comparison of epochs


class Compare(NamedTuple):
    """Truncate the log to where it diverges from the leader's, whose records of `epoch` end at `end_offset`.

    `epoch` is that of the question or the largest below it that the leader has, -1 in version 0 of the response. An
    `end_offset` of -1: the leader knows none.
    """

    epoch: int
    end_offset: int


def epoch_question(replica_id: int, partitions: list[FetchedPartition]) -> OffsetForLeaderEpochRequest:
    """Return the request for the ends of the latest epochs that the follower has."""
    from protocol.messages.offset_for_leader_epoch import (  # only older protocols need it
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )

    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition in partitions:
        name, index = partition.key
        topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=index,
                current_leader_epoch=partition.leader_epoch,
                leader_epoch=partition.position.last_fetched_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=list(topics.values()))


def compared(data: EpochEndOffset) -> Compare | BackOff | Fence:
    """Return what the response to `epoch_question` demands for one partition."""
    if data.error_code == ErrorCode.NONE:
        return Compare(data.leader_epoch, data.end_offset)
    if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return Fence()
    return BackOff(ErrorCode(data.error_code))


# An offset that is out of the leader's range


class TruncateTo(NamedTuple):
    """The leader's log ends before the follower's."""

    offset: int


class StartAt(NamedTuple):
    """The leader's log begins after the follower's ends: the follower has nothing that the leader still has."""

    offset: int


class Retry(NamedTuple):
    """The offset is within the leader's range by now."""


def range_question(replica_id: int, partitions: list[FetchedPartition], timestamp: int) -> ListOffsetsRequest:
    """Return the request for the ends (`LATEST`) or the starts (`EARLIEST`) of the leader's logs."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition in partitions:
        name, index = partition.key
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=index, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))


def out_of_range(own_end_offset: int, leader_end_offset: int, leader_start_offset: int) -> TruncateTo | StartAt | Retry:
    """Decide what a follower does whose fetch offset is out of the leader's range."""
    if leader_end_offset < own_end_offset:
        return TruncateTo(leader_end_offset)
    if leader_start_offset > own_end_offset:
        return StartAt(leader_start_offset)
    return Retry()


def found_offset(data: ListOffsetsPartitionResponse) -> int:
    """Return the offset in the response to `range_question`, which version 0 has as the first of a list."""
    return data.old_style_offsets[0] if data.old_style_offsets else data.offset
