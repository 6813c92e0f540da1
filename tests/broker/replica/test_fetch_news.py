"""Watches of partitions: each ends with the next event, and thousands of waiting fetches are woken in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker.replica.fetch_news import WOKEN_TOGETHER_MAX, FetchNews


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
    """Counts its notifications and how often its fetch is woken; each calls `then`."""

    told_count: int = 0
    woken_count: int = 0
    is_waiting: bool = True
    then: Callable[[], object] = field(default=lambda: None)

    def note_event(self) -> bool:
        self.told_count += 1
        return self.is_waiting

    def wake(self) -> None:
        self.woken_count += 1
        self.then()


@pytest.fixture
def postponed() -> Postponed:
    return Postponed()


@pytest.fixture
def news(postponed: Postponed) -> FetchNews:
    return FetchNews(postponed)


def test_watcher_is_notified_of_the_next_event_only(news: FetchNews) -> None:
    watcher, other = CountingWatcher(), CountingWatcher()
    news.watch("a", watcher)
    news.watch("a", watcher)
    news.watch("b", other)
    news.notify("a")
    news.notify("a")
    assert (watcher.told_count, other.told_count) == (1, 0)
    assert list(news.watched) == ["b"]


def test_removed_watcher_is_not_notified(news: FetchNews) -> None:
    watcher, other = CountingWatcher(), CountingWatcher()
    news.watch("a", watcher)
    news.watch("a", other)
    news.unwatch("a", watcher)
    news.unwatch("a", watcher)
    news.unwatch("b", watcher)
    news.notify("a")
    assert (watcher.told_count, other.told_count) == (0, 1)
    news.watch("a", watcher)
    news.unwatch("a", watcher)
    assert not news.watched, "nothing is kept of a partition without watchers"


def test_watcher_added_during_an_event_is_notified_of_the_next_one(news: FetchNews) -> None:
    watcher = CountingWatcher()
    watcher.then = lambda: news.watch("a", watcher)
    news.watch("a", watcher)
    for count in (1, 2, 3):
        news.notify("a")
        assert watcher.told_count == count


def test_watcher_can_be_removed_during_an_event(news: FetchNews) -> None:
    watchers = [CountingWatcher() for _ in range(3)]

    def all_leave() -> None:
        for watcher in watchers:
            news.unwatch("a", watcher)

    for watcher in watchers:
        watcher.then = all_leave
        news.watch("a", watcher)
    news.notify("a")
    assert [watcher.told_count for watcher in watchers] == [1] * 3
    assert not news.watched


def test_only_waiting_fetches_are_woken(news: FetchNews) -> None:
    waiting, idle = CountingWatcher(), CountingWatcher(is_waiting=False)
    for watcher in (waiting, idle):
        news.watch("a", watcher)
    news.notify("a")
    assert [(watcher.told_count, watcher.woken_count) for watcher in (waiting, idle)] == [(1, 1), (1, 0)]


@pytest.mark.parametrize("count", [1, WOKEN_TOGETHER_MAX, WOKEN_TOGETHER_MAX + 1, 5000])
def test_all_watchers_are_notified_at_once_and_woken_in_parts(
    news: FetchNews, postponed: Postponed, count: int
) -> None:
    watchers = [CountingWatcher() for _ in range(count)]
    for watcher in watchers:
        news.watch("a", watcher)
    news.notify("a")
    assert [watcher.told_count for watcher in watchers] == [1] * count
    woken = min(count, WOKEN_TOGETHER_MAX)
    assert sum(watcher.woken_count for watcher in watchers) == woken
    while woken < count:
        assert len(postponed) == 1
        postponed.call_one()
        woken = min(count, woken + WOKEN_TOGETHER_MAX)
        assert [watcher.woken_count for watcher in watchers] == [1] * woken + [0] * (count - woken), "in their order"
    assert not len(postponed)
    assert not news.watched


@pytest.mark.parametrize("failing", [0, WOKEN_TOGETHER_MAX])
def test_failed_watcher_does_not_stop_the_others(news: FetchNews, postponed: Postponed, failing: int) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    watchers = [CountingWatcher() for _ in range(3 * WOKEN_TOGETHER_MAX)]
    watchers[failing].then = fail
    for watcher in watchers:
        news.watch("a", watcher)
    news.notify("a")
    while len(postponed):
        postponed.call_one()
    assert [watcher.woken_count for watcher in watchers] == [1] * len(watchers)
