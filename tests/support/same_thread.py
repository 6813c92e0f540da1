"""An executor without threads: work is done when it is submitted, always in the same order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class SameThread(Executor):
    """Does the work in the thread that submits it. A thread for each start of a log manager costs a test its time."""

    def __init__(self, threads: int, name: str) -> None:
        """Have the parameters of a ThreadPoolExecutor."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
