"""The settings of the coordination server, with ZooKeeper's names where ZooKeeper has them."""

from __future__ import annotations

from pathlib import Path

from base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CoordinationSettings:
    """`file_path` is the tree's file, which is created if missing; port 0 is any free one."""

    file_path: Path
    host: str = "127.0.0.1"
    port: int = 0
    tick_ms: int = 500
    """ZooKeeper's tickTime. How late the end of a session may be noticed."""
    session_timeout_min_ms: int = 1000
    session_timeout_max_ms: int = 60_000
    frame_bytes_max: int = 0xFFFFF
    """ZooKeeper's jute.maxbuffer."""
    connections_max: int = 500
    sessions_max: int = 2000
    watches_max: int = 100_000
    """Of one connection."""
    watched_size_max: int = 8 * 1024 * 1024
    """In characters, of the paths that one connection watches."""
    outstanding_max: int = 1000
    """Requests of one connection whose responses are not written yet; it is not read while it has more."""
    outstanding_bytes_max: int = 4 * 1024 * 1024
    """Of the same responses, and of the watch events that are not written yet."""
    first_request_timeout_ms: int = 10_000
    """A connection without a session is closed after this time."""
    close_timeout_ms: int = 5_000
    """What was written to a connection before it was closed is dropped after this time."""
