"""Growth per second of partitions that other brokers lead, by samples of their end offsets."""

from __future__ import annotations

import pytest

from broker.console import offset_growth
from broker.console.offset_growth import INTERVAL_MS, VALID_MS, OffsetGrowth

START_MS = 1_000_000


def test_growth_is_that_between_the_last_two_samples() -> None:
    growth = OffsetGrowth()
    growth.record({"t": {0: 100, 2: 50}}, START_MS)
    assert growth.per_second("t", START_MS) is None
    growth.record({"t": {0: 160, 2: 90}}, START_MS + 10_000)
    assert growth.per_second("t", START_MS + 10_000) == 10.0
    growth.record({"t": {0: 160, 2: 95}}, START_MS + 20_000)
    assert growth.per_second("t", START_MS + 20_000) == 0.5
    assert growth.per_second("other", START_MS + 20_000) is None


def test_samples_within_the_interval_are_ignored() -> None:
    growth = OffsetGrowth()
    growth.record({"t": {0: 0}}, START_MS)
    growth.record({"t": {0: 1_000}}, START_MS + INTERVAL_MS - 1)
    assert growth.per_second("t", START_MS + INTERVAL_MS - 1) is None
    growth.record({"t": {0: 2_000}, "u": {0: 7}}, START_MS + INTERVAL_MS)
    assert growth.per_second("t", START_MS + INTERVAL_MS) == 2_000 * 1000 / INTERVAL_MS
    assert growth.per_second("u", START_MS + INTERVAL_MS) is None


def test_old_samples_give_no_rate() -> None:
    growth = OffsetGrowth()
    growth.record({"t": {0: 0}}, START_MS)
    growth.record({"t": {0: 100}}, START_MS + 10_000)
    assert growth.per_second("t", START_MS + 10_000 + VALID_MS - 1) == 10.0
    assert growth.per_second("t", START_MS + 10_000 + VALID_MS) is None
    growth.record({"t": {0: 1_000}}, START_MS + 10_000 + VALID_MS)
    assert growth.per_second("t", START_MS + 10_000 + VALID_MS) is None, "the sample before is too old"
    growth.record({"t": {0: 1_010}}, START_MS + 20_000 + VALID_MS)
    assert growth.per_second("t", START_MS + 20_000 + VALID_MS) == 1.0


def test_partitions_that_change_their_leader_give_no_rate_until_the_next_sample() -> None:
    growth = OffsetGrowth()
    growth.record({"t": {0: 10}}, START_MS)
    growth.record({"t": {0: 20, 1: 5_000}}, START_MS + 10_000)
    assert growth.per_second("t", START_MS + 10_000) is None
    growth.record({"t": {0: 30, 1: 5_020}}, START_MS + 20_000)
    assert growth.per_second("t", START_MS + 20_000) == 3.0


def test_an_end_offset_that_fell_counts_as_no_growth() -> None:
    growth = OffsetGrowth()
    growth.record({"t": {0: 500, 1: 10}}, START_MS)
    growth.record({"t": {0: 3, 1: 30}}, START_MS + 10_000)
    assert growth.per_second("t", START_MS + 10_000) == 2.0


def test_topics_that_were_sampled_least_recently_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_growth, "PARTITIONS_MAX", 4)
    growth = OffsetGrowth()
    growth.record({"a": {0: 0, 1: 0}, "b": {0: 0, 1: 0}}, START_MS)
    growth.record({"a": {0: 10, 1: 0}}, START_MS + 10_000)
    growth.record({"c": {0: 0}}, START_MS + 10_000)
    growth.record({"a": {0: 20, 1: 0}, "b": {0: 20, 1: 0}, "c": {0: 20}}, START_MS + 20_000)
    rates = {name: growth.per_second(name, START_MS + 20_000) for name in "abc"}
    assert rates == {"a": None, "b": None, "c": 2.0}, "b was forgotten for c, and a for b"
