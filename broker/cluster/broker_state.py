"""The states of a broker from its start to its stop.

Owns the names of the states. Must not know when they change (`broker/server.py`).
"""

from __future__ import annotations

from enum import IntEnum


class BrokerState(IntEnum):
    """Numbered as in Kafka's metrics."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    """Loading logs."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """Everything is served while the controller moves the leadership to other brokers."""
    SHUTTING_DOWN = 7
