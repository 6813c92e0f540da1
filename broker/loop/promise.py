"""A value that comes later and is handed on in the very moment in which it is there.

Owns: that moment. Must not know what the value means.

It is used like asyncio's future where a handler's answer is concerned. That one calls back a turn of the event loop
later, and a task that awaits it another turn: between a record and the consumer that waits for it, both cost more than
everything else that there is to do.

Invariant: once it has handed on a failure, it keeps it without its traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar, cast

from protocol.errors import without_frames

T = TypeVar("T")


class Promise(Generic[T]):
    """What a future of asyncio is to one who waits, without a loop: one callback, called at once."""

    __slots__ = ("_callback", "_error", "_is_cancelled", "_is_done", "_on_cancel", "_value")

    def __init__(self) -> None:
        self._on_cancel: Callable[[], object] | None = None
        self._callback: Callable[[Promise[T]], None] | None = None
        self._is_done = False
        self._is_cancelled = False
        self._error: Exception | None = None
        self._value: T | None = None

    def done(self) -> bool:
        """Whether there is an outcome, or none will be waited for."""
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> Exception | None:
        """What it failed with."""
        return self._error

    def result(self) -> T:
        """The value of one that is done. Raises what it failed with."""
        error = self._error
        if error is not None:
            self._error = without_frames(error)
            try:
                raise error
            finally:
                del error  # which would hold this frame, and this frame it
        return self._value  # type: ignore[return-value]

    def add_done_callback(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call back when it is done, or now if it is. There is one who waits."""
        self._callback = callback
        if self._is_done:
            self._call_back()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Tell `callback`, and nobody else any more, if nobody waits any more."""
        if not self._is_done:
            self._on_cancel = callback

    def follow(self, other: Awaited[T]) -> None:
        """Become what `other` becomes."""
        self.on_cancel(other.cancel)
        other.add_done_callback(self._take_over)

    def set_result(self, value: T) -> None:
        """Hand on the value. Nothing happens once it is done."""
        self._value = value if not self._is_done else self._value
        self._finish()

    def set_exception(self, error: Exception) -> None:
        """Hand on a failure. Nothing happens once it is done."""
        self._error = error if not self._is_done else self._error
        self._finish()

    def cancel(self) -> None:
        """Nobody waits any more."""
        if not self._is_done:
            self._is_done = self._is_cancelled = True
            self._callback = None
            if self._on_cancel is not None:
                self._on_cancel()

    def __await__(self) -> Generator[object, None, T]:
        """For those who are in a task and in no hurry."""
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

    def _take_over(self, other: Awaited[T]) -> None:
        if other.cancelled():
            # If this promise was cancelled, it is done and nothing happens; else those who wait must not wait for ever.
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
"""What has its value later."""
