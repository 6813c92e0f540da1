"""Sockets that took no more, and who is called when they do.

The event loop does not let the descriptors of its transports be watched, and to have it watch a duplicate costs a dozen
system calls each time. So there is an epoll of its own, which the loop watches like a socket.

Owns who waits for which descriptor. Must not know what is sent.
"""

from __future__ import annotations

import asyncio
import errno
import select
from collections.abc import Callable
from typing import Final

_ONCE: Final = select.EPOLLOUT | select.EPOLLONESHOT
_READY_MAX: Final = 64  # at a time; what is ready beyond them is told in the loop's next turn


class WritableSockets:
    """Those of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._waiting: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._call_back)

    def call_when_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back once, when the socket takes more or is broken. Raises OSError: it cannot be watched.

        The callback must not raise: others, whose turn would not come again, may wait behind it.
        """
        if self._epoll.closed:
            raise OSError(errno.EBADF, "the listener is closed")
        try:
            self._epoll.modify(descriptor, _ONCE)
        except FileNotFoundError:  # the first time, or the descriptor was another socket's then
            self._epoll.register(descriptor, _ONCE)
        self._waiting[descriptor] = callback

    def forget(self, descriptor: int) -> None:
        """Nobody waits for it any more. The kernel forgets it when it is closed."""
        self._waiting.pop(descriptor, None)

    def close(self) -> None:
        """Call nobody back. Harmless the second time."""
        if not self._epoll.closed:
            self._waiting.clear()
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _call_back(self) -> None:
        for descriptor, _ in self._epoll.poll(0, _READY_MAX):
            callback = self._waiting.pop(descriptor, None)
            if callback is not None:
                callback()
