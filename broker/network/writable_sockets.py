"""Callbacks for full sockets: each is called when its socket is writable again.

The event loop does not watch the descriptors of its transports for other code, and watching a duplicate costs a dozen
system calls each time. So this module has its own epoll descriptor, which the loop watches for readability.

Owns which callback waits for which descriptor. Must not know what is sent.
"""

from __future__ import annotations

import asyncio
import errno
import select
from collections.abc import Callable
from typing import Final

_ONCE: Final = select.EPOLLOUT | select.EPOLLONESHOT
_READY_MAX: Final = 64  # per poll; further ready sockets are reported in the loop's next turn


class WritableSockets:
    """The full sockets of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._waiting: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._call_back)

    def call_when_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the socket of `descriptor` is writable or broken.

        The callback must not raise: the callbacks after it in the same poll would never be called.

        Raises:
            OSError: The descriptor cannot be watched.
        """
        if self._epoll.closed:
            raise OSError(errno.EBADF, "the listener is closed")
        try:
            self._epoll.modify(descriptor, _ONCE)
        except FileNotFoundError:  # not registered yet, or registered for an earlier socket with this number
            self._epoll.register(descriptor, _ONCE)
        self._waiting[descriptor] = callback

    def forget(self, descriptor: int) -> None:
        """Drop the callback of `descriptor`. The kernel removes the descriptor from the epoll when it is closed."""
        self._waiting.pop(descriptor, None)

    def close(self) -> None:
        """Drop all callbacks and close the epoll descriptor. A second call has no effect."""
        if not self._epoll.closed:
            self._waiting.clear()
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _call_back(self) -> None:
        for descriptor, _ in self._epoll.poll(0, _READY_MAX):
            callback = self._waiting.pop(descriptor, None)
            if callback is not None:
                callback()
