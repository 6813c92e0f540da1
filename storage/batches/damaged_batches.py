"""Counts the damaged batches that a broker has found since its start.

Owns the count. Must not know what is done about a damaged batch: the code that finds it reports it and decides.
"""

import threading
from collections import Counter
from enum import Enum
from typing import Final

_REMEMBERED_MAX: Final = 10_000


class MetBy(Enum):
    """What the broker did when it found a damaged batch; the value is the metric's label."""

    READ = "read"
    RECOVERY = "recovery"
    CLEANING = "cleaning"


class DamagedBatches:
    """The counts by `MetBy`. Any thread.

    A batch counts once for each `MetBy`, because consumers read it again and again. Beyond `_REMEMBERED_MAX` batches
    each report counts.
    """

    def __init__(self) -> None:
        self._counts: Counter[MetBy] = Counter()
        self._met: set[tuple[MetBy, str]] = set()
        self._lock = threading.Lock()

    def count(self, met_by: MetBy) -> int:
        return self._counts[met_by]

    def add(self, met_by: MetBy, damage: Exception, log: str) -> None:
        """Count a damaged batch of the log in directory `log`. The text of `damage` identifies the batch."""
        met = (met_by, f"{log}: {damage}")
        with self._lock:
            if met in self._met:
                return
            if len(self._met) < _REMEMBERED_MAX:
                self._met.add(met)
            self._counts[met_by] += 1
