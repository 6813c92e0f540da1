"""Makes a failing run smaller: leaves out faults and clients as long as it fails in the same way.

Owns the search. Must not know what a run is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
RUNS_MAX = 60


def shrunk(
    faults: Sequence[T], clients: Sequence[str], fails: Callable[[Sequence[T], Sequence[str]], bool]
) -> tuple[list[T], list[str]]:
    """Return fewer faults and clients with which `fails` still holds; it holds for all of them."""
    left = RUNS_MAX
    kept_faults, kept_clients = list(faults), list(clients)
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for number in reversed(range(len(kept_faults))):
            fewer = kept_faults[:number] + kept_faults[number + 1 :]
            left -= 1
            if left >= 0 and fails(fewer, kept_clients):
                kept_faults, is_smaller = fewer, True
        for name in list(kept_clients):
            rest = [client for client in kept_clients if client != name]
            left -= 1
            if left >= 0 and fails(kept_faults, rest):
                kept_clients, is_smaller = rest, True
    return kept_faults, kept_clients
