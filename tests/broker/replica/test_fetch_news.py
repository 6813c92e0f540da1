"""Watches of partitions: each ends with the next event, and thousands are told in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker.replica.fetch_news import TOLD_TOGETHER_MAX, FetchNews


class Postponed:
    """What is to be called back later."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def __len__(self) -> int:
        return len(self._callbacks)

    def call_one(self) -> None:
        self._callbacks.pop(0)()


@dataclass(eq=False)
class CountingWatcher:
    """Counts the events that it is told of; `then` is called at each."""

    told_count: int = 0
    then: Callable[[], object] = field(default=lambda: None)

    def has_news(self) -> None:
        self.told_count += 1
        self.then()


@pytest.fixture
def postponed() -> Postponed:
    return Postponed()


@pytest.fixture
def news(postponed: Postponed) -> FetchNews:
    return FetchNews(postponed)


def test_a_watcher_is_told_of_the_next_event_only(news: FetchNews) -> None:
    watcher, other = CountingWatcher(), CountingWatcher()
    news.watch("a", watcher)
    news.watch("a", watcher)
    news.watch("b", other)
    news.tell("a")
    news.tell("a")
    assert (watcher.told_count, other.told_count) == (1, 0)
    assert list(news.watched) == ["b"]


def test_a_watcher_that_left_is_not_told(news: FetchNews) -> None:
    watcher, other = CountingWatcher(), CountingWatcher()
    news.watch("a", watcher)
    news.watch("a", other)
    news.unwatch("a", watcher)
    news.unwatch("a", watcher)
    news.unwatch("b", watcher)
    news.tell("a")
    assert (watcher.told_count, other.told_count) == (0, 1)
    news.watch("a", watcher)
    news.unwatch("a", watcher)
    assert not news.watched, "nothing is kept of a partition without watchers"


def test_a_watcher_that_watches_again_while_it_is_told_is_told_of_the_event_after(news: FetchNews) -> None:
    watcher = CountingWatcher()
    watcher.then = lambda: news.watch("a", watcher)
    news.watch("a", watcher)
    for count in (1, 2, 3):
        news.tell("a")
        assert watcher.told_count == count


def test_a_watcher_that_leaves_while_the_event_is_told_breaks_nothing(news: FetchNews) -> None:
    watchers = [CountingWatcher() for _ in range(3)]

    def all_leave() -> None:
        for watcher in watchers:
            news.unwatch("a", watcher)

    for watcher in watchers:
        watcher.then = all_leave
        news.watch("a", watcher)
    news.tell("a")
    assert watchers[0].told_count == 1
    assert not news.watched


@pytest.mark.parametrize("count", [1, TOLD_TOGETHER_MAX, TOLD_TOGETHER_MAX + 1, 5000])
def test_thousands_of_watchers_are_told_in_parts(news: FetchNews, postponed: Postponed, count: int) -> None:
    watchers = [CountingWatcher() for _ in range(count)]
    for watcher in watchers:
        news.watch("a", watcher)
    news.tell("a")
    told = min(count, TOLD_TOGETHER_MAX)
    assert sum(watcher.told_count for watcher in watchers) == told
    while told < count:
        assert len(postponed) == 1
        postponed.call_one()
        told = min(count, told + TOLD_TOGETHER_MAX)
        assert [watcher.told_count for watcher in watchers] == [1] * told + [0] * (count - told), "in their order"
    assert not len(postponed)
    assert not news.watched


def test_an_event_while_watchers_are_told_in_parts_concerns_those_that_watch_again(
    news: FetchNews, postponed: Postponed
) -> None:
    watchers = [CountingWatcher() for _ in range(2 * TOLD_TOGETHER_MAX)]
    for watcher in watchers:
        news.watch("a", watcher)
    news.tell("a")
    news.watch("a", watchers[0])
    news.tell("a")
    postponed.call_one()
    assert [watcher.told_count for watcher in watchers] == [2] + [1] * (2 * TOLD_TOGETHER_MAX - 1)


@pytest.mark.parametrize("failing", [0, TOLD_TOGETHER_MAX])
def test_a_watcher_that_fails_fails_neither_the_others_nor_the_event(
    news: FetchNews, postponed: Postponed, failing: int
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    watchers = [CountingWatcher() for _ in range(3 * TOLD_TOGETHER_MAX)]
    watchers[failing].then = fail
    for watcher in watchers:
        news.watch("a", watcher)
    news.tell("a")
    while len(postponed):
        postponed.call_one()
    assert [watcher.told_count for watcher in watchers] == [1] * len(watchers)
