"""Counts the damaged batches that a broker has met since its start.

Owns the count. Must not know what becomes of a damaged batch: whoever meets one reports it and decides.
"""

import threading
from collections import Counter
from enum import Enum
from typing import Final

_REMEMBERED_MAX: Final = 10_000


class MetBy(Enum):
    """What a broker did when it met a damaged batch; the value is the metric's label."""

    READ = "read"
    RECOVERY = "recovery"
    CLEANING = "cleaning"


class DamagedBatches:
    """Any thread may count. A batch counts once for each way to meet it: consumers come back to it again and again.

    Beyond `_REMEMBERED_MAX` batches each meeting counts.
    """

    def __init__(self) -> None:
        self._counts: Counter[MetBy] = Counter()
        self._met: set[tuple[MetBy, str]] = set()
        self._lock = threading.Lock()

    def count(self, met_by: MetBy) -> int:
        return self._counts[met_by]

    def add(self, met_by: MetBy, damage: Exception, log: str) -> None:
        """`damage` was met in the log of that directory; its text tells one batch from another."""
        met = (met_by, f"{log}: {damage}")
        with self._lock:
            if met in self._met:
                return
            if len(self._met) < _REMEMBERED_MAX:
                self._met.add(met)
            self._counts[met_by] += 1
