"""The histories of the console: what they keep, in which steps, and what they forget."""

from __future__ import annotations

import pytest

from base.pause import never, whole
from broker.console import rates
from broker.console.rates import (
    DAY_SAMPLES,
    GROUP_SAMPLES,
    HOUR_SAMPLES,
    NO_HISTORY,
    SAMPLES_PER_OUTLINE,
    Counts,
    GroupHistory,
    Progress,
    RatesHistory,
)

KEY = ("g", "t", 0)


def recorded(history: RatesHistory, topics: dict[str, int], counters: dict[str, int], gauges: dict[str, int]) -> None:
    whole(history.record({name: Counts(count, 0, 0) for name, count in topics.items()}, counters, gauges, 0, never))


def test_an_hour_has_every_sample_and_a_day_sums_and_maxima() -> None:
    history = RatesHistory()
    samples = HOUR_SAMPLES + 3 * SAMPLES_PER_OUTLINE
    for number in range(samples):
        recorded(history, {}, {"messages_in": 5 * number}, {"latency": number})
    count, latency = history.figures["messages_in"], history.figures["latency"]
    assert count.hour(history.index) == [5] * HOUR_SAMPLES
    assert latency.hour(history.index) == list(range(samples - HOUR_SAMPLES, samples))
    assert count.day(history.index)[-2:] == [5 * SAMPLES_PER_OUTLINE] * 2
    assert latency.day(history.index)[-1] == samples - 1
    outlines = samples // SAMPLES_PER_OUTLINE
    assert count.day(history.index)[: DAY_SAMPLES - outlines] == [None] * (DAY_SAMPLES - outlines)
    assert count.last(history.index) == 5


def test_the_first_sample_of_a_counter_is_no_rate() -> None:
    history = RatesHistory()
    recorded(history, {"old": 1_000}, {"messages_in": 1_000}, {})
    assert history.rate_of("old") == (0, 0, 0)
    recorded(history, {"old": 1_100, "new": 50}, {"messages_in": 1_150}, {})
    assert history.figures["messages_in"].hour(history.index)[-2:] == [0, 150]
    assert (history.rate_of("old")[0], history.rate_of("new")[0]) == (10, 5)
    recorded(history, {"old": 7}, {"messages_in": 1_150}, {})
    assert history.rate_of("old") == (0, 0, 0), "the topic was deleted and created again"
    assert history.topic("new") is None


def test_the_least_active_topic_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "TOPICS_MAX", 2)
    history = RatesHistory()
    recorded(history, {}, {}, {})
    recorded(history, {"a": 1}, {}, {})
    recorded(history, {"a": 1, "b": 1}, {}, {})
    recorded(history, {"a": 2, "b": 1, "c": 1}, {}, {})
    assert [history.topic(name) is not None for name in "abc"] == [True, False, True]


def test_a_group_has_lags_and_rates_of_the_last_hour() -> None:
    history = GroupHistory()
    for minute in range(GROUP_SAMPLES + 5):
        history.record({KEY: Progress(minute, 60 * minute)}, minute)
    found = history.of(*KEY)
    assert found.lags == list(range(5, GROUP_SAMPLES + 5))
    assert found.rates == [None] + [1.0] * (GROUP_SAMPLES - 1)
    history.record({KEY: Progress(9, 0)}, 0)
    found = history.of(*KEY)
    assert found.rates[-1] == 0, "the offsets were reset"
    assert history.of("other", "t", 0) == NO_HISTORY
    history.record({}, 0)
    assert history.of(*KEY) == NO_HISTORY
    history.record({KEY: Progress(1, 1)}, 0)
    found = history.of(*KEY)
    assert [each for each in found.lags if each is not None] == [1], "the time without offsets has no samples"


def test_partitions_above_the_limit_have_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "GROUP_PARTITIONS_MAX", 1)
    history = GroupHistory()
    for _ in range(2):
        history.record({KEY: Progress(1, 1), ("g", "t", 1): Progress(1, 1)}, 0)
    assert [each for each in range(2) if history.of("g", "t", each) != NO_HISTORY] == [0]
