"""Which of several server processes run, when a dead one is started again, and in which order they stop.

Owns these decisions, with the time as an argument. Must not know processes, signals or what a server does.

A server that ends with status 0 was asked to stop by someone else and is not started again. Any other end is a failure:
the server starts again after a delay. The delay doubles with each failure, up to a maximum. After
the server has run for a while, the next delay is the first one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

FIRST_DELAY_S: Final = 1.0
DELAY_MAX_S: Final = 30.0
STABLE_AFTER_S: Final = 60.0
"""A server that has run for this long starts again after the first delay."""


@dataclass
class _Server:
    started_s: float | None = None
    """When the running process was started; None if none runs."""
    start_at_s: float | None = 0.0
    """When the next process starts; None if none is to start."""
    delay_s: float = FIRST_DELAY_S


class Supervision:
    """The servers by name, in the order of their start."""

    def __init__(self, names: Sequence[str]) -> None:
        self._servers = {name: _Server() for name in names}

    def due(self, now_s: float) -> list[str]:
        """Return the names of the servers to start now, in order."""
        return [
            name
            for name, server in self._servers.items()
            if server.started_s is None and server.start_at_s is not None and server.start_at_s <= now_s
        ]

    def started(self, name: str, now_s: float) -> None:
        self._servers[name].started_s = now_s

    def ended(self, name: str, status: int, now_s: float) -> float | None:
        """Return the seconds after which the server starts again, or None if it does not.

        `status` is the exit status of its process, negative for a signal.
        """
        server = self._servers[name]
        assert server.started_s is not None, f"{name} did not run"
        if now_s - server.started_s >= STABLE_AFTER_S:
            server.delay_s = FIRST_DELAY_S
        server.started_s = None
        if status == 0:
            server.start_at_s = None
            return None
        delay_s = server.delay_s
        server.start_at_s = now_s + delay_s
        server.delay_s = min(2 * delay_s, DELAY_MAX_S)
        return delay_s

    def is_over(self, names: Iterable[str]) -> bool:
        """Return whether none of these servers runs or will start."""
        servers = [self._servers[name] for name in names]
        return all(server.started_s is None and server.start_at_s is None for server in servers)

    def stop(self) -> Iterator[str]:
        """Return the running servers in the order of their stop, the last started first; none starts from now on."""
        for server in self._servers.values():
            server.start_at_s = None
        for name, server in reversed(self._servers.items()):
            if server.started_s is not None:
                yield name
