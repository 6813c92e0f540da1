"""Every test of this folder checks each partition after each of its events."""

from __future__ import annotations

import pytest

from broker.replica.partition import Partition
from tests.support.invariants import check_after

EVENTS = (
    "advance_high_watermark",
    "append_fetched",
    "delete_records_before",
    "expand_isr",
    "follow",
    "follower_fetched",
    "isr_responded",
    "lead",
    "replace_log",
    "stop",
    "time_passed",
)


@pytest.fixture(autouse=True)
def partitions_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check_after(monkeypatch, Partition, *EVENTS)
