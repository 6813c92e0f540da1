"""The invariants that a module states and its `check` tests: reading them, and catching the one that is broken.

Owns the form in which a docstring states them: a list with one sentence each. Must not know any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

_LIST = re.compile(r"^Invariants, which .*:\n((?:(?:[*-] |  ).*\n?)+)", re.MULTILINE)


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
