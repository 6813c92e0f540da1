"""Consumers: read partitions from the start or a given position up to the high watermark or the last stable offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.sim.batches import opened_batches
from tests.sim.clients.base import Failed, Retry, SimulatedClient, Surroundings
from tests.sim.disk import EPOCH_MS
from tests.sim.history import Lookup, Partition, Poll, PolledRecord

VERSION = 12
EARLIEST = -2
"""Stands for the start of a log in ListOffsets."""
ASTRAY = 0.1
"""How often a broker is asked that may not lead the partition."""
LOOKUPS = 0.1
"""How often an offset is looked up by time before a poll."""
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
    ) -> None:
        super().__init__(name, around)
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
        """Poll all partitions that the leader of this one leads."""
        self.doing = f"Fetch {partition} from {self.positions[partition]}"
        try:
            broker, _ = await self.leader_of(partition)
            if self.random.random() < LOOKUPS and not self._until_end:
                await self._look_up(broker, partition)
            if self.random.random() < ASTRAY and not self._until_end:
                broker = self.any_broker()  # perhaps one that led before, and does not know that it was deposed
                await self.poll(broker, [partition], max_wait_ms=0)
                return
            led = [other for other in self.partitions if other in self._leaders and self._leaders[other][0] == broker]
            await self.poll(broker, led, max_wait_ms=0 if self._until_end else 300)
        except Retry as reason:
            self.doing += f", after {reason}"
            self.forget_cluster()
            await self.back_off()

    async def _look_up(self, broker: int, partition: Partition) -> None:
        """Ask for the first offset from a time on. Raises Retry."""
        epoch = self._leaders[partition][1]
        timestamp_ms = EPOCH_MS + self.random.randrange(self.now_us() // 1000 + 1)
        asked_us = self.now_us()
        found = await self._offset_at(broker, epoch, partition, timestamp_ms)
        self.history.lookups.append(
            Lookup(self.name, partition, broker, epoch, timestamp_ms, found.offset, asked_us, self.is_committed)
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

    async def poll(self, broker: int, partitions: Sequence[Partition], *, max_wait_ms: int) -> list[Poll]:
        """Fetch once; note and return what comes. Raises Retry."""
        epochs = {partition: self._leaders[partition][1] for partition in partitions}
        topics: dict[str, list[FetchPartition]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.index,
                    current_leader_epoch=epochs[partition],
                    fetch_offset=self.positions[partition],
                    partition_max_bytes=2000,
                )
            )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=10_000,
            isolation_level=int(self.is_committed),
            topics=[FetchTopic(topic=topic, partitions=wanted) for topic, wanted in topics.items()],
        )
        asked_us = self.now_us()
        response = await self.ask(broker, request, VERSION)
        self.expect(response.error_code)
        polls: list[Poll] = []
        retry: Retry | None = None
        for topic in response.responses:
            for found in topic.partitions:
                partition = Partition(topic.topic, found.partition_index)
                try:
                    polls.append(self._receive(broker, epochs[partition], partition, found, asked_us))
                except _OutOfRange as error:
                    await self._leave_range(broker, epochs[partition], partition)
                    retry = error
                except Retry as error:
                    retry = error
        if retry is not None:
            raise retry
        return polls

    def _receive(self, broker: int, epoch: int, partition: Partition, found: Any, asked_us: int) -> Poll:
        try:
            error = self.expect(found.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
        except Failed as failure:
            self.note_anomaly("unexpected error", f"Fetch of {partition}: {failure.code.name}")
            raise Retry(failure.code.name) from None
        position = self.positions[partition]
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _OutOfRange(error.name)
        if found.diverging_epoch is not None and found.diverging_epoch.end_offset >= 0:
            self.note_anomaly("I5 no visible record is lost", f"{partition} diverges at {position}", partition)
        records, following = decoded(found, position, is_committed=self.is_committed)
        poll = Poll(
            self._reader_of(partition),
            partition,
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
            self.around.copies_of(partition, records[-1].offset) if records else None,
        )
        self.history.polls.append(poll)
        self.history.counts["polled records"] += len(records)
        self.positions[partition] = following
        if following >= (found.last_stable_offset if self.is_committed else found.high_watermark):
            self._at_end.add(partition)
        return poll

    def _reader_of(self, partition: Partition) -> str:
        """Return the name of a poll: another one after each jump over deleted records."""
        jumps = self._jumps[partition]
        return f"{self.reading_as}^{jumps}" if jumps else self.reading_as

    async def _leave_range(self, broker: int, epoch: int, partition: Partition) -> None:
        """The position is outside of the log: legal only below its start. Continue there. Raises Retry."""
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
