"""Partitions of internal topics that Apache Kafka wrote, with what its dump tool makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FIXTURES = Path(__file__).parents[1] / "fixtures"


class GoldenPartition(NamedTuple):
    number: int
    log: bytes
    records: list[dict[str, Any]]


def golden_partitions(name: str) -> list[GoldenPartition]:
    """The two partitions in one folder of the fixtures."""
    return [
        GoldenPartition(
            number,
            (FIXTURES / name / f"partition-{number}.log").read_bytes(),
            json.loads((FIXTURES / name / f"partition-{number}.json").read_text()),
        )
        for number in (0, 1)
    ]
