"""What tests see of a topic.

Owns the value, and its form in the responses of the host.
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
