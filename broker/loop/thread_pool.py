"""A pool of threads whose size changes while it is used.

Owns: which threads run new work. Must not know what runs in them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool(Executor):
    """An executor of `size` threads. Only the thread of the event loop may call `submit` and `resize`."""

    def __init__(self, size: int, name: str, new_threads: Callable[[int, str], Executor]) -> None:
        """`new_threads(size, name)` returns an executor of that many threads."""
        self._new_threads = new_threads
        self._name = name
        self._size = size
        self._current = new_threads(size, name)
        self._replaced: list[Executor] = []

    def resize(self, size: int) -> None:
        """Run work submitted from now on in `size` threads; the old threads finish the work submitted before."""
        if size == self._size:
            return
        self._current.shutdown(wait=False)
        self._replaced.append(self._current)
        self._size, self._current = size, self._new_threads(size, self._name)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._current.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work; with `wait`, return when all submitted work is done."""
        for threads in (*self._replaced, self._current):
            threads.shutdown(wait, cancel_futures=cancel_futures)
