"""Input and output of a group of the consumer protocol, as plain values.

Owns: the heartbeat and its result. Must not know: wire messages, futures, logs or clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.groups.machine.consumer.partitions import Partitions

Visible = Callable[[str], bool]
"""Whether a member may see a topic."""


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat. None, and -1 for a timeout, mean: as in the last heartbeat."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    server_assignor: str | None
    reported: Partitions | None
    """What the member says that it has."""
    client_id: str
    client_host: str
    may_see: Visible

    @property
    def is_full(self) -> bool:
        """Whether the member states everything, as when it joins, and after an error: it may not know what it has."""
        return self.epoch == 0 or (
            self.rebalance_timeout_ms != -1 and self.topic_names is not None and self.reported is not None
        )


class HeartbeatResult(NamedTuple):
    """The response to a heartbeat. `assigned` is None if the member knows it."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


class Timeouts(NamedTuple):
    """How long members may be silent, and how often they are to send heartbeats."""

    session_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
