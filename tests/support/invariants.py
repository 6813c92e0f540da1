"""The invariants that a module states and its `check` tests: reading them, and catching the one that is broken.

Owns the form in which a docstring states them, a list with one sentence each, and the check after every event. Must
not know any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_LIST = re.compile(r"^Invariants, which .*:\n\n?((?:(?:[*-] |  ).*\n?)+)", re.MULTILINE)


def stated(module: ModuleType) -> list[str]:
    """Return the invariants in the docstring of a module, in its order and without their full stops."""
    found = _LIST.search(module.__doc__ or "")
    assert found is not None, f"{module.__name__} states no invariants"
    return [" ".join(item.split()).removesuffix(".") for item in re.split(r"^[*-] ", found[1], flags=re.MULTILINE)[1:]]


def broken(check: Callable[[], None]) -> str | None:
    """Return the invariant that does not hold, None if all hold."""
    try:
        check()
    except AssertionError as error:
        return str(error)
    return None


def check_after(monkeypatch: pytest.MonkeyPatch, machine: type[Any], *events: str) -> None:
    """Call `check` of each `machine` after each of its `events`, which are names of methods, also if they raise."""
    for name in events:
        monkeypatch.setattr(machine, name, _checked(getattr(machine, name)))


def _checked(event: Callable[..., T]) -> Callable[..., T]:
    @wraps(event)
    def perform(machine: Any, *args: Any, **kwargs: Any) -> T:
        try:
            return event(machine, *args, **kwargs)
        finally:
            machine.check()

    return perform
