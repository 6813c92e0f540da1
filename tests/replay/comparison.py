"""The differences of two responses to the same request in fields that matter to a client.

Owns: which fields depend on the broker's id, address, time or previous records; they are not compared,
or only as set or not set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.schema import Struct
from tests.replay.translation import IDS, is_given, matched

# Where the brokers are and which of them lead.
PLACES = {
    "host", "port", "rack", "node_id", "leader_id", "controller_id", "replica_nodes", "isr_nodes", "offline_replicas",
    "leader_epoch", "brokers", "cluster_id", "node_endpoints", "current_leader", "preferred_read_replica",
    "client_host", "coordinator_id", "log_dir",
}  # fmt: skip
# What was written before, and when.
HISTORY = {
    "base_offset", "high_watermark", "last_stable_offset", "log_start_offset", "offset", "old_style_offsets",
    "timestamp", "committed_offset", "log_append_time_ms", "low_watermark", "producer_epoch", "generation_id",
    "committed_leader_epoch", "aborted_transactions",
}  # fmt: skip
# Made up by the broker: set in both or in none.
MADE_UP = {"topic_id", "session_id", "producer_id", "member_id", "leader"}


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """One line for every field that differs: its path, their value and ours."""
    if isinstance(theirs, Struct) and isinstance(ours, Struct):
        for field in theirs.__fields__:
            yield from _field_differences(field.name, getattr(theirs, field.name), getattr(ours, field.name), path)
    elif isinstance(theirs, list) and isinstance(ours, list):
        for number, (their_item, our_item) in enumerate(matched(theirs, ours)):
            yield from differences(their_item, our_item, f"{path}[{number}]")
    elif theirs != ours:
        yield f"{path}: Kafka {_shown(theirs)}, here {_shown(ours)}"


def _field_differences(name: str, theirs: Any, ours: Any, path: str) -> Iterator[str]:
    where = f"{path}.{name}" if path else name
    if name == "records":
        if bool(theirs) != bool(ours):
            yield f"{where}: Kafka {len(theirs or b'')} bytes, here {len(ours or b'')}"
    elif name in MADE_UP:
        if is_given(IDS[name], theirs) != is_given(IDS[name], ours):
            yield f"{where}: Kafka {_shown(theirs)}, here {_shown(ours)}"
    elif name not in PLACES and name not in HISTORY:
        yield from differences(theirs, ours, where)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:120] + "..."
