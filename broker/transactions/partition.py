"""What the coordinator keeps of one partition of `__transaction_state`.

The leader epoch of the partition is the coordinator epoch, which fences the markers of earlier coordinators.
"""

from __future__ import annotations

from dataclasses import field

from broker.coordination.led_partitions import LedPartition
from broker.transactions.transaction import Transaction
from protocol.dataclass import dataclass


@dataclass(slots=True, eq=False)
class StatePartition(LedPartition):
    """One led partition and the transactional ids that hash to it."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
