"""Members of a share group (KIP-932): acquire records, and accept, release or reject them, or say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.ids import id_text
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestedGroup,
    RequestedTopic,
)
from protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.sim.batches import opened_batches
from tests.sim.clients.base import GROUP, Failed, Retry, SimulatedClient, Surroundings
from tests.sim.clients.consumer_member import DIES, JOINING, LEAVING, LOST
from tests.sim.clients.member import LEAVES
from tests.sim.history import ACCEPT, GAP, REJECT, RELEASE, Delivery, LostShareFetch, Partition, ShareSession

VERSION: Final = 1
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
BEATS_US: Final = 1_000_000
"""How often a member sends a heartbeat, a few times in each session of `SESSION_MS`."""
RECORDS_MAX: Final = 8
"""How many records a fetch asks for."""
MAX_BYTES: Final = 2000
ALONE: Final = 0.3
"""How often acknowledgements are sent without a fetch."""
WAIT_MS: Final = 300
SAYS: Final = ((0.70, ACCEPT), (0.84, RELEASE), (0.91, REJECT))
"""What becomes of records, by a random number; above the last one a member says nothing until the lock is over."""
SESSION_ERRORS: Final = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
MISSING: Final = "a response names each partition with acknowledgements"


class _Session:
    """The share session with one broker, as the member knows it."""

    def __init__(self, known: ShareSession) -> None:
        self.known = known
        self.epoch = FIRST_EPOCH
        self.partitions: set[Partition] = set()
        """Those that the broker has heard of."""
        self.said: dict[Partition, list[Delivery]] = {}
        """What is to be acknowledged with the next request."""

    def advance(self, now_us: int) -> None:
        """Note a response after which the session is still open."""
        self.epoch += 1
        self.known.confirmed_us = now_us


class ShareMember(SimulatedClient):
    """Polls `count` times, or, with `until_end`, until the group is done with all records."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        group: str,
        partitions: Sequence[Partition],
        *,
        count: int = 0,
        until_end: bool = False,
    ) -> None:
        super().__init__(name, around)
        self._group = group
        self._partitions = partitions
        self._count = count
        self._until_end = until_end
        self._assigned: list[Partition] = []
        self._sessions: dict[int, _Session] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Be another member: the client chooses its id."""
        self._member_id = id_text(UUID(int=self.random.getrandbits(128), version=4))
        self._join_again()

    def _join_again(self) -> None:
        self._epoch, self._beat_at_us = JOINING, 0
        self._assigned = []

    async def run(self) -> None:
        polls = 0
        while not (await self._is_done() if self._until_end else polls >= self._count):
            try:
                await self._beat_if_due()
                polls += await self._poll()
                if not self._until_end:
                    await self._come_and_go()
            except Retry as reason:
                self.doing += f", after {reason}"
                self.forget_cluster()
                await self.back_off()
            except Failed as error:
                self.history.counts[f"share group: {error.code.name}"] += 1
                if error.code not in LOST:
                    self.note_anomaly("unexpected error", f"share group {self._group}: {error.code.name}")
                    await self.back_off()
                self._sessions.clear()
                if error.code is ErrorCode.FENCED_MEMBER_EPOCH:
                    self._join_again()
                else:
                    self._begin_anew()
        await self._leave()
        self.doing = "finished"

    async def _come_and_go(self) -> None:
        if self.random.random() < LEAVES:
            await self._leave()
        elif self.random.random() < DIES:
            # Its machine is gone: the connections stay open, so that brokers wait until locks and sessions expire.
            self._connections.clear()
            self._sessions.clear()
            self._begin_anew()

    async def _is_done(self) -> bool:
        """Return whether the group is done with all records."""
        self.doing = "DescribeShareGroupOffsets"
        topics = [RequestedTopic(topic_name=it.topic, partitions=[it.index]) for it in self._partitions]
        request = DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=self._group, topics=topics)])
        try:
            (found,) = (await self.ask_coordinator(GROUP, self._group, request, 0)).groups
            starts = {
                Partition(topic.topic_name, it.partition_index): it.start_offset
                for topic in found.topics
                for it in topic.partitions
            }
            ends = {it: self.around.readable(*await self._led(it), is_committed=False) for it in self._partitions}
        except Retry:
            self.forget_cluster()
            return False
        # It is -1 where the leader is another one than the member knows.
        left = [
            f"{it} from {starts.get(it)} to {end}" for it, end in ends.items() if not 0 <= end <= starts.get(it, -1)
        ]
        if min(ends.values()) < 0:
            self.forget_cluster()
        self.doing = f"to read {', '.join(left)}"
        return not left

    async def _led(self, partition: Partition) -> tuple[int, Partition, int]:
        leader, epoch = await self.leader_of(partition)
        return leader, partition, epoch

    # The group

    async def _beat_if_due(self) -> None:
        """Send a heartbeat, unless one was sent a moment ago. Raises Retry, Failed."""
        if self.now_us() < self._beat_at_us:
            return
        self.doing = "ShareGroupHeartbeat"
        topics = sorted({partition.topic for partition in self._partitions})
        if not self.topic_ids.keys() >= set(topics):
            await self.refresh(topics)
        is_first = self._epoch == JOINING
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=topics if is_first else None,
        )
        response = await self.ask_coordinator(GROUP, self._group, request, VERSION)
        self.expect(response.error_code)
        self._epoch, self._beat_at_us = response.member_epoch, self.now_us() + BEATS_US
        if response.assignment is not None:
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            self._assigned = [
                Partition(names[topic.topic_id], number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            ]
        self.history.counts["heartbeats of share members"] += 1

    async def _leave(self) -> None:
        """End the sessions with their last acknowledgements, and leave the group."""
        for broker, session in sorted(self._sessions.items()):
            if session.epoch != FIRST_EPOCH:
                try:
                    await self._acknowledge(broker, session, is_last=True)
                except Retry:
                    self.forget_cluster()
        self._sessions.clear()
        request = ShareGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=LEAVING)
        try:
            await self.ask_coordinator(GROUP, self._group, request, VERSION)
        except Retry:
            self.forget_cluster()
        self._begin_anew()

    # Records

    async def _poll(self) -> int:
        """Fetch once from one broker; return how many fetches that were. Raises Retry, Failed."""
        if not self._assigned:
            await self.back_off()
            return 0
        if not self._until_end:
            await self.think(0.8)
        partition = self.random.choice(self._assigned)
        self.doing = f"ShareFetch {partition}"
        broker, _ = await self.leader_of(partition)
        there = {it for it in self._assigned if self._leaders.get(it, (-1, -1))[0] == broker}
        session = self._sessions.get(broker)
        if session is None:
            known = ShareSession(self._group, self._member_id, broker)
            session = self._sessions[broker] = _Session(known)
        elif session.said and self.random.random() < ALONE:
            await self._acknowledge(broker, session)
        await self._fetch(broker, session, there)
        return 1

    async def _fetch(self, broker: int, session: _Session, wanted: set[Partition]) -> None:
        said, session.said = session.said, {}
        named = {it: said.get(it, []) for it in sorted(wanted - session.partitions | said.keys())}
        forgotten = sorted(session.partitions - wanted)
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            topics=[
                FetchTopic(
                    topic_id=self.topic_ids[it.topic],
                    partitions=[FetchPartition(partition_index=it.index, acknowledgement_batches=list(_batches(what)))],
                )
                for it, what in named.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=self.topic_ids[it.topic], partitions=[it.index]) for it in forgotten
            ],
        )
        session.partitions = wanted
        asked_us = self.now_us()
        try:
            response = await self._ask_in_session(broker, session, request, said)
        except Retry:
            self.history.lost_share_fetches.append(LostShareFetch(self._group, tuple(sorted(wanted)), asked_us))
            raise
        session.advance(self.now_us())
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        retry: Retry | None = None
        for topic in response.responses:
            for found in topic.partitions:
                partition = Partition(names[topic.topic_id], found.partition_index)
                self._note_acknowledged(said.pop(partition, []), found.acknowledge_error_code)
                try:
                    self.expect(found.error_code)
                except Retry as error:
                    retry = error
                else:
                    self._receive(session, partition, found, asked_us)
        self._check_named(said)
        if retry is not None:
            raise retry

    async def _acknowledge(self, broker: int, session: _Session, *, is_last: bool = False) -> None:
        """Send what is to be acknowledged without a fetch. Raises Retry, Failed."""
        said, session.said = session.said, {}
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else session.epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_ids[it.topic],
                    partitions=[
                        AcknowledgePartition(partition_index=it.index, acknowledgement_batches=list(_batches(what)))
                    ],
                )
                for it, what in said.items()
            ],
        )
        response = await self._ask_in_session(broker, session, request, said)
        if not is_last:
            session.advance(self.now_us())
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        for topic in response.responses:
            for found in topic.partitions:
                partition = Partition(names[topic.topic_id], found.partition_index)
                self._note_acknowledged(said.pop(partition, []), found.error_code)
        self._check_named(said)

    async def _ask_in_session(
        self, broker: int, session: _Session, request: object, said: Mapping[Partition, Sequence[Delivery]]
    ) -> Any:
        """Return the response to the next request of a session. After an error the session is over.

        Raises Retry, Failed.
        """
        for deliveries in said.values():
            for delivery in deliveries:
                delivery.said_us = self.now_us()
        try:
            response = await self.ask(broker, request, VERSION)
        except Retry:
            self._sessions.pop(broker, None)
            raise
        if response.error_code:
            self._sessions.pop(broker, None)
            self.history.counts[f"share sessions: {ErrorCode(response.error_code).name}"] += 1
            if response.error_code in SESSION_ERRORS:
                raise Retry(ErrorCode(response.error_code).name)
            self.expect(response.error_code)
        return response

    def _note_acknowledged(self, deliveries: Sequence[Delivery], code: int) -> None:
        for delivery in deliveries:
            if code:
                delivery.refusal = ErrorCode(code).name
            else:
                delivery.confirmed_us = self.now_us()
        if deliveries:
            self.history.counts[f"acknowledgements: {ErrorCode(code).name}"] += len(deliveries)

    def _check_named(self, said: Mapping[Partition, object]) -> None:
        if said:
            self.note_anomaly(MISSING, f"no word of {', '.join(map(str, said))}")

    def _receive(self, session: _Session, partition: Partition, found: Any, asked_us: int) -> None:
        values = {
            record.offset: (record.value or b"").decode()
            for header, records in opened_batches(bytes(found.records or b""))
            if not header.is_control
            for record in records
        }
        for acquired in found.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                value = values.get(offset)
                delivery = Delivery(
                    session.known,
                    partition,
                    offset,
                    value,
                    acquired.delivery_count,
                    asked_us,
                    self.now_us(),
                    said=GAP if value is None else self._opinion(),
                )
                self.history.deliveries.append(delivery)
                if delivery.said is not None:
                    session.said.setdefault(partition, []).append(delivery)
                self.history.counts["deliveries"] += 1

    def _opinion(self) -> int | None:
        """Return what is to become of a record."""
        if self._until_end or self.around.is_ending:
            return ACCEPT
        drawn = self.random.random()
        return next((kind for limit, kind in SAYS if drawn < limit), None)


def _batches(said: Sequence[Delivery]) -> Iterator[AcknowledgementBatch]:
    """Yield acknowledgements in order, one for consecutive records."""
    run: list[Delivery] = []

    def batch() -> AcknowledgementBatch:
        kinds = [it.said for it in run]
        return AcknowledgementBatch(
            first_offset=run[0].offset,
            last_offset=run[-1].offset,
            acknowledge_types=kinds[:1] if len(set(kinds)) == 1 else kinds,
        )

    for delivery in sorted(said, key=_offset):
        if run and delivery.offset != run[-1].offset + 1:
            yield batch()
            run = []
        run.append(delivery)
    if run:
        yield batch()


_offset: Final[Callable[[Delivery], int]] = lambda delivery: delivery.offset  # noqa: E731
