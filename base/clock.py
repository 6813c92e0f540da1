"""The clock of the controller, as a port, so that tests and the simulation can set the time.

Owns the port and nothing else: the caller that builds a controller passes the clock.
"""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""
        ...
