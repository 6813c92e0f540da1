"""Producers: plain with acks=all or 1, and idempotent. Each retries a batch until it is acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from tests.sim.clients.base import Failed, Retry, SimulatedClient, Surroundings
from tests.sim.disk import EPOCH_MS
from tests.sim.history import Partition, Send

VERSION = 9
COMPRESSED = 0.2
DUPLICATES = 0.05
"""How often an idempotent producer sends a batch twice, as a client does after a timeout."""


def drawn_compression(random: Random) -> Compression:
    """Return a codec for a few batches, none for most."""
    return random.choice(list(Compression)) if random.random() < COMPRESSED else Compression.NONE


def batch_of(
    values: Sequence[str],
    now_us: int,
    *,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytes:
    """Return a batch; `producer` is its id, epoch and the first sequence number."""
    records = [RecordData(timestamp=EPOCH_MS + now_us // 1000, key=None, value=value.encode()) for value in values]
    if producer is None:
        return build_batch(records, compression=compression)
    producer_id, epoch, sequence = producer
    return build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def produce_request(
    partition: Partition, records: bytes, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition.index, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=4000,
        topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
    )


class Producer(SimulatedClient):
    """Sends `count` batches, one after the other, to partitions at random."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        partitions: Sequence[Partition],
        *,
        count: int,
        acks: int = -1,
        is_idempotent: bool = False,
        pause_s: float = 0.5,
        duplicates: float = DUPLICATES,
    ) -> None:
        super().__init__(name, around)
        self._partitions = partitions
        self._count = count
        self._acks = acks
        self._is_idempotent = is_idempotent
        # A deposed leader lacks the batches that its successor has, and responds OUT_OF_ORDER_SEQUENCE_NUMBER to the
        # next one. Kafka's producers do not go back to it.
        self.keeps_latest_epoch = is_idempotent
        self._pause_s = pause_s
        self._duplicates = duplicates
        self._identity: tuple[int, int] | None = None
        self._sequences: Counter[Partition] = Counter()
        self._sent = 0

    async def run(self) -> None:
        if self._is_idempotent:
            self._identity = await self.until_done("InitProducerId", lambda: initialized(self))
        for number in range(self._count):
            await self.think(self._pause_s)
            partition = self.random.choice(self._partitions)
            values = tuple(f"{self.name}/{self._sent + index}" for index in range(self.random.randint(1, 3)))
            self._sent += len(values)
            send = Send(self.name, partition, values, number, self._acks, self._is_idempotent, self.now_us())
            self.history.sends.append(send)
            compression = drawn_compression(self.random)
            records = batch_of(values, self.now_us(), producer=self._next(partition), compression=compression)
            if self._is_idempotent and self.random.random() < self._duplicates:
                self.loop.create_task(self._send_duplicate(send, records))

            async def attempt(send: Send = send, records: bytes = records) -> None:
                await self._attempt(send, records)

            try:
                await self.until_done(f"Produce {values} to {partition}", attempt)
            except Failed as error:
                self.history.counts[f"produce failed with {error.code.name}"] += 1
                self._judge(error.code, partition, values)
                if self._is_idempotent:
                    self._identity = await self.until_done("InitProducerId", lambda: initialized(self))
                    self._sequences.clear()
            else:
                self._sequences[partition] += len(values)
        self.doing = "finished"

    def _next(self, partition: Partition) -> tuple[int, int, int] | None:
        return None if self._identity is None else (*self._identity, self._sequences[partition])

    def _judge(self, code: ErrorCode, partition: Partition, values: tuple[str, ...]) -> None:
        """Every error that is not retriable is a defect, unless records were lost by the rules."""
        self.note_anomaly("I6 order and uniqueness per producer", f"{values} failed with {code.name}", partition)

    async def _attempt(self, send: Send, records: bytes) -> None:
        leader, _ = await self.leader_of(send.partition)
        send.last_sent_us = self.now_us()
        try:
            response = await self.ask(leader, produce_request(send.partition, records, acks=self._acks), VERSION)
        except Retry:
            self.forget_cluster()
            raise
        (found,) = response.responses[0].partition_responses
        if self.expect(found.error_code, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is ErrorCode.NONE:
            send.offset = found.base_offset if found.base_offset >= 0 else None
        send.acked_us = self.now_us()
        send.broker = leader
        self.history.counts["acknowledged records"] += len(send.values)
        if send.offset is not None and self._acks == -1:
            send.stored_by = self.around.copies_of(send.partition, send.offset)

    async def _send_duplicate(self, send: Send, records: bytes) -> None:
        """Send the same request on a connection of its own, a little later."""
        try:
            await self.think(1.0)
            leader, _ = await self.leader_of(send.partition)
            await self.ask(leader, produce_request(send.partition, records), VERSION, fresh=True)
        except Retry:
            return
        self.history.counts["duplicate requests"] += 1


async def initialized(client: SimulatedClient) -> tuple[int, int]:
    """Return a new producer id and its epoch. Raises Retry."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    response = await client.ask(client.any_broker(), request, 4)
    client.expect(response.error_code)
    return response.producer_id, response.producer_epoch
