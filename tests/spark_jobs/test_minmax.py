"""Ranges and averages of the stocks' prices equal a plain computation, across a restart."""

import json

import pytest

from spark_jobs.minmax import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values
from tests.spark_jobs.plain_results import plain_ranges, yearly_prices

pytestmark = pytest.mark.spark


def test_ranges_of_each_symbol_and_year_equal_a_plain_computation(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("prices", 1), topics.create("ranges", 1)
    prices = yearly_prices()
    flags = ["--input", source, "--output", target, "--period", "year", "--average-of", "5"]
    for part in (prices[:250], prices[250:]):
        topics.send(source, [Sent(json.dumps(row).encode(), timestamp_ms=int(str(row["time"]))) for row in part])
        job_runner.run(JOB, *flags)
    expected = plain_ranges(prices)
    found = {str(key): json.loads(str(value)) for key, value in last_values(topics.read(target)).items()}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert (row["min"], row["max"]) == expected[key][:2]
        assert row["average_of_last"] == pytest.approx(expected[key].average, abs=1e-9)
    assert min(row["min"] for row in found.values() if row["symbol"] == "IBM") == 53.01


def test_only_the_newest_periods_stay_in_the_state(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("prices", 1), topics.create("ranges", 1)
    day_ms = 86_400_000
    prices = [(1, 5.0), (2, 6.0), (3, 7.0), (1, 9.0), (3, 1.0)]
    topics.send(
        source,
        [
            Sent(json.dumps({"symbol": "X", "price": price}).encode(), timestamp_ms=day * day_ms)
            for day, price in prices
        ],
    )
    flags = ["--input", source, "--output", target, "--keep", "2", "--max-offsets-per-trigger", "3"]
    batches = job_runner.run(JOB, *flags)
    assert len([batch for batch in batches if batch.records]) == 2
    found = {str(key): json.loads(str(value)) for key, value in last_values(topics.read(target)).items()}
    assert [(row["period"], row["min"], row["max"]) for row in found.values()] == [
        ("1970-01-02", 9.0, 9.0),
        ("1970-01-03", 6.0, 6.0),
        ("1970-01-04", 1.0, 7.0),
    ]
