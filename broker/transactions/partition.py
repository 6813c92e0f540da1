"""What the coordinator keeps of one partition of `__transaction_state`.

The leader epoch of the partition is the coordinator epoch, which fences the markers of earlier coordinators.
"""

from __future__ import annotations

from dataclasses import field

from base.dataclass import dataclass
from broker.coordination.led_partitions import LedPartition
from broker.transactions.machine.transaction import Transaction


@dataclass(slots=True, eq=False)
class StatePartition(LedPartition):
    """One led partition and the transactional ids that hash to it."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
