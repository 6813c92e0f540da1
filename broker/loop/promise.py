"""A future that calls back synchronously when its value is set.

Owns: the time of the callback. Must not know what the value means.

Handlers return it in place of an `asyncio.Future`. An asyncio future calls back one turn of the event loop later, and a
task that awaits it continues another turn later. Between an append and the waiting consumer, these two turns cost more
than all other work.

Invariant: after the callback, a failure is kept without its traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeVar, cast

from protocol.errors import without_frames

T = TypeVar("T")


class Promise(Generic[T]):
    """A future without an event loop. It has one callback, which is called synchronously."""

    __slots__ = ("_callback", "_error", "_is_cancelled", "_is_done", "_on_cancel", "_value")

    def __init__(self) -> None:
        self._on_cancel: Callable[[], object] | None = None
        self._callback: Callable[[Promise[T]], None] | None = None
        self._is_done = False
        self._is_cancelled = False
        self._error: Exception | None = None
        self._value: T | None = None

    def done(self) -> bool:
        """Return whether the promise has a result or an exception, or is cancelled."""
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> Exception | None:
        """Return the exception that was set, or None."""
        return self._error

    def result(self) -> T:
        """Return the value of a promise that is done, or raise its exception."""
        error = self._error
        if error is not None:
            self._error = without_frames(error)
            try:
                raise error
            finally:
                del error  # breaks the reference cycle between the exception and this frame
        return self._value  # type: ignore[return-value]

    def add_done_callback(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call `callback` when the promise is done, or now if it is. A second callback replaces the first."""
        self._callback = callback
        if self._is_done:
            self._call_back()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the promise is cancelled. A later callback replaces an earlier one."""
        if not self._is_done:
            self._on_cancel = callback

    def follow(self, other: Awaited[T]) -> None:
        """Complete with the outcome of `other`, and cancel `other` if this promise is cancelled."""
        self.on_cancel(other.cancel)
        other.add_done_callback(self._copy_outcome)

    def set_result(self, value: T) -> None:
        """Set the value and call back. Has no effect on a promise that is done."""
        self._value = value if not self._is_done else self._value
        self._finish()

    def set_exception(self, error: Exception) -> None:
        """Set an exception and call back. Has no effect on a promise that is done."""
        self._error = error if not self._is_done else self._error
        self._finish()

    def cancel(self) -> None:
        """Mark the promise as done without calling back: no code waits for it any more."""
        if not self._is_done:
            self._is_done = self._is_cancelled = True
            self._callback = None
            if self._on_cancel is not None:
                self._on_cancel()

    def __await__(self) -> Generator[object, None, T]:
        """Support `await` in a task, which continues one turn of the event loop later."""
        if not self._is_done:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failure: list[Exception] = []

            def wake(promise: Promise[T]) -> None:
                if promise._error is not None:
                    failure.append(promise._error)
                if not waiting.done():
                    waiting.set_result(None)

            self.add_done_callback(wake)
            try:
                yield from waiting
            except asyncio.CancelledError:
                self.cancel()
                raise
            if failure:
                raise failure.pop()
        return self.result()

    def _copy_outcome(self, other: Awaited[T]) -> None:
        if other.cancelled():
            # If this promise was cancelled itself, this has no effect; otherwise the callback must not wait forever.
            self.set_exception(RuntimeError("the work was cancelled"))
        elif (error := other.exception()) is not None:
            self.set_exception(cast(Exception, error))
        else:
            self.set_result(other.result())

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._on_cancel = None
            self._call_back()

    def _call_back(self) -> None:
        if self._callback is not None:
            self._callback(self)
            if self._error is not None:
                self._error = without_frames(self._error)


Awaited = asyncio.Future[T] | Promise[T]
"""A future or a promise."""


def going_on(work: Awaitable[T]) -> asyncio.Future[T]:
    """Return a future of `work` that may be cancelled: the work goes on, and its failure is dropped."""
    running = asyncio.ensure_future(work)
    # A shield that was cancelled no longer looks at what it shields, and asyncio logs failures that nobody looks at.
    running.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return asyncio.shield(running)
