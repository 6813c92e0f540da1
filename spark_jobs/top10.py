"""Ranks the stocks with the highest gain of each day, in two phases with a topic between them.

    --input -> gains -> --intermediate-topic -> ranks -> --output

- `gains`: the gain of a symbol on a day is its last price over its first, minus one. Input: `{"symbol", "price"}`.
  Each batch emits the gains that it changed: key `day|symbol`, value `{"day", "symbol", "gain"}`.
- `ranks`: the `--n` highest gains of each day, ties in the order of the symbols: key the day, value
  `[{"rank", "symbol", "gain"}, ...]`.

The intermediate topic has one partition and is compacted, so `ranks` reads the newest gains in order. `--phase` runs
one phase alone, for example to start the second one again from the intermediate topic.

Delivery: I, in both phases.
"""

import argparse
import json
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_batch_query, start_topic_query, write_topic
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, positive
from spark_jobs.skeleton.pictures import Picture, Values
from spark_jobs.skeleton.records import is_finite, object_rule, read_input, start_dead_letters, timed_rule

PHASES = ("gains", "ranks")
_IS_PRICE = f"body.symbol IS NOT NULL AND body.price > 0 AND {is_finite('body.price')}"
_IS_GAIN = f"body.day IS NOT NULL AND body.symbol IS NOT NULL AND {is_finite('body.gain')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Top10Parameters(JobParameters):
    n: int
    intermediate_topic: str
    phase: str | None


def build(spark: SparkSession, parameters: Top10Parameters) -> list[StreamingQuery]:
    queries = []
    if parameters.phase in {None, "gains"}:
        rule = timed_rule(parameters, "symbol string, price double", _IS_PRICE, "a price")
        gains = daily_gains(read_input(spark, parameters, rule), parameters.watermark)
        queries.append(
            start_topic_query(
                gains, parameters, topic=parameters.intermediate_topic, name="gains", output_mode="update"
            )
        )
        queries += start_dead_letters(spark, parameters, rule)
    if parameters.phase in {None, "ranks"}:
        rule = object_rule(parameters, "day string, symbol string, gain double", _IS_GAIN, "a gain")
        newest = newest_gains(read_input(spark, parameters, rule, parameters.intermediate_topic))

        def write(rows: DataFrame, _batch: int) -> None:
            write_topic(rank(rows, parameters.n), parameters)

        queries.append(start_batch_query(newest, parameters, write, name="ranks", output_mode="complete"))
        queries += start_dead_letters(spark, parameters, rule, parameters.intermediate_topic)
    return queries


def daily_gains(prices: DataFrame, watermark: str) -> DataFrame:
    """Return the gain of each symbol on each day, as key and value."""
    gains = (
        prices.withWatermark("time", watermark)
        .groupBy("body.symbol", f.window("time", "1 day").alias("span"))
        .agg(
            f.min_by("body.price", f.struct("time", "partition", "offset")).alias("first"),
            f.max_by("body.price", f.struct("time", "partition", "offset")).alias("last"),
        )
        .select(
            "symbol", f.date_format("span.start", "yyyy-MM-dd").alias("day"), (f.expr("last / first - 1")).alias("gain")
        )
    )
    return gains.select(
        f.concat_ws("|", "day", "symbol").alias("key"), f.to_json(f.struct("day", "symbol", "gain")).alias("value")
    )


def newest_gains(gains: DataFrame) -> DataFrame:
    """Return the last gain of each day and symbol."""
    return gains.groupBy("body.day", "body.symbol").agg(
        f.max_by("body.gain", f.struct("partition", "offset")).alias("gain")
    )


def rank(gains: DataFrame, n: int) -> DataFrame:
    """Return the `n` highest gains of each day, as key and value."""
    order = Window.partitionBy("day").orderBy(f.desc("gain"), "symbol")
    ranked = gains.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= n)
    entries = f.array_sort(f.collect_list(f.struct("rank", "symbol", "gain")))
    return ranked.groupBy(f.col("day").alias("key")).agg(f.to_json(entries).alias("value"))


def draw(values: Values) -> Picture:
    day = max(values)
    gains = {f"{row['rank']}  {row['symbol']}": 100 * row["gain"] for row in json.loads(values[day])}
    return Picture(f"Highest gains on {day}", "%", bars=gains, is_ranked=False)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--n", type=positive, default=10, help="length of the ranking (default %(default)s)")
    add("--intermediate-topic", default="daily-gains", metavar="TOPIC", help="topic of the gains (default %(default)s)")
    add("--phase", choices=PHASES, help="run only this phase (default: both)")


JOB = Job(
    name="top10",
    doc=__doc__,
    parameters=Top10Parameters,
    build=build,
    input="prices",
    output="top10",
    output_config=COMPACTED,
    watermark="1 day",
    add_flags=_add_flags,
    further_topics=lambda parameters: [parameters.topic(parameters.intermediate_topic, COMPACTED, partitions=1)],
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
