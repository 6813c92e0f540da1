"""Ways to the transaction coordinators: at present the one of this broker, asked by a direct call.

Owns how a coordinator is reached. Must not know what it is asked, nor why.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.transaction import Producer, TopicPartition
from broker.transactions.verification import Verdicts
from protocol.errors import KafkaError


class LocalCoordinator:
    """A `CoordinatorLink` to the coordinator of this broker, which answers at once."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def verify(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Verdicts:
        try:
            return self._coordinator.verify(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
