"""Time as the controller's shells need it, so that tests and the simulation can set it."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...
