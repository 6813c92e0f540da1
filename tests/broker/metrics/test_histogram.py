"""What a histogram remembers, and what it forgets."""

import random

import pytest

from broker.loop.reservoir import SAMPLE_SIZE
from broker.metrics.histogram import Histogram, distribution


def test_histogram_without_values_is_all_zero() -> None:
    distribution = Histogram(random.Random(1).random).distribution()
    assert (distribution.count, distribution.total) == (0, 0.0)
    assert set(distribution.quantiles.values()) == {0.0}


def test_quantiles_of_a_few_values_are_exact() -> None:
    histogram = Histogram(random.Random(1).random)
    for value in random.Random(2).sample(range(1, 1000), 999):
        histogram.update(value, now_s=0)
    distribution = histogram.distribution()
    assert (distribution.count, distribution.total) == (999, 499_500)
    expected = {"0.50": 500, "0.75": 750, "0.95": 950, "0.98": 980, "0.99": 990, "0.999": 999}
    assert distribution.quantiles == pytest.approx(expected)


def test_one_value_is_every_quantile() -> None:
    histogram = Histogram(random.Random(1).random)
    histogram.update(7.5, now_s=1_000_000)
    assert set(histogram.distribution().quantiles.values()) == {7.5}


def test_a_sample_stands_for_many_values() -> None:
    histogram = Histogram(random.Random(1).random)
    for value in range(100_000):
        histogram.update(value, now_s=0)
    distribution = histogram.distribution()
    assert distribution.count == 100_000
    assert distribution.quantiles["0.50"] == pytest.approx(50_000, rel=0.1)
    assert distribution.quantiles["0.99"] == pytest.approx(99_000, rel=0.01)


def test_old_values_fade_and_totals_stay() -> None:
    histogram = Histogram(random.Random(1).random)
    for _ in range(SAMPLE_SIZE):
        histogram.update(1.0, now_s=0)
    for _ in range(SAMPLE_SIZE):
        histogram.update(9.0, now_s=600)
    distribution = histogram.distribution()
    assert distribution.quantiles["0.50"] == 9.0
    assert distribution.count == 2 * SAMPLE_SIZE
    assert distribution.total == 10.0 * SAMPLE_SIZE


def test_the_age_of_the_process_does_not_matter() -> None:
    histogram = Histogram(random.Random(1).random)
    histogram.update(1.0, now_s=10 * 365 * 86_400)
    assert histogram.distribution().quantiles["0.50"] == 1.0


def test_quantile_between_two_values_is_interpolated() -> None:
    quantiles = distribution(2, 14.0, [10.0, 4.0]).quantiles
    # Kafka's place of the median of two values is 0.5 x 3: half of the way from the first to the second.
    assert quantiles["0.50"] == 7.0
    assert distribution(4, 0.0, [0.0, 10.0, 20.0, 40.0]).quantiles["0.75"] == 35.0
