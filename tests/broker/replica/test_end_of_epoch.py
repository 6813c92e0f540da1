"""The end offset of an epoch that a leader returns, also of an epoch without records."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from broker.replica.partition import Leadership, Partition
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.records.builder import RecordData, build_batch
from storage.disk.files import OsFiles
from storage.log import log_opening
from storage.log.log_state import LogOptions

BROKER_ID = 1
UNKNOWN = (-1, -1)
RECORD = build_batch([RecordData(timestamp=1, key=None, value=b"v")])


def led(folder: Path, written_in: set[int], last_epoch: int) -> Partition:
    """Led here in every epoch from 0 on; one record was written in each of `written_in`."""
    config = LogConfig.from_overrides(BrokerConfig.from_properties({}), {})
    options = LogOptions(OsFiles(), Random(1))
    log = log_opening.create(options, str(folder / "t-0"), ("t", 0), config, topic_id=uuid4(), now_ms=0)
    partition = Partition("t", 0, BROKER_ID, log)
    for epoch in range(last_epoch + 1):
        partition.lead(Leadership(1, BROKER_ID, epoch, (BROKER_ID,), epoch, (BROKER_ID,)), 0)
        if epoch in written_in:
            log.appends.append_as_leader(memoryview(bytearray(RECORD)), epoch, now_ms=0)
    return partition


@pytest.mark.parametrize(
    ("written_in", "last_epoch", "expected"),
    [
        (set(), 0, {-1: UNKNOWN, 0: (0, 0), 1: UNKNOWN}),
        (set(), 2, {0: (0, 0), 1: (1, 0), 2: (2, 0), 3: UNKNOWN}),
        ({0}, 0, {-1: UNKNOWN, 0: (0, 1), 1: UNKNOWN}),
        ({1}, 3, {0: (0, 0), 1: (1, 1), 2: (1, 1), 3: (3, 1), 4: UNKNOWN}),
        ({1, 3}, 3, {0: (0, 0), 1: (1, 1), 2: (1, 1), 3: (3, 2), 4: UNKNOWN}),
        ({0, 1}, 4, {0: (0, 1), 1: (1, 2), 3: (1, 2), 4: (4, 2), 5: UNKNOWN}),
    ],
)
def test_end_of_epoch_is_that_of_the_largest_epoch_at_or_below(
    tmp_path: Path, written_in: set[int], last_epoch: int, expected: dict[int, tuple[int, int]]
) -> None:
    partition = led(tmp_path, written_in, last_epoch)
    assert {epoch: tuple(partition.end_of_epoch(epoch)) for epoch in expected} == expected
