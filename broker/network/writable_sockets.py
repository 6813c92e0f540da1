"""Callbacks for full sockets: each is called when its socket is writable again.

The event loop does not watch the descriptors of its transports for other code, and watching a duplicate costs a dozen
system calls each time. So this module has its own epoll descriptor, which the loop watches for readability. Where the
system has no epoll, the loop watches duplicates.

Owns which callback waits for which descriptor. Must not know what is sent.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
from collections.abc import Callable
from typing import Final, Protocol

from base.system_calls import SYSTEM_CALLS

_READY_MAX: Final = 64  # per poll; further ready sockets are reported in the loop's next turn


class WritableSockets(Protocol):
    """The full sockets of one event loop."""

    def call_when_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the socket of `descriptor` is writable or broken.

        The callback must not raise: the callbacks after it in the same poll would never be called.

        Raises:
            OSError: The descriptor cannot be watched.
        """

    def forget(self, descriptor: int) -> None:
        """Drop the callback of `descriptor`."""

    def close(self) -> None:
        """Drop all callbacks and close the descriptors of this object. A second call has no effect."""


def writable_sockets(loop: asyncio.AbstractEventLoop) -> WritableSockets:
    """Return the full sockets of a loop, none yet."""
    return _PolledSockets(loop) if SYSTEM_CALLS.has_epoll else _DuplicatedSockets(loop)


class _PolledSockets:
    """Full sockets in an epoll, from which the kernel removes a descriptor when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._once = select.EPOLLOUT | select.EPOLLONESHOT
        self._waiting: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._call_back)

    def call_when_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        if self._epoll.closed:
            raise _closed()
        try:
            self._epoll.modify(descriptor, self._once)
        except FileNotFoundError:  # not registered yet, or registered for an earlier socket with this number
            self._epoll.register(descriptor, self._once)
        self._waiting[descriptor] = callback

    def forget(self, descriptor: int) -> None:
        self._waiting.pop(descriptor, None)

    def close(self) -> None:
        if not self._epoll.closed:
            self._waiting.clear()
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _call_back(self) -> None:
        for descriptor, _ in self._epoll.poll(0, _READY_MAX):
            callback = self._waiting.pop(descriptor, None)
            if callback is not None:
                callback()


class _DuplicatedSockets:
    """Full sockets of which the loop watches a duplicate each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._duplicates: dict[int, int] = {}
        self._is_closed = False

    def call_when_writable(self, descriptor: int, callback: Callable[[], None]) -> None:
        if self._is_closed:
            raise _closed()
        self.forget(descriptor)
        duplicate = os.dup(descriptor)
        self._duplicates[descriptor] = duplicate
        self._loop.add_writer(duplicate, self._call_back, descriptor, callback)

    def forget(self, descriptor: int) -> None:
        duplicate = self._duplicates.pop(descriptor, None)
        if duplicate is not None:
            self._loop.remove_writer(duplicate)
            os.close(duplicate)

    def close(self) -> None:
        self._is_closed = True
        for descriptor in list(self._duplicates):
            self.forget(descriptor)

    def _call_back(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.forget(descriptor)
        callback()


def _closed() -> OSError:
    return OSError(errno.EBADF, "the listener is closed")
