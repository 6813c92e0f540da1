"""Access to the transaction coordinators: the one of this broker by a direct call, the others over connections.

Owns: which broker coordinates a transactional id, and the requests that verify many transactions together. Must not
know: why a coordinator is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from base.topic_partition import TopicPartition
from broker.coordination.partitioner import partition_for
from broker.network.outgoing import Peer, PeerUnavailable
from broker.replica.transaction_verification import Verdicts
from broker.transactions.batched_requests import BatchedRequests
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import NO_LEADER, Leaders, logger
from protocol.errors import ErrorCode, KafkaError
from storage.producers.producer_state import Producer

if TYPE_CHECKING:
    from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

VERSION: Final = 5


class ConnectToCoordinator(Protocol):
    """Opens connections to coordinators."""

    def __call__(self, broker_id: int, /) -> Peer: ...


class CoordinatorLinks:
    """A `CoordinatorLink` to all coordinators."""

    def __init__(
        self,
        broker_id: int,
        own: TransactionCoordinator,
        topic: str,
        leaders: Leaders,
        connect: ConnectToCoordinator,
        timeout_ms: int,
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
        self._remote: dict[int, RemoteCoordinator] = {}

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Verdicts | Awaitable[Verdicts]:
        """See `CoordinatorLink`. An error of the coordinator becomes the verdict of every partition."""
        try:
            return self._own.verify(transactional_id, producer, partitions)
        except KafkaError as error:
            if error.code != ErrorCode.NOT_COORDINATOR:
                return dict.fromkeys(partitions, error.code)
        count = self._leaders.partition_count(self._topic)
        leader = (
            NO_LEADER if not count else self._leaders.leader_of(self._topic, partition_for(transactional_id, count))
        )
        if leader == self._broker_id:
            return dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR)  # the metadata is newer than the leadership
        if leader == NO_LEADER:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        remote = self._remote.get(leader)
        if remote is None:
            remote = self._remote[leader] = RemoteCoordinator(leader, self._connect(leader), self._timeout_ms)
        return remote.verify(transactional_id, producer, partitions)

    def brokers_changed(self, live: Collection[int]) -> None:
        """Close the connections to brokers that are not alive; what they were asked fails with NETWORK_EXCEPTION."""
        for broker_id in self._remote.keys() - set(live):
            self._remote.pop(broker_id).close()


class _Question(NamedTuple):
    """Whether partitions are in the transaction of a producer."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]

    @property
    def key(self) -> str:
        return self.transactional_id

    def failed(self, code: int = ErrorCode.NETWORK_EXCEPTION) -> Verdicts:
        return dict.fromkeys(self.partitions, code)


class RemoteCoordinator:
    """The coordinator of another broker."""

    def __init__(self, broker_id: int, peer: Peer, timeout_ms: int) -> None:
        self._peer = peer
        self._timeout_ms = timeout_ms
        self._batches: BatchedRequests[_Question, Verdicts] = BatchedRequests(
            f"verification by broker {broker_id}", self._send, _Question.failed
        )

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Verdicts]:
        """See `CoordinatorLink`."""
        return self._batches.put(_Question(transactional_id, producer, partitions))

    def close(self) -> None:
        self._peer.close()

    async def _send(self, questions: Sequence[_Question]) -> Sequence[Verdicts]:
        request = _request(questions)
        try:
            response: AddPartitionsToTxnResponse = await self._peer.ask(request, VERSION, timeout_ms=self._timeout_ms)
        except (PeerUnavailable, KafkaError) as error:
            logger.warning("%d transactions could not be verified: %s", len(questions), error)
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


def _request(questions: Sequence[_Question]) -> AddPartitionsToTxnRequest:
    # On demand: only a broker with others beside it sends these.
    from protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    request = AddPartitionsToTxnRequest(transactions=[])
    for transactional_id, producer, partitions in questions:
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
                verify_only=True,
                topics=list(topics.values()),
            )
        )
    return request
