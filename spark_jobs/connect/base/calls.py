"""Calls in threads that nobody has to wait for: a connector's code may never return.

The threads of `concurrent.futures` would keep the process alive until their calls return; these do not.

Owns the threads and the results. Must not know what is called.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class CallThread:
    """Makes calls one after the other, in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call; the result has what it returns or raises."""
        done: Future[T] = Future()
        self._calls.put(lambda: settle(done, call))
        return done

    def close(self) -> None:
        """End the thread after the calls so far; returns immediately."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def call_in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Make one call in a thread of its own; the result has what it returns or raises."""
    done: Future[T] = Future()
    threading.Thread(target=settle, args=(done, call), name=name, daemon=True).start()
    return done


def settle(done: Future[Any], call: Callable[[], Any]) -> None:
    """Make a call, unless its result was cancelled, and set the result."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # a connector's code may raise anything
        done.set_exception(error)
    else:
        done.set_result(result)
