"""What tests change beneath a broker: its disk.

Owns the arguments of these commands. Must not know processes: `_control` sends a command to each one that hosts
brokers, and each performs it by itself (`tools.launch.fixture`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from milena_broker.testing import arguments
from milena_broker.testing.steps import Change

__tracebackhide__ = True


class Controls(ABC):
    """Controls of brokers. Methods raise BrokerError, and TypeError and ValueError for wrong arguments."""

    @abstractmethod
    def _control(self, command: str, **arguments: object) -> list[Any]:
        """Run a command in each process that hosts brokers, and return its results. Raises BrokerError."""

    def slow_disk(self, delay_ms: float = 20.0) -> Change:
        """Let each write and sync take longer, until it is called with 0, or the end of a `with` block."""
        self._control("slow_disk", delay_ms=arguments.number("delay_ms", delay_ms, "milliseconds"))
        return Change(lambda: self._control("slow_disk", delay_ms=0))
