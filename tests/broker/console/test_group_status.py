"""Whether a group keeps up: the rules, without a broker."""

from __future__ import annotations

import pytest

from broker.console.group_status import Status, partition_status, worst
from broker.console.rates import NO_HISTORY, PartitionHistory

GROWING = PartitionHistory([1, 2, 3, 4], [None, 1.0, 1.0, 1.0])
SLOWER = PartitionHistory([4, 3, 4, 5], [None, 1.0, 1.0, 1.0])
WITHOUT_READS = PartitionHistory([4, 5, 6, 7], [None, 0.0, 0.0, 0.0])
READ_ONCE = PartitionHistory([4, 0, 6, 7], [None, 0.0, 0.0, 0.0])
SHORT = PartitionHistory([1, 2], [None, 0.0])


@pytest.mark.parametrize(
    ("lag", "history", "has_member", "is_committed", "status"),
    [
        (None, NO_HISTORY, True, False, "NONE"),
        (None, NO_HISTORY, True, True, "UNKNOWN"),
        (0, GROWING, False, True, "OK"),
        (5, GROWING, False, True, "STOP"),
        (5, GROWING, True, True, "WARN"),
        (5, SLOWER, True, True, "OK"),
        (5, WITHOUT_READS, True, True, "STALL"),
        (5, READ_ONCE, True, True, "OK"),
        (5, SHORT, True, True, "OK"),
        (5, PartitionHistory([*[9] * 50, *GROWING.lags], [*[9.0] * 50, *GROWING.rates]), True, True, "OK"),
        (5, PartitionHistory([*[0] * 50, *range(1, 11)], [None] * 60), True, True, "WARN"),
    ],
)
def test_status_of_a_partition(
    lag: int | None, history: PartitionHistory, has_member: bool, is_committed: bool, status: Status
) -> None:
    assert partition_status(lag, history, has_member=has_member, is_committed=is_committed) == status


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    assert worst(["OK", "STOP", "WARN"]) == "STOP"
    assert worst(["NONE", "OK"]) == "NONE"
    assert worst([]) == "NONE"
