"""Ways to the transaction coordinators: at present the one of this broker, asked by a direct call.

Owns how a coordinator is reached. Must not know what it is asked, nor why.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.replica.transaction_verification import Verdicts
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.transaction import TopicPartition
from protocol.errors import KafkaError
from storage.producer_state import Producer


class LocalCoordinator:
    """A `CoordinatorLink` to the coordinator of this broker, which answers at once."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def verify(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Verdicts:
        try:
            return self._coordinator.verify(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
