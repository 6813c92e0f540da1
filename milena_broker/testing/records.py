"""What tests see of a topic and of a group.

Owns the values, and their form in the responses of the host.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def json(self) -> Any:
        """Return the value, read as JSON. Raises ValueError."""
        return None if self.value is None else json.loads(self.value)


class Group(NamedTuple):
    """One group."""

    group_id: str
    state: str
    """As in Kafka: Stable, Empty, PreparingRebalance and so on."""
    members: int
    lag: int
    """How many records of the topics of its committed offsets it has not committed."""


def record_of(topic: str, fields: Mapping[str, Any]) -> Record:
    return Record(
        topic,
        fields["partition"],
        fields["offset"],
        fields["timestamp_ms"],
        _decoded(fields["key"]),
        _decoded(fields["value"]),
        tuple((name, _decoded(value)) for name, value in fields["headers"]),
    )


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
