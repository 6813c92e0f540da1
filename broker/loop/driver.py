"""Runs a coroutine without a task: synchronously until it really waits, then whenever what it waits for is done.

Owns: when a coroutine runs, and its end when its requester leaves. Must not know what it does, or time: how long
computation may last is the business of `broker.loop.slices`, whose queue is waited for like everything else.

A coroutine that never waits costs neither a task nor a turn of the event loop. One that waits for a `Promise` continues
inside the call that completes it: so the response to a consumer is written before the one to the producer that it
waited for. A coroutine may also await futures of asyncio; then it continues in the turn in which they call back.

`asyncio.current_task` is not the coroutine's, so that `asyncio.timeout` and `asyncio.wait_for` do not work in it. Code
that uses them runs in a task, which the coroutine awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from broker.loop.promise import Promise
from protocol.errors import KafkaError

logger = logging.getLogger("kafka.server.RequestHandler")

T = TypeVar("T")


class Turn(Promise[None]):
    """A place in the queue of works whose slice is over. Whoever waits for it has something to compute."""

    __slots__ = ()

    @property
    def is_waiting(self) -> bool:
        return False


class Running(Promise[T]):
    """The outcome of a coroutine that waits.

    If it is cancelled, what the coroutine waits for is cancelled as well, and the coroutine ends with CancelledError.
    """

    __slots__ = ("_awaited", "_computed", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._awaited: Promise[Any] | asyncio.Future[Any] | None = None
        """None while the coroutine runs."""
        self._computed: Promise[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the coroutine waits for others, and not for a turn in which it, or what it awaits, computes on."""
        awaited = self._awaited
        return not self._is_done and (awaited.is_waiting if isinstance(awaited, Promise) else awaited is not None)

    def computed(self) -> Promise[None]:
        """Return a promise that is done when the coroutine waits for others or has ended, whatever its outcome."""
        computed: Promise[None] = Promise()
        computed.on_cancel(self.cancel)
        self._computed = computed
        self._report_computed()
        return computed

    def _report_computed(self, _: object = None) -> None:
        """Complete the promise of `computed` if it is done; else ask what the coroutine awaits and what computes."""
        if self._computed is None:
            return
        awaited = self._awaited
        if self._is_done or self.is_waiting:
            self._computed.set_result(None)
        elif isinstance(awaited, Running) and not awaited.done():
            awaited.computed().add_done_callback(self._report_computed)

    def cancel(self, msg: object = None) -> bool:
        """Cancel what the coroutine waits for and end it; see `Promise.cancel`.

        The coroutine gets a CancelledError where it waits. What it then awaits to clean up is still done.
        """
        if not super().cancel(msg):
            return False
        if self._awaited is not None:  # else it ends where it waits next
            self._interrupt()
        return True

    def wait_for(self, awaited: Any) -> None:
        """Continue the coroutine, which has yielded `awaited`, when that is done."""
        if awaited is None:  # a turn of the event loop, as in `asyncio.sleep(0)`
            awaited = Promise()
            asyncio.get_running_loop().call_soon(awaited.set_result, None)
        awaited._asyncio_future_blocking = False
        self._awaited = awaited
        awaited.add_done_callback(self._resume)
        if self._computed is not None:
            self._report_computed()

    def _resume(self, awaited: object) -> None:
        """Run the coroutine until it waits again or ends."""
        if awaited is not self._awaited:
            return  # a future that was cancelled together with the coroutine calls back nevertheless
        self._awaited = None
        is_cancelled = self._is_done
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as ended:
            self.set_result(ended.value)
        except asyncio.CancelledError:
            self.set_cancelled()
        except Exception as error:
            self._failed(error)
        else:
            self.wait_for(awaited)
            if self._is_cancelled and not is_cancelled:
                self._interrupt()
            return
        self._ended()

    def _interrupt(self) -> None:
        """Cancel what the coroutine waits for, and end the coroutine."""
        awaited, self._awaited = self._awaited, None
        assert awaited is not None
        awaited.cancel()
        try:
            awaited = self._coroutine.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            pass
        except Exception as error:
            self._failed(error)
        else:
            self.wait_for(awaited)
            return
        self._ended()

    def _failed(self, error: Exception) -> None:
        if self._is_done:
            logger.error("cancelled work failed unexpectedly", exc_info=error)
        self.set_exception(error)

    def _ended(self) -> None:
        if self._computed is not None:
            self._computed.set_result(None)


def start(coroutine: Coroutine[Any, Any, T]) -> T | Running[T]:
    """Run a coroutine until it ends, and return its result or raise its exception, or until it waits.

    Then it is continued by what it waits for, and this returns a promise of its outcome, whose cancellation ends it. If
    it awaits what was cancelled before, the promise is cancelled.
    """
    running: Running[T]
    try:
        awaited = coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    except asyncio.CancelledError:
        running = Running(coroutine)
        running.set_cancelled()
        return running
    running = Running(coroutine)
    running.wait_for(awaited)
    return running


def going_on(work: Coroutine[Any, Any, T]) -> T | Promise[T]:
    """Start work that completes also if its promise is cancelled. Its outcome is dropped then; defects are logged."""
    running = start(work)
    return GoingOn(running) if isinstance(running, Running) else running


class GoingOn(Promise[T]):
    """The outcome of work that completes also if this promise is cancelled."""

    __slots__ = ("_work",)

    def __init__(self, work: Running[T]) -> None:
        super().__init__()
        self._work = work
        self.follow(work)
        self.on_cancel(lambda: work.add_done_callback(_report_failure))

    @property
    def is_waiting(self) -> bool:
        """Whether the work waits for others."""
        return not self._is_done and self._work.is_waiting

    def computed(self) -> Promise[None]:
        """Return a promise as `Running.computed` does, whose cancellation does not end the work."""
        computed: Promise[None] = Promise()
        self._work.computed().add_done_callback(lambda _: computed.set_result(None))
        return computed


def _report_failure(done: Promise[Any]) -> None:
    error = done.exception()
    if error is not None and not isinstance(error, KafkaError):
        logger.error("work whose requester has left failed unexpectedly", exc_info=error)
