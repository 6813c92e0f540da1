"""Consumers: read partitions from the start or a given position up to the high watermark or the last stable offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.ids import id_text
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.schema import ZERO_UUID
from tests.sim.batches import opened_batches
from tests.sim.clients.base import Failed, Retry, SimulatedClient, Surroundings
from tests.sim.disk import EPOCH_MS
from tests.sim.history import Lookup, Partition, Poll, PolledRecord

LEADER_VERSION = 10
"""The last version with which only leaders are read."""
NAMES_VERSION = 12
"""The last version with names of topics."""
IDS_VERSION = 17
"""Of Kafka 3.9: with ids of topics."""
MAX_BYTES = 10_000
EARLIEST = -2
"""Stands for the start of a log in ListOffsets."""
SILENT = "a fetch session is silent only about what has not changed"
NEAR = "a near replica has what its reader was sent for"
"""The rule that a leader names only followers that have the offset of the consumer."""
NEAR_US = 6_000_000
"""For how long a consumer reads a follower before it asks the leader again, which may name a nearer one."""
ASTRAY = 0.1
"""How often a broker is asked that may not lead the partition."""
LOOKUPS = 0.1
"""How often an offset is looked up by time before a poll."""
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
ABORT_KEY = b"\x00\x00\x00\x00"


def decoded(found: Any, position: int, *, is_committed: bool) -> tuple[tuple[PolledRecord, ...], int]:
    """Return the records of one partition of a Fetch response that a consumer delivers, and its next position."""
    content = bytes(found.records or b"")
    polled: list[PolledRecord] = []
    aborted = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or [])
    open_aborted: set[int] = set()
    for header, records in opened_batches(content):
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            (marker,) = records
            if marker.key == ABORT_KEY:
                open_aborted.discard(header.producer_id)
        elif not (is_committed and header.is_transactional and header.producer_id in open_aborted):
            for record in records:
                if record.offset >= position:
                    value = (record.value or b"").decode()
                    polled.append(PolledRecord(record.offset, header.partition_leader_epoch, value))
        position = max(position, header.next_offset)
    return tuple(polled), position


class _OutOfRange(Retry):
    """The position is not within the log."""


class _Wanted(NamedTuple):
    """What a fetch wants of a partition."""

    epoch: int
    position: int
    topic_id: UUID


@dataclass(slots=True)
class _Session:
    """The fetch session with one broker, as the client knows it. Epoch 0 stands for a full request."""

    id: int = 0
    epoch: int = 0
    sent: dict[Partition, _Wanted] = field(default_factory=dict)

    def advance(self, session_id: int, sent: dict[Partition, _Wanted]) -> None:
        """Note the response to a request."""
        self.epoch = 0 if not session_id else self.epoch + 1
        self.id, self.sent = session_id, sent


class _Near(NamedTuple):
    """A follower that a leader has named for a consumer (KIP-392)."""

    broker: int
    incarnation: int
    epoch: int
    position: int
    until_us: int


def _fetched(partition: Partition, wanted: _Wanted) -> FetchPartition:
    return FetchPartition(
        partition=partition.index,
        current_leader_epoch=wanted.epoch,
        fetch_offset=wanted.position,
        partition_max_bytes=2000,
    )


class Consumer(SimulatedClient):
    """Polls partitions until the run ends, or, if `until_end`, until it has read all of them to their end."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        partitions: Sequence[Partition],
        *,
        is_committed: bool,
        until_end: bool = False,
        pause_s: float = 0.8,
        version: int = NAMES_VERSION,
        has_sessions: bool = False,
    ) -> None:
        """`version` is the version of its Fetch requests."""
        super().__init__(name, around)
        self._version = version
        self._rack = around.rack_of(name) if version > LEADER_VERSION else ""
        self._near: dict[Partition, _Near] = {}
        self._has_sessions = has_sessions
        self._sessions: dict[int, _Session] = {}
        self.partitions = partitions
        self.is_committed = is_committed
        self.positions = dict.fromkeys(partitions, 0)
        self.reading_as = name
        """The name of its polls. Polls of one name and partition continue where the last one ended."""
        self._jumps: Counter[Partition] = Counter()
        self._until_end = until_end
        self._pause_s = pause_s
        self._at_end: set[Partition] = set()

    async def run(self) -> None:
        while not self._is_finished():
            if not self._until_end:
                await self.think(self._pause_s)
            waiting = [partition for partition in self.partitions if partition not in self._at_end]
            await self._poll_from_one_broker(self.random.choice(waiting or list(self.partitions)))
        self.doing = "finished"

    def _is_finished(self) -> bool:
        return len(self._at_end) == len(self.partitions) if self._until_end else self.around.is_ending

    async def _poll_from_one_broker(self, partition: Partition) -> None:
        """Poll all partitions that are read from the same broker as this one."""
        self.doing = f"Fetch {partition} from {self.positions[partition]}"
        try:
            leader, _ = await self.leader_of(partition)
            if self.random.random() < LOOKUPS and not self._until_end:
                await self._look_up(leader, partition)
            if self.random.random() < ASTRAY and not self._until_end:
                broker = self.any_broker()  # perhaps one that led before, and does not know that it was deposed
                await self.poll(broker, [partition], max_wait_ms=0, in_session=False)
                return
            broker = self.source_of(partition)
            there = [other for other in self.partitions if other in self._leaders and self.source_of(other) == broker]
            await self.poll(broker, there, max_wait_ms=0 if self._until_end else 300)
        except Retry as reason:
            self.doing += f", after {reason}"
            self.forget_cluster()
            await self.back_off()

    def source_of(self, partition: Partition) -> int:
        """Return the broker to read a partition from whose leader is known: the near follower that this one named."""
        near = self._near.get(partition)
        leader, epoch = self._leaders[partition]
        if near is not None and near.epoch == epoch and self.now_us() < near.until_us:
            return near.broker
        self._near.pop(partition, None)
        return leader

    def forget_cluster(self) -> None:
        super().forget_cluster()
        self._near.clear()  # after any error a consumer goes back to the leader

    async def _look_up(self, broker: int, partition: Partition) -> None:
        """Ask for the first offset from a time on. Raises Retry."""
        epoch = self._leaders[partition][1]
        timestamp_ms = EPOCH_MS + self.random.randrange(self.now_us() // 1000 + 1)
        asked_us = self.now_us()
        found = await self._offset_at(broker, epoch, partition, timestamp_ms)
        place = (self.name, partition, broker, epoch)
        self.history.lookups.append(
            Lookup(*place, timestamp_ms, found.offset, asked_us, self.now_us(), self.is_committed)
        )
        self.history.counts["lookups by time"] += 1

    async def _offset_at(self, broker: int, epoch: int, partition: Partition, timestamp_ms: int) -> Any:
        """Return what a leader responds to ListOffsets. Raises Retry."""
        wanted = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=epoch, timestamp=timestamp_ms
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.is_committed),
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
        )
        found = (await self.ask(broker, request, 6)).topics[0].partitions[0]
        self.expect(found.error_code)
        return found

    async def poll(
        self, broker: int, partitions: Sequence[Partition], *, max_wait_ms: int, in_session: bool = True
    ) -> list[Poll]:
        """Fetch once; note and return what comes. Raises Retry."""
        wanted = {
            partition: _Wanted(
                self._leaders[partition][1],
                self.positions.get(self._judged(partition), 0),
                self.topic_ids.get(partition.topic, ZERO_UUID) if self._version > NAMES_VERSION else ZERO_UUID,
            )
            for partition in partitions
        }
        session = self._sessions.setdefault(broker, _Session()) if in_session and self._has_sessions else _Session()
        is_full = session.epoch <= 0
        named = {it: found for it, found in wanted.items() if is_full or session.sent.get(it) != found}
        forgotten = (
            []
            if is_full
            else [
                (it, found)
                for it, found in session.sent.items()
                if it not in wanted or wanted[it].topic_id != found.topic_id
            ]
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=int(self.is_committed),
            session_id=session.id,
            session_epoch=session.epoch if in_session and self._has_sessions else -1,
            topics=[
                FetchTopic(topic=it.topic, topic_id=found.topic_id, partitions=[_fetched(it, found)])
                for it, found in named.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=it.topic, topic_id=found.topic_id, partitions=[it.index])
                for it, found in forgotten
            ],
            rack_id=self._rack,
        )
        readable = {
            it: self.around.readable(broker, it, found.epoch, is_committed=self.is_committed)
            for it, found in wanted.items()
        }
        asked_us = self.now_us()
        try:
            response = await self.ask(broker, request, self._version)
        except Retry:
            session.epoch = 0  # the broker may have seen the request or not
            raise
        if response.error_code in _SESSION_ERRORS:
            self.history.counts["fetch sessions that ended"] += 1
            session.id = session.epoch = 0
            raise Retry(ErrorCode(response.error_code).name)
        self.expect(response.error_code)
        session.advance(response.session_id, wanted)
        names = {found.topic_id: it.topic for it, found in wanted.items()}
        size = 0
        polls: list[Poll] = []
        retry: Retry | None = None
        silent = dict(wanted)
        for topic in response.responses:
            for found in topic.partitions:
                size += len(found.records or b"")
                name = topic.topic if self._version <= NAMES_VERSION else names[topic.topic_id]
                partition = Partition(name, found.partition_index)
                epoch = silent.pop(partition).epoch
                try:
                    polls.append(self._receive(broker, epoch, partition, found, asked_us))
                except _OutOfRange as error:
                    if self._leaders.get(partition, (broker, epoch)) == (broker, epoch):
                        await self._leave_range(broker, epoch, partition)
                    else:
                        self._leave_near(broker, partition)  # only the leader knows where the log begins
                    retry = error
                except Retry as error:
                    retry = error
        for partition, found in silent.items():
            if size < MAX_BYTES // 2 and (is_full or readable[partition] > found.position):
                self.note_anomaly(
                    SILENT,
                    f"broker {broker} did not mention {partition} from {found.position} on, although "
                    f"{readable[partition]} was readable",
                    partition,
                )
        self.history.counts["incremental fetches"] += not is_full
        if retry is not None:
            raise retry
        return polls

    def _judged(self, partition: Partition) -> Partition:
        """Return the partition of the topic that a fetch reads: names may stand for one topic after the other."""
        topic_id = self.topic_ids.get(partition.topic)
        if self._version <= NAMES_VERSION or topic_id is None:
            return partition
        return Partition(self.history.incarnation(partition.topic, id_text(topic_id)), partition.index)

    def _receive(self, broker: int, epoch: int, partition: Partition, found: Any, asked_us: int) -> Poll:
        try:
            error = self.expect(found.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
        except Failed as failure:
            self.note_anomaly("unexpected error", f"Fetch of {partition}: {failure.code.name}")
            raise Retry(failure.code.name) from None
        judged = self._judged(partition)
        position = self.positions.get(judged, 0)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _OutOfRange(error.name)
        if found.diverging_epoch is not None and found.diverging_epoch.end_offset >= 0:
            self.note_anomaly("I5 no visible record is lost", f"{judged} diverges at {position}", judged)
        records, following = decoded(found, position, is_committed=self.is_committed)
        self._follow_preference(partition, epoch, position, found)
        poll = Poll(
            self._reader_of(judged),
            judged,
            self.is_committed,
            broker,
            epoch,
            position,
            asked_us,
            self.now_us(),
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            records,
            following,
            self.around.incarnation_of(broker),
            self.around.copies_of(judged, records[-1].offset) if records and judged == partition else None,
            self._version > LEADER_VERSION,
        )
        self.history.polls.append(poll)
        self.history.counts["polled records"] += len(records)
        if records and self._leaders.get(partition, (broker, epoch)) != (broker, epoch):
            self.history.counts["records polled from followers"] += len(records)
        self.positions[judged] = following
        if following >= (found.last_stable_offset if self.is_committed else found.high_watermark):
            self._at_end.add(partition)
        return poll

    def _follow_preference(self, partition: Partition, epoch: int, position: int, found: Any) -> None:
        """Read the follower next that a leader names."""
        broker = found.preferred_read_replica
        if broker < 0:
            return
        self._near[partition] = _Near(
            broker, self.around.incarnation_of(broker), epoch, position, self.now_us() + NEAR_US
        )
        self.history.counts["consumers sent to a near replica"] += 1

    def _leave_near(self, broker: int, partition: Partition) -> None:
        """Go back to the leader: the position is out of the range of a follower, where a log may begin later or end
        earlier; but not of the one that the leader has just named.
        """
        near = self._near.pop(partition, None)
        judged = self._judged(partition)
        position = self.positions.get(judged, 0)
        if (
            near is not None
            and near.broker == broker
            and near.incarnation == self.around.incarnation_of(broker)
            and near.position == position
            and self._leaders.get(partition, (-1, -1))[1] == near.epoch
            and not self.history.may_begin_at(judged, position + 1, self.now_us())
        ):
            self.note_anomaly(NEAR, f"broker {broker} does not have offset {position} of {judged}", judged)

    def _reader_of(self, partition: Partition) -> str:
        """Return the name of a poll: another one after each jump over deleted records."""
        jumps = self._jumps[partition]
        return f"{self.reading_as}^{jumps}" if jumps else self.reading_as

    async def _leave_range(self, broker: int, epoch: int, partition: Partition) -> None:
        """The position is outside of the log: legal only below its start. Continue there. Raises Retry.

        A deposed leader, to which an old client may go back, lacks what the consumer has read from its successor.
        """
        if epoch < self._latest_epochs.get(partition, epoch):
            raise Retry("a deposed leader")
        found = await self._offset_at(broker, epoch, partition, EARLIEST)
        position = self.positions[partition]
        if position >= found.offset:
            self.note_anomaly(
                "I5 no visible record is lost",
                f"broker {broker} has no offset {position} of {partition}, although it begins at {found.offset}",
                partition,
            )
        else:
            self.positions[partition] = found.offset
            self._jumps[partition] += 1
            self.history.counts["jumps over deleted records"] += 1
