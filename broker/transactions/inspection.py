"""Transactional ids as administrators see them.

Owns: which ids are listed. Changes nothing, and must not know what becomes of the result.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.transactions.hosted_transactions import HostedTransactions
from broker.transactions.machine.transaction import Metadata
from protocol.errors import ErrorCode, KafkaError


class TransactionInspection:
    """Describes and lists the transactional ids of one broker."""

    def __init__(self, transactions: HostedTransactions) -> None:
        self._transactions = transactions

    def describe(self, transactional_id: str) -> Metadata:
        """Return the metadata of an id.

        Raises KafkaError: the errors of `HostedTransactions.partition_of`, then TRANSACTIONAL_ID_NOT_FOUND.
        """
        transaction = self._transactions.partition_of(transactional_id).transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction.current

    def transactions(self) -> Iterator[tuple[str, Metadata]]:
        """Iterate over all ids with their metadata.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE (the broker stops), COORDINATOR_LOAD_IN_PROGRESS (a partition is
        still being loaded).
        """
        partitions = self._transactions.partitions
        if partitions.are_loading():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return (
            (transactional_id, transaction.current)
            for partition in partitions
            for transactional_id, transaction in partition.transactions.items()
        )
