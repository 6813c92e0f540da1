"""Ratios and targets."""

import pytest

from bench.measures import Better, Measure, Row, Target, absolute, medians, percentile, times

LOWER, HIGHER = Better.LOWER, Better.HIGHER


def row(better: Better, target: Target | None, milena: list[float], kafka: list[float]) -> Row:
    return Row("case", "title", Measure("measure", "MB/s", better, target), {"milena": milena, "kafka-3.9": kafka}, 0.5)


@pytest.mark.parametrize(
    ("better", "target", "milena", "kafka", "met"),
    [
        (LOWER, times(0.5), [40, 50, 900], [100], True),
        (LOWER, times(0.5), [51], [100], False),
        (HIGHER, times(2), [200], [100, 90, 100], True),
        (HIGHER, times(2), [199], [100], False),
        (LOWER, absolute(60), [60], [], True),
        (LOWER, absolute(60), [61], [1], False),
        (LOWER, times(1), [60], [], None),
        (LOWER, absolute(60), [], [10], None),
        (HIGHER, None, [1], [1], None),
    ],
)
def test_targets_are_met_or_missed(
    better: Better, target: Target | None, milena: list[float], kafka: list[float], met: object
) -> None:
    assert row(better, target, milena, kafka).is_met is met


@pytest.mark.parametrize(
    ("better", "milena", "kafka", "advantage"),
    [(LOWER, [50], [100], 2), (HIGHER, [50], [100], 0.5), (LOWER, [], [1], None), (LOWER, [1], [], None)],
)
def test_advantage_is_above_1_if_milena_is_better(
    better: Better, milena: list[float], kafka: list[float], advantage: float | None
) -> None:
    assert row(better, None, milena, kafka).advantage == advantage


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (Measure("p50", "µs", LOWER, times(0.8)), "≤ 0.8 x"),
        (Measure("start", "s", LOWER, absolute(0.5)), "≤ 0.5 s"),
        (Measure("rate", "requests/s", HIGHER, times(2)), "≥ 2 x"),
        (Measure("rate", "requests/s", HIGHER), ""),
    ],
)
def test_target_is_printed_with_its_comparison(measure: Measure, text: str) -> None:
    assert measure.target_text() == text


def test_each_measure_has_the_median_of_its_own_sections() -> None:
    sections = [{"throughput": 900, "CPU": 1.0}, {"throughput": 300, "CPU": 0.9}, {"throughput": 1000, "CPU": 1.5}]
    assert medians(sections) == {"throughput": 900, "CPU": 1.0}
    assert medians(sections[:1]) == sections[0]


def test_percentiles_are_those_of_the_sorted_values() -> None:
    ordered = list(range(1000))
    assert [percentile(ordered, share) for share in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 999]
    assert percentile([7], 0.5) == 7
