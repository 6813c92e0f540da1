"""A future that calls back synchronously when its value is set.

Owns: the time of the callback. Must not know what the value means.

Handlers and coroutines that `broker.loop.driver` runs wait for it in place of an `asyncio.Future`. An asyncio future
calls back one turn of the event loop later, and a task that awaits it continues another turn later. Between an append
and the waiting consumer, these two turns cost more than all other work.

A task may await a promise as well: asyncio treats it as one of its futures, and the task continues in a later turn.

Invariant: after the callback, the promise holds neither the callback nor the traceback of a failure, which may refer
to a whole request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

from protocol.errors import without_frames

T = TypeVar("T")


class Promise(Generic[T]):
    """A future without an event loop. It has one callback, which is called synchronously."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_error",
        "_is_cancelled",
        "_is_done",
        "_on_cancel",
        "_task_context",
        "_value",
    )

    def __init__(self) -> None:
        self._on_cancel: Callable[[], object] | None = None
        self._callback: Callable[[Any], object] | None = None
        self._task_context: tuple[asyncio.AbstractEventLoop, Context] | None = None
        self._is_done = False
        self._is_cancelled = False
        self._error: Exception | None = None
        self._value: T | None = None
        self._asyncio_future_blocking = False
        """Part of the protocol between futures and tasks: whether a task is about to wait for this one."""

    @property
    def is_waiting(self) -> bool:
        """Whether the outcome depends on others. False if it is known, or only has to be computed."""
        return not self._is_done

    def done(self) -> bool:
        """Return whether the promise has a result or an exception, or is cancelled."""
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> Exception | None:
        """Return the exception that was set, or None."""
        return self._error

    def result(self) -> T:
        """Return the value of a promise that is done, or raise its exception. Raises CancelledError."""
        error = self._error
        if error is not None:
            self._error = without_frames(error)
            try:
                raise error
            finally:
                del error  # breaks the reference cycle between the exception and this frame
        if self._is_cancelled:
            raise asyncio.CancelledError
        return self._value  # type: ignore[return-value]

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `callback` when the promise is done, or now if it is. A second callback replaces the first.

        With a `context`, which tasks have, the callback is called in a later turn of the event loop.
        """
        self._callback = callback
        self._task_context = None if context is None else (asyncio.get_running_loop(), context)
        if self._is_done:
            self._call_back()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the promise is cancelled. A later callback replaces an earlier one."""
        if not self._is_done:
            self._on_cancel = callback

    def follow(self, outcome: T | Promise[T]) -> None:
        """Complete with a value or the outcome of a promise, which is cancelled if this one is."""
        if isinstance(outcome, Promise):
            self.on_cancel(outcome.cancel)
            outcome.add_done_callback(self._copy_outcome)
        else:
            self.set_result(outcome)

    def set_result(self, value: T) -> None:
        """Set the value and call back. Has no effect on a promise that is done."""
        if not self._is_done:
            self._value = value
            self._finish()

    def set_exception(self, error: Exception) -> None:
        """Set an exception and call back. Has no effect on a promise that is done."""
        if not self._is_done:
            self._error = error
            self._finish()

    def set_cancelled(self) -> None:
        """End the promise and call back: what it stands for was cancelled, not the promise by the one that waits."""
        if not self._is_done:
            self._is_cancelled = True
            self._finish()

    def cancel(self, msg: object = None) -> bool:
        """Mark the promise as done without calling back: no code waits for it any more. A task is still resumed.

        Returns False if it is done already. `msg` is part of the protocol between futures and tasks, and is ignored.
        """
        if self._is_done:
            return False
        self._is_done = self._is_cancelled = True
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()
        if self._task_context is None:
            self._callback = None
        else:
            self._call_back()
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Part of the protocol between futures and tasks."""
        return asyncio.get_running_loop()

    @property
    def is_awaited_by_task(self) -> bool:
        """Whether a task waits, which does not continue before a later turn of the event loop."""
        return self._task_context is not None

    def __await__(self) -> Generator[object, None, T]:
        """Wait in a coroutine of `broker.loop.driver`, which continues when the promise is done, or in a task."""
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def _copy_outcome(self, other: Promise[T]) -> None:
        if other.cancelled():
            self.set_cancelled()
        elif (error := other.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(other.result())

    def _finish(self) -> None:
        self._is_done = True
        self._on_cancel = None
        self._call_back()

    def _call_back(self) -> None:
        callback = self._callback
        if callback is None:
            return
        self._callback = None
        if self._task_context is not None:
            loop, context = self._task_context  # the end of a loop cancels its tasks when it no longer runs
            loop.call_soon(callback, self, context=context)
            return
        callback(self)
        if self._error is not None:
            self._error = without_frames(self._error)


def resolved(value: T) -> Promise[T]:
    """Return a promise that has a result."""
    promise: Promise[T] = Promise()
    promise.set_result(value)
    return promise
