"""Access to the transaction coordinators: at present the one of this broker, by a direct call.

Owns: how a coordinator is reached. Must not know: why it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.replica.transaction_verification import Verdicts
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.transaction import TopicPartition
from protocol.errors import KafkaError
from storage.producer_state import Producer


class LocalCoordinator:
    """A `CoordinatorLink` to the coordinator of this broker, which responds synchronously."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def verify(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Verdicts:
        """See `CoordinatorLink`. An error of the coordinator becomes the verdict of every partition."""
        try:
            return self._coordinator.verify(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
