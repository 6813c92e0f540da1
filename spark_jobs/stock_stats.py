"""Lowest ask, number of asks and average price per stock in sliding windows.

Input: `{"type": "ASK", "ticker": "IBM", "price": 101.5, "size": 100}`; bids are ignored. Output: key `ticker|start of
the window`, value `{"ticker", "window", "min_price", "trades", "average_price"}`. With a window of 5 seconds that
slides by one, each trade counts in five windows. A trade that arrives late, but within the watermark, updates its
windows.

Delivery: I. A repeated batch writes the same windows again; the last value of a window is valid.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, interval
from spark_jobs.skeleton.pictures import Picture, Values, time_of
from spark_jobs.skeleton.records import is_finite, read_input, start_dead_letters, timed_rule

_TRADE = "type string, ticker string, price double, size bigint"
_IS_TRADE = f"body.ticker IS NOT NULL AND body.price > 0 AND {is_finite('body.price')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StockStatsParameters(JobParameters):
    window: str
    slide: str


def build(spark: SparkSession, parameters: StockStatsParameters) -> list[StreamingQuery]:
    rule = timed_rule(parameters, _TRADE, _IS_TRADE, "a trade")
    trades = read_input(spark, parameters, rule).withWatermark("time", parameters.watermark)
    stats = statistics(trades, parameters.window, parameters.slide)
    return [
        start_topic_query(stats, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def statistics(trades: DataFrame, window: str, slide: str) -> DataFrame:
    """Return the figures of each ticker and window, as key and value."""
    figures = (
        trades.where("body.type = 'ASK'")
        .groupBy("body.ticker", f.window("time", window, slide).alias("span"))
        .agg(
            f.min("body.price").alias("min_price"),
            f.count("*").alias("trades"),
            f.avg("body.price").alias("average_price"),
        )
        .withColumn("window", f.date_format("span.start", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"))
    )
    return figures.select(
        f.concat_ws("|", "ticker", "window").alias("key"),
        f.to_json(f.struct("ticker", "window", "min_price", "trades", "average_price")).alias("value"),
    )


def draw(values: Values) -> Picture:
    lines = defaultdict(list)
    for value in map(json.loads, values.values()):
        lines[value["ticker"]].append((time_of(value["window"]), value["average_price"]))
    return Picture("Average ask in sliding windows", "price", lines=lines)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--window", type=interval, default="5 seconds", help="length of a window (default %(default)s)")
    add("--slide", type=interval, default="1 second", help="distance of two windows (default %(default)s)")


JOB = Job(
    name="stock_stats",
    doc=__doc__,
    parameters=StockStatsParameters,
    build=build,
    input="trades",
    output="stock-stats",
    output_config=COMPACTED,
    watermark="10 seconds",
    add_flags=_add_flags,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
