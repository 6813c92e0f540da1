"""Writes to and reads from the topics that the administrator creates, deletes, and creates again."""

from __future__ import annotations

from protocol.errors import ErrorCode
from tests.sim.clients.base import Retry, Surroundings
from tests.sim.clients.consumer import IDS_VERSION, NAMES_VERSION, Consumer
from tests.sim.clients.producer import VERSION, batch_of, produce_request
from tests.sim.history import Partition

PREFIX = "extra-"
WRITES = 0.5
FORGETS = 0.3
"""How often it asks for metadata after an error."""


class ExtraReader(Consumer):
    """Until the run ends, writes single records by the names of topics, and reads by their ids.

    It asks for metadata only after errors, and not after each, so that it names topics which do not exist any more.
    What it writes may end up in the next topic of the name, so nothing is expected of it but that it stands in one
    topic only.
    """

    def __init__(self, name: str, around: Surroundings) -> None:
        # Without ids it could not tell one topic of a name from the next; then there is only one.
        version = NAMES_VERSION if around.history.leaders_write_states else IDS_VERSION
        super().__init__(name, around, [], is_committed=False, version=version, has_sessions=True)
        self._written = 0

    async def run(self) -> None:
        while not self.around.is_ending:
            await self.think(1.5)
            try:
                await self._visit()
            except Retry:
                await self.back_off()
        self.doing = "finished"

    def forget_cluster(self) -> None:
        if self.random.random() < FORGETS:
            super().forget_cluster()

    async def _visit(self) -> None:
        """Write to or read from some topic. Raises Retry."""
        extra = sorted(partition for partition in self._leaders if partition.topic.startswith(PREFIX))
        if not extra:
            await self.refresh(None)
            return
        partition = self.random.choice(extra)
        if self.random.random() < WRITES:
            leader, _ = self._leaders[partition]
            await self._write(leader, partition)
        else:
            source = self.source_of(partition)
            await self.poll(source, [it for it in extra if self.source_of(it) == source], max_wait_ms=300)

    async def _leave_range(self, broker: int, epoch: int, partition: Partition) -> None:
        """Begin anew: by its name, ListOffsets might ask the next topic."""
        judged = self._judged(partition)
        self.positions[judged] = 0
        self._jumps[judged] += 1

    async def _write(self, leader: int, partition: Partition) -> None:
        """Send a record once. Raises Retry."""
        self._written += 1
        records = batch_of([f"{self.name}/{self._written}"], self.now_us())
        response = await self.ask(leader, produce_request(partition, records, acks=1), VERSION)
        self.expect(response.responses[0].partition_responses[0].error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)
        self.history.counts["records of topics that come and go"] += 1
