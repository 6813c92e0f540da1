"""Lowest and highest price per symbol and day, month or year, and the moving average of the last prices.

Input: `{"symbol": "IBM", "price": 101.5}`. Output: key `symbol|period`, value `{"symbol", "period", "min", "max",
"average_of_last"}`; the average is over the last `--average-of` prices of the symbol, in the order of arrival.

The state of a symbol is its last prices and the ranges of its newest periods, `--keep` of them. A late price of an
older period begins the range of that period anew.

Delivery: I. The last value of a symbol and period is valid.
"""

import argparse
import json
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, positive
from spark_jobs.skeleton.pictures import Picture, Values, time_of
from spark_jobs.skeleton.records import is_finite, read_input, start_dead_letters, timed_rule

PERIODS = {"day": "yyyy-MM-dd", "month": "yyyy-MM", "year": "yyyy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMaxParameters(JobParameters):
    period: str
    average_of: int
    keep: int


def build(spark: SparkSession, parameters: MinMaxParameters) -> list[StreamingQuery]:
    rule = timed_rule(
        parameters, "symbol string, price double", f"body.symbol IS NOT NULL AND {is_finite('body.price')}", "a price"
    )
    ranges = price_ranges(read_input(spark, parameters, rule), parameters)
    return [
        start_topic_query(ranges, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def price_ranges(prices: DataFrame, parameters: MinMaxParameters) -> DataFrame:
    """Return the changed ranges, as key and value."""
    period = f.date_format("time", PERIODS[parameters.period]).alias("period")
    return (
        prices.select("body.symbol", "body.price", period, "partition", "offset")
        .groupBy("symbol")
        .transformWithStateInPandas(
            _Ranges(parameters.average_of, parameters.keep), "key string, value string", "update", "none"
        )
    )


class _Ranges(StatefulProcessor):  # type: ignore[misc]
    """Keeps the ranges of one symbol. Periods are texts that sort by time."""

    def __init__(self, average_of: int, keep: int) -> None:
        self._average_of = average_of
        self._keep = keep

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._ranges = handle.getMapState("ranges", "period string", "low double, high double")
        self._last = handle.getListState("last", "price double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        last = deque((price for (price,) in self._last.get()), self._average_of)
        ranges = {period: (low, high) for (period,), (low, high) in self._stored_ranges()}
        changed = {}
        for row in pd.concat(rows).sort_values(["partition", "offset"]).itertuples():
            price = float(row.price)
            last.append(price)
            low, high = ranges.get(row.period, (price, price))
            ranges[row.period] = min(low, price), max(high, price)
            changed[row.period] = sum(last) / len(last)
        self._last.put([(price,) for price in last])
        self._store(ranges, set(changed))
        values = [self._value(key[0], period, ranges[period], average) for period, average in sorted(changed.items())]
        yield pd.DataFrame(values, columns=["key", "value"])

    def close(self) -> None: ...

    def _stored_ranges(self) -> list[Any]:
        return list(self._ranges.iterator()) if self._ranges.exists() else []

    def _store(self, ranges: dict[str, tuple[float, float]], changed: set[str]) -> None:
        for period in sorted(ranges)[: -self._keep]:
            if self._ranges.containsKey((period,)):
                self._ranges.removeKey((period,))
        for period in sorted(ranges)[-self._keep :]:
            if period in changed:
                self._ranges.updateValue((period,), ranges[period])

    def _value(self, symbol: str, period: str, bounds: tuple[float, float], average: float) -> tuple[str, str]:
        low, high = bounds
        value = {"symbol": symbol, "period": period, "min": low, "max": high, "average_of_last": average}
        return f"{symbol}|{period}", json.dumps(value)


def draw(values: Values) -> Picture:
    bands = defaultdict(list)
    for value in map(json.loads, values.values()):
        bands[value["symbol"]].append((time_of(value["period"]), value["min"], value["max"]))
    return Picture("Range of prices in each period", "price", bands=bands)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--period", choices=PERIODS, default="day", help="what a range is of (default %(default)s)")
    add("--average-of", type=positive, default=10, metavar="N", help="prices of the average (default %(default)s)")
    add("--keep", type=positive, default=31, metavar="N", help="newest periods to keep (default %(default)s)")
    add("--time-field", metavar="NAME", help="JSON field with the event time (default: the record's timestamp)")


JOB = Job(
    name="minmax",
    doc=__doc__,
    parameters=MinMaxParameters,
    build=build,
    input="prices",
    output="price-ranges",
    output_config=COMPACTED,
    add_flags=_add_flags,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
