"""Requests changes of the ISR from the controller: AlterPartition, batched over all partitions that this broker leads.

Owns: which changes wait, the one request in flight, its repetition, and the counts and log lines of changes. Must not
know: when a leader wants a change, what a response means for a partition (`Partition.isr_responded`), or where the
controller is.

A change that its partition no longer wants, because newer metadata has come, is dropped before the next request. While
the controller cannot be reached, or refuses a request as a whole, the changes wait and are requested again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice

from base.topic_partition import TopicPartition
from broker.replica.machine.isr import UNKNOWN_BROKER_EPOCH, IsrChange
from broker.replica.partition import Effect, Effects, IsrResponse, Partition
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from protocol.schema import ZERO_UUID

logger = logging.getLogger("kafka.cluster.Partition")

RETRY_S = 0.05
PARTITIONS_MAX = 500
"""How many partitions a request names: to build it, and to apply and log the response, takes some 20 ms."""
RECOVERED = 0
"""The recovery state of every leader: one that begins after an unclean election counts as recovered immediately."""

Ask = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class IsrChanges:
    """The changes of one broker that the controller has not responded to."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        ask: Ask,
        responded: Callable[[Partition, IsrChange, IsrResponse], Effects],
    ) -> None:
        """`ask` sends a request to the controller, and raises whatever happens on the way.

        `responded` applies a response to its partition, and calls `submit` again for a change that is to be repeated.
        """
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask = ask
        self._responded = responded
        self._waiting: dict[TopicPartition, tuple[Partition, IsrChange]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._logged: dict[IsrChange, None] = {}
        """The waiting changes that were requested before. They are logged once, and so is why they wait."""
        self._is_refused = False
        self.shrink_count = 0
        self.expand_count = 0
        self.failure_count = 0
        """Changes that the controller has not applied."""

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Request `change` with the next request; it replaces an earlier change of the same partition."""
        if self._is_stopped:
            return
        self._waiting[partition.topic, partition.partition] = partition, change
        if self._task is None:
            # The task begins in the next turn of the loop, so the changes of this turn share a request.
            self._task = asyncio.create_task(self._run(), name="AlterPartition")

    async def stop(self) -> None:
        """Request nothing more."""
        self._is_stopped = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self._request_all()
        finally:
            # In the step that finds no change left: the next submitted change has to begin a new task.
            self._task = None

    async def _request_all(self) -> None:
        while batch := list(islice(self._wanted(), PARTITIONS_MAX)):
            self._log_new(batch)
            try:
                response = await self._ask(self._request(batch))
            except Exception as error:
                self._log_refusal(f"the controller cannot be asked to change {len(batch)} ISRs: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            if response.error_code:
                code = ErrorCode(response.error_code).name
                self._log_refusal(f"the controller refuses to change {len(batch)} ISRs: {code}")
                await asyncio.sleep(RETRY_S)
                continue
            self._is_refused = False
            if self._apply(batch, response):
                await asyncio.sleep(RETRY_S)

    def _log_new(self, batch: list[tuple[Partition, IsrChange]]) -> None:
        _log_all([each for each in batch if each[1] not in self._logged])
        self._logged = dict.fromkeys(change for _, change in batch)

    def _log_refusal(self, text: str) -> None:
        logger.log(logging.DEBUG if self._is_refused else logging.WARNING, "%s", text)
        self._is_refused = True

    def _wanted(self) -> Iterator[tuple[Partition, IsrChange]]:
        """Yield the changes that their partitions still want, and drop the others."""
        for key, (partition, change) in list(self._waiting.items()):
            if partition.isr_change is change:
                yield partition, change
            else:
                del self._waiting[key]

    def _request(self, batch: list[tuple[Partition, IsrChange]]) -> AlterPartitionRequest:
        topics: dict[str, TopicData] = {}
        for partition, change in batch:
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = TopicData(
                    topic_name=partition.topic, topic_id=partition.topic_id or ZERO_UUID, partitions=[]
                )
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.partition,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=replica, broker_epoch=self._epoch_of(change, replica))
                        for replica in change.proposed
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=change.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _epoch_of(self, change: IsrChange, replica: int) -> int:
        """Return the broker epoch with which a replica had fetched. The controller adds none that has restarted."""
        if replica == self._broker_id:
            return self._broker_epoch()
        return change.broker_epochs.get(replica, UNKNOWN_BROKER_EPOCH)

    def _apply(self, batch: list[tuple[Partition, IsrChange]], response: AlterPartitionResponse) -> bool:
        """Apply the responses; return whether some change is to be repeated."""
        results = {
            (topic.topic_name if topic.topic_id == ZERO_UUID else topic.topic_id, result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }
        needs_repetition = False
        for partition, change in batch:
            key = (partition.topic, partition.partition)
            result = results.get((partition.topic_id or ZERO_UUID, partition.partition)) or results.get(key)
            if result is None:
                needs_repetition = True
                continue
            if self._waiting.get(key, (None, None))[1] is change:
                del self._waiting[key]
            effects = self._responded(partition, change, _response_of(result))
            self._count(partition, change, ErrorCode(result.error_code), effects)
            needs_repetition = needs_repetition or change in effects
        return needs_repetition

    def _count(self, partition: Partition, change: IsrChange, code: ErrorCode, effects: Effects) -> None:
        leadership = partition.leadership
        if Effect.ISR_COMMITTED in effects:
            if change.is_shrink:
                self.shrink_count += 1
            else:
                self.expand_count += 1
            logger.info(
                "%s-%d: the ISR is %s with partition epoch %d",
                partition.topic,
                partition.partition,
                list(leadership.isr),
                leadership.partition_epoch,
            )
        elif Effect.ISR_REFUSED in effects:
            self.failure_count += 1
            logger.warning(
                "%s-%d: the controller has not changed the ISR to %s: %s",
                partition.topic,
                partition.partition,
                list(change.proposed),
                code.name,
            )


def _response_of(result: PartitionResult) -> IsrResponse:
    return IsrResponse(ErrorCode(result.error_code), result.leader_epoch, tuple(result.isr), result.partition_epoch)


def _log_all(batch: list[tuple[Partition, IsrChange]]) -> None:
    for partition, change in batch:
        logger.info(
            "%s-%d: the ISR is to change from %s to %s%s",
            partition.topic,
            partition.partition,
            list(change.committed),
            list(change.proposed),
            "".join(f"; replica {replica}: {lag}" for replica, lag in change.lags.items()),
        )
