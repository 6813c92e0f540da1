"""Hanging transactions are found, reported once, and counted while they exist; no others are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from base.pause import never, whole
from broker.replica.partition import Leadership
from broker.replica.transaction_verification import Guards
from broker.transactions.late import GRACE_MS, LateTransactions
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import Marker
from tests.broker.transactions.leading import BROKER, Leading

TIMEOUT_MAX_MS = 900_000


def test_hanging_transactions_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = Leading(tmp_path)
    late = LateTransactions(here.replica_manager, TIMEOUT_MAX_MS)
    first, second = here.lead("t", 0), here.lead("t", 1)
    here.lead("t", 2)
    for partition, producer_id in ((first, 7), (first, 8), (second, 9)):
        here.produce(partition, producer_id, 0, 0)  # with a timestamp of 0
    limit_ms = TIMEOUT_MAX_MS + GRACE_MS

    def reported(now_ms: int) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            whole(late.check(now_ms, never))
        return [record.getMessage() for record in caplog.records]

    assert (reported(limit_ms), late.partition_count) == ([], 0)
    messages = reported(limit_ms + 1)
    assert late.partition_count == 2
    assert [message.partition(": it is open")[0] for message in messages] == [
        "t-0 has a hanging transaction of producer id 7 (epoch 0)",
        "t-1 has a hanging transaction of producer id 9 (epoch 0)",
    ]
    assert all("open since offset 0" in message for message in messages)
    assert (reported(limit_ms + 2), late.partition_count) == ([], 2)

    writer = MarkerWriter(
        here.replica_manager,
        here.own_appends,
        Guards(lambda: 1, lambda partition: 0),
        here.clock,
        1000,
        lambda *_: None,
    )
    writer.write(Marker(7, 0, False, 0), [("t", 0)])
    second.follow(Leadership(2, BROKER + 1, 1, (BROKER + 1,), 1, (BROKER, BROKER + 1)))
    assert ["producer id 8" in message for message in reported(limit_ms + 3)] == [True]
    assert late.partition_count == 1
    writer.write(Marker(8, 0, False, 0), [("t", 0)])
    assert (reported(limit_ms + 4), late.partition_count) == ([], 0)
