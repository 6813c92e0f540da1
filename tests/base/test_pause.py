"""Pauses: what never pauses runs in one step, and loops pause after each item."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from base.pause import each, never, through, whole
from tests.storage.builders import pause, steps_of


async def collected(items: list[int]) -> list[int]:
    return [item async for item in through(items, pause)]


@pytest.mark.parametrize("work", [lambda: each([1, 2, 3], lambda one: one, pause), lambda: collected([1, 2, 3])])
def test_loop_pauses_after_each_item(work: Any) -> None:
    coroutine: Coroutine[Any, Any, list[int]] = work()
    steps = steps_of(coroutine)
    assert [next(steps) for _ in range(3)] == [None] * 3
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == [1, 2, 3]


def test_work_that_never_pauses_is_done_in_one_step() -> None:
    assert whole(each(range(100_000), lambda one: one, never)) == list(range(100_000))


def test_work_that_waits_is_not_whole() -> None:
    with pytest.raises(AssertionError, match="waits"):
        whole(each([1], lambda one: one, pause))
