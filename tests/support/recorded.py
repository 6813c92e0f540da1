"""The recordings of Apache Kafka 3.9.1 in `tests/fixtures`: their names and format.

A recording has one JSON object per line and is compressed with xz. `python -m tests.fixtures.record` makes them.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
CLIENT_FRAMES = FIXTURES / "wire" / "clients.jsonl.xz"
"""Requests and responses of clients; `client` names one."""
BROKER_FRAMES = FIXTURES / "wire" / "brokers.jsonl.xz"
"""Requests and responses between three brokers; `scenario` names what happened to the cluster."""
LOGS = FIXTURES / "logs"
"""Partition directories."""
DECODED_LOGS = LOGS / "decoded.jsonl.xz"
"""The records that Kafka reads from the segments of each partition directory."""


def read_lines(recording: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a recording in the order of its lines."""
    with lzma.open(recording, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write_lines(recording: Path, objects: Iterable[dict[str, Any]]) -> None:
    """Replace a recording."""
    text = "".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) + "\n" for each in objects)
    recording.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
