"""Two partitions of `__transaction_state` that Apache Kafka wrote, with what its dump tool makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FIXTURES = Path(__file__).parents[2] / "fixtures" / "transaction-state"


class GoldenPartition(NamedTuple):
    number: int
    log: bytes
    records: list[dict[str, Any]]


PARTITIONS = [
    GoldenPartition(
        number,
        (FIXTURES / f"partition-{number}.log").read_bytes(),
        json.loads((FIXTURES / f"partition-{number}.json").read_text()),
    )
    for number in (0, 1)
]

RECORDS = [record for partition in PARTITIONS for record in partition.records]
