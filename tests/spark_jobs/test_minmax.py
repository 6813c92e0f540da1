"""Ranges and averages of the stocks' prices equal a plain computation, across a restart."""

import json
from collections import defaultdict, deque
from datetime import UTC, datetime

import pytest

from spark_jobs.minmax import JOB
from spark_jobs.samples import stock_prices
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values

pytestmark = pytest.mark.spark


def test_ranges_of_each_stock_and_year_equal_a_plain_computation(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("prices", 1), topics.create("ranges", 1)
    prices = list(stock_prices())
    flags = ["--input", source, "--output", target, "--period", "year", "--average-of", "5"]
    for part in (prices[:250], prices[250:]):
        topics.send(source, [Sent(json.dumps(row).encode(), timestamp_ms=int(str(row["time"]))) for row in part])
        job_runner.run(JOB, *flags)
    ranges: dict[str, list[float]] = defaultdict(list)
    last: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=5))
    averages = {}
    for row in prices:
        symbol, price = str(row["symbol"]), float(str(row["price"]))
        key = f"{symbol}|{datetime.fromtimestamp(int(str(row['time'])) / 1000, UTC).year}"
        ranges[key].append(price)
        last[symbol].append(price)
        averages[key] = sum(last[symbol]) / len(last[symbol])
    found = {str(key): json.loads(str(value)) for key, value in last_values(topics.read(target)).items()}
    assert found.keys() == ranges.keys()
    for key, row in found.items():
        assert (row["min"], row["max"]) == (min(ranges[key]), max(ranges[key]))
        assert row["average_of_last"] == pytest.approx(averages[key], abs=1e-9)
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
