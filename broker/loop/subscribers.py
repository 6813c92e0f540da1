"""Functions that are called at each event of one kind, for parts that do not know each other.

The part in which the events happen receives the object when it is built; parts that are built later subscribe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Subscribers(Generic[P]):
    """Those that follow one kind of event. An event that nobody follows has no effect."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def subscribe(self, function: Callable[P, object]) -> None:
        """Call `function` at each event from now on, after those that subscribed earlier."""
        self._functions.append(function)

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Report one event to all subscribers."""
        for function in self._functions:
            function(*args, **kwargs)
