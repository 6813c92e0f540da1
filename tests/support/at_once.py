"""Runs stories that mostly wait at the same time, each in a thread: one for each case of a test.

Owns the threads. A module fixture starts the stories, and the test of a case asks for its outcome:

    @pytest.fixture(scope="module")
    def rounds(broker: BrokerProcess) -> Iterator[Outcomes]:
        with at_once(one_round, {version: (broker, version) for version in VERSIONS}) as outcomes:
            yield outcomes

    @pytest.mark.parametrize("version", VERSIONS)
    def test_round(rounds: Outcomes, version: str) -> None:
        rounds[version].result()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

STORIES_AT_ONCE = 8
"""More would take each other's processor time, and run into their deadlines."""

Outcomes = Mapping[str, Future[None]]
"""Of each case; `result()` waits for the end of its story, and raises what that has raised."""


@contextmanager
def at_once(story: Callable[..., None], cases: Mapping[str, Sequence[Any]]) -> Iterator[Outcomes]:
    """Start a story with the arguments of each case, a few at a time; at the end of the block, all have ended."""
    with ThreadPoolExecutor(STORIES_AT_ONCE) as threads:
        yield {case: threads.submit(story, *arguments) for case, arguments in cases.items()}
