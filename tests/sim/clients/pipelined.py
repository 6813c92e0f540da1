"""An idempotent producer as real clients are: five batches in flight to each partition, and retries in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from tests.sim.client import Client
from tests.sim.clients.base import REQUEST_TIMEOUT_S, RETRIABLE, Failed, Retry, SimulatedClient, Surroundings
from tests.sim.clients.producer import VERSION, batch_of, drawn_compression, initialized, produce_request
from tests.sim.history import Partition, Send

IN_FLIGHT_MAX: Final = 5
PAUSE_S: Final = 0.9
"""The longest pause between two bursts of batches."""
GAP_S: Final = 0.02
"""The longest pause between two batches of a burst."""

FORGOTTEN: Final = "a leader recognises the last five batches of a producer"
"""The rule that a batch is not refused for its sequence while it is in the log of the leader that is asked."""

_OUT_OF_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class _Batch(NamedTuple):
    """A batch that is not acknowledged yet."""

    send: Send
    records: bytes
    sequence: int


class PipelinedProducer(SimulatedClient):
    """Sends `count` batches to each partition.

    Up to five batches are sent over one connection before the first is acknowledged. If one of them fails, or the
    connection is lost, it waits for the outcome of the others and then sends all of them again that have failed, in
    their order. A batch behind one that has failed may be refused for its sequence number; the first may not.

    No batch is sent more than five ahead of the oldest one that is not acknowledged: the leader remembers only the last
    five, and Kafka refuses the repetition of an older one as well.
    """

    keeps_latest_epoch = True

    def __init__(self, name: str, around: Surroundings, partitions: Sequence[Partition], *, count: int) -> None:
        super().__init__(name, around)
        self._partitions = partitions
        self._count = count
        self._identity = (-1, -1)
        self._numbers = 0
        self._values = 0
        self._states: dict[Partition, str] = {}

    async def run(self) -> None:
        self._identity = await self.until_done("InitProducerId", lambda: initialized(self))
        await asyncio.gather(*(self._fill(partition) for partition in self._partitions))
        self.doing = "finished"

    async def _fill(self, partition: Partition) -> None:
        waiting: deque[_Batch] = deque()
        sequences: list[int] = []  # the first of each batch
        sequence = 0
        while len(sequences) < self._count or waiting:
            if not waiting:
                await self.think(PAUSE_S)
            burst = self.random.randint(1, IN_FLIGHT_MAX)
            oldest = sequences.index(waiting[0].sequence) if waiting else len(sequences)
            while len(sequences) < min(self._count, oldest + IN_FLIGHT_MAX) and len(waiting) < burst:
                waiting.append(self._new_batch(partition, sequence))
                sequences.append(sequence)
                sequence += len(waiting[-1].send.values)
            self._states[partition] = f"Produce {waiting[0].send.values} to {partition}"
            self.doing = ", ".join(self._states.values())
            try:
                failed = await self._send_all(partition, list(waiting))
            except Retry:
                failed = list(waiting)
            except Failed as error:
                self.history.counts[f"produce failed with {error.code.name}"] += 1
                self.note_anomaly(
                    "I6 order and uniqueness per producer",
                    f"{waiting[0].send.values} failed with {error.code.name}",
                    partition,
                )
                return
            waiting = deque(failed)
            if failed:
                self.history.counts["client retries"] += 1
                self.forget_cluster()
                await self.back_off()
        self._states[partition] = "finished"

    def _new_batch(self, partition: Partition, sequence: int) -> _Batch:
        values = tuple(f"{self.name}/{self._values + index}" for index in range(self.random.randint(1, 3)))
        self._values += len(values)
        self._numbers += 1
        send = Send(self.name, partition, values, self._numbers, -1, True, self.now_us())
        self.history.sends.append(send)
        producer, compression = (*self._identity, sequence), drawn_compression(self.random)
        return _Batch(send, batch_of(values, self.now_us(), producer=producer, compression=compression), sequence)

    async def _send_all(self, partition: Partition, batches: Sequence[_Batch]) -> list[_Batch]:
        """Send batches without waiting for responses; return those that have to be sent again.

        Raises Retry if no leader can be reached, and Failed if the first one is refused for good.
        """
        leader, _ = await self.leader_of(partition)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                connection = await self._connection(leader, fresh=False)
        except (OSError, TimeoutError) as error:
            self._forget(leader)
            raise Retry(f"broker {leader}: {error!r}") from None
        tasks = []
        for batch in batches:
            tasks.append(self.loop.create_task(self._send_one(leader, connection, batch)))
            await asyncio.sleep(GAP_S * self.random.random())
        outcomes = await asyncio.gather(*tasks)
        failed: list[_Batch] = []
        for batch, code in zip(batches, outcomes, strict=True):
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                continue
            if code not in RETRIABLE and not (code in _OUT_OF_SEQUENCE and failed):
                raise Failed(code)
            failed.append(batch)
        return failed

    async def _send_one(self, leader: int, connection: Client, batch: _Batch) -> ErrorCode:
        """Send a batch; return the error of the response, or NETWORK_EXCEPTION without one."""
        send = batch.send
        send.last_sent_us = self.now_us()
        remembered = self.around.remembered(leader, send.partition, self._identity, batch.sequence)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await connection.ask(produce_request(send.partition, batch.records), VERSION)
        except (OSError, TimeoutError):
            self._forget(leader)
            return ErrorCode.NETWORK_EXCEPTION
        (found,) = response.responses[0].partition_responses
        code = ErrorCode(found.error_code)
        if code in _OUT_OF_SEQUENCE:
            self.history.counts[f"batches refused with {code.name}"] += 1
            # In its log and not truncated from the request to the response: it was there in between.
            if remembered is not None and remembered == self.around.remembered(
                leader, send.partition, self._identity, batch.sequence
            ):
                self.note_anomaly(
                    FORGOTTEN,
                    f"broker {leader} refused the batch of sequence {batch.sequence} with {code.name}, although it is "
                    f"in its log of {send.partition}",
                )
        if code is ErrorCode.NONE:
            send.offset = found.base_offset if found.base_offset >= 0 else None
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            send.acked_us = self.now_us()
            send.broker = leader
            self.history.counts["acknowledged records"] += len(send.values)
            if send.offset is not None:
                send.stored_by = self.around.copies_of(send.partition, send.offset)
        return code
