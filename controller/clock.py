"""Time as the controller's shells need it, so that tests and the simulation can set it.

Owns the port, nothing else: who runs a controller brings the clock.
"""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...
