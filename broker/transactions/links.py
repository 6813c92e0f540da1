"""Access to the transaction coordinators: the one of this broker by a direct call, the others over connections.

Owns: which broker coordinates a transactional id, the requests that verify and extend many transactions together, and
how long an addition waits for the end of the transaction before. Must not know: why a coordinator is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from base.topic_partition import TopicPartition
from broker.coordination.batched_requests import BatchedRequests
from broker.coordination.partitioner import Leaders, other_coordinator
from broker.network.outgoing import Peer, PeerUnavailable
from broker.replica.transaction_verification import Verdicts
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.transaction import VERSION_2
from broker.transactions.markers import logger
from protocol.errors import ErrorCode, KafkaError
from storage.producers.producer_state import Producer

if TYPE_CHECKING:
    from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

VERSION: Final = 5

ADD_ATTEMPTS_MAX: Final = 6
ADD_BACKOFF_MS: Final = 20
"""A producer begins its next transaction while the markers of the last one are written, which takes milliseconds. Its
own retry would come later."""

Pause = Callable[[int], Awaitable[None]]
"""Waits for a number of milliseconds."""


class CoordinatorLinks:
    """A `CoordinatorLink` to all coordinators."""

    def __init__(
        self,
        broker_id: int,
        own: TransactionCoordinator,
        topic: str,
        leaders: Leaders,
        connect: Callable[[int], Peer],
        timeout_ms: int,
        pause: Pause,
    ) -> None:
        """`own` is the coordinator of this broker, and `topic` the internal topic whose leaders are coordinators.

        `timeout_ms` limits one request.
        """
        self._broker_id = broker_id
        self._own = own
        self._topic = topic
        self._leaders = leaders
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._pause = pause
        self._remote: dict[int, RemoteCoordinator] = {}

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Verdicts | Awaitable[Verdicts]:
        """See `CoordinatorLink`. An error of the coordinator becomes the verdict of every partition."""
        try:
            return self._own.verify(transactional_id, producer, partitions)
        except KafkaError as error:
            coordinator = self._coordinator_after(error, transactional_id)
        if isinstance(coordinator, ErrorCode):
            return dict.fromkeys(partitions, coordinator)
        return coordinator.verify(transactional_id, producer, partitions)

    async def add(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Verdicts:
        """See `CoordinatorLink`. While the producer's last transaction is being completed, the addition is retried."""
        for _ in range(ADD_ATTEMPTS_MAX - 1):
            verdicts = await self._add_once(transactional_id, producer, partitions)
            if ErrorCode.CONCURRENT_TRANSACTIONS not in verdicts.values():
                return verdicts
            await self._pause(ADD_BACKOFF_MS)
        return await self._add_once(transactional_id, producer, partitions)

    async def _add_once(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Verdicts:
        # Markers are not sent to partitions that the metadata lacks: they count as deleted.
        unknown = [each for each in partitions if not self._leaders.contains(*each)]
        if unknown:
            unattempted = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return unattempted | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            await self._own.add_partitions(transactional_id, producer, partitions, version=VERSION_2)
            return dict.fromkeys(partitions, ErrorCode.NONE)
        except KafkaError as error:
            coordinator = self._coordinator_after(error, transactional_id)
        if isinstance(coordinator, ErrorCode):
            return dict.fromkeys(partitions, coordinator)
        return await coordinator.add(transactional_id, producer, partitions)

    def _coordinator_after(self, error: KafkaError, transactional_id: str) -> RemoteCoordinator | ErrorCode:
        """Return who is to be asked after an error of this broker's own coordinator, or why nobody is."""
        if error.code != ErrorCode.NOT_COORDINATOR:
            return error.code
        try:
            broker_id = other_coordinator(transactional_id, self._topic, self._leaders, self._broker_id)
        except KafkaError as without:
            return without.code
        remote = self._remote.get(broker_id)
        if remote is None:
            remote = self._remote[broker_id] = RemoteCoordinator(broker_id, self._connect(broker_id), self._timeout_ms)
        return remote

    def brokers_changed(self, live: Collection[int]) -> None:
        """Close the connections to brokers that are not alive; what they were asked fails with NETWORK_EXCEPTION."""
        for broker_id in self._remote.keys() - set(live):
            self._remote.pop(broker_id).close()


class _Question(NamedTuple):
    """Whether partitions are in the transaction of a producer, or can be added to it."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    is_addition: bool

    @property
    def key(self) -> str:
        return self.transactional_id

    @property
    def size(self) -> int:
        return len(self.partitions)

    def failed(self, code: int = ErrorCode.NETWORK_EXCEPTION) -> Verdicts:
        return dict.fromkeys(self.partitions, code)


class RemoteCoordinator:
    """The coordinator of another broker."""

    def __init__(self, broker_id: int, peer: Peer, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._peer = peer
        self._timeout_ms = timeout_ms
        self._is_reported_as_older = False
        self._batches: BatchedRequests[_Question, Verdicts] = BatchedRequests(
            f"questions to coordinator {broker_id}", self._send, _Question.failed
        )

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Verdicts]:
        """See `CoordinatorLink`."""
        return self._batches.put(_Question(transactional_id, producer, partitions, is_addition=False))

    def add(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Verdicts]:
        """See `CoordinatorLink`."""
        return self._batches.put(_Question(transactional_id, producer, partitions, is_addition=True))

    def close(self) -> None:
        self._peer.close()

    async def _send(self, questions: Sequence[_Question]) -> Sequence[Verdicts]:
        request = _request(questions)
        try:
            response: AddPartitionsToTxnResponse = await self._peer.ask(request, VERSION, timeout_ms=self._timeout_ms)
        except (PeerUnavailable, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
                return self._unsupported(questions)
            logger.warning("%d transactions could not be verified or extended: %s", len(questions), error)
            return [each.failed() for each in questions]
        if response.error_code:
            return [each.failed(response.error_code) for each in questions]
        by_id: dict[str, dict[TopicPartition, int]] = {}
        for result in response.results_by_transaction:
            codes = by_id.setdefault(result.transactional_id, {})
            for topic in result.topic_results:
                codes.update(
                    ((topic.name, each.partition_index), each.partition_error_code)
                    for each in topic.results_by_partition
                )
        return [{**each.failed(), **by_id.get(each.transactional_id, {})} for each in questions]

    def _unsupported(self, questions: Sequence[_Question]) -> Sequence[Verdicts]:
        """Return the verdicts if the coordinator is a Kafka before 3.5: as there, transactions pass unverified."""
        if not self._is_reported_as_older:
            self._is_reported_as_older = True
            logger.warning(
                "Coordinator %d serves no AddPartitionsToTxn v4: its transactions are neither verified nor extended",
                self._broker_id,
            )
        return [
            each.failed() if each.is_addition else dict.fromkeys(each.partitions, ErrorCode.NONE) for each in questions
        ]


def _request(questions: Sequence[_Question]) -> AddPartitionsToTxnRequest:
    # On demand: only a broker with others beside it sends these.
    from protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    request = AddPartitionsToTxnRequest(transactions=[])
    for transactional_id, producer, partitions, is_addition in questions:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in partitions:
            if topic not in topics:
                topics[topic] = AddPartitionsToTxnTopic(name=topic, partitions=[])
            topics[topic].partitions.append(partition)
        request.transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not is_addition,
                topics=list(topics.values()),
            )
        )
    return request
