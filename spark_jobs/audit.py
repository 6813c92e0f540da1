"""Compares how many records producers have sent and consumers have received, per topic and bucket of time.

Producers and consumers report counts to `--input`: `{"side": "producer", "topic": "orders", "time": 1700000000000,
"count": 7}`; `time` is the time of the counted records, in epoch milliseconds, so that both sides count a record in the
same bucket. Output: key `topic|start of bucket`, value `{"topic", "bucket", "produced", "consumed", "missing"}`. The
verdict on a bucket is emitted once, when reports have come that are `--deadline` newer than its end.

Delivery: I. A repeated batch emits the same verdicts with the same keys.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, interval
from spark_jobs.skeleton.plots import Picture, Values, time_of
from spark_jobs.skeleton.records import object_rule, read_input, start_dead_letters

_REPORT = "side string, topic string, time bigint, count bigint"
_IS_REPORT = "body.side IN ('producer', 'consumer') AND body.topic IS NOT NULL AND body.time >= 0 AND body.count >= 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditParameters(JobParameters):
    bucket: str
    deadline: str


def build(spark: SparkSession, parameters: AuditParameters) -> list[StreamingQuery]:
    rule = object_rule(parameters, _REPORT, _IS_REPORT, "a report of a producer or consumer")
    verdicts = compare(read_input(spark, parameters, rule), parameters.bucket, parameters.deadline)
    return [start_topic_query(verdicts, parameters), *start_dead_letters(spark, parameters, rule)]


def compare(records: DataFrame, bucket: str, deadline: str) -> DataFrame:
    """Return the verdict on each topic and bucket, as key and value."""

    def total(side: str) -> Column:
        return f.coalesce(f.sum(f.when(f.col("body.side") == side, f.col("body.count"))), f.lit(0))

    verdicts = (
        records.withColumn("time", f.timestamp_millis("body.time"))
        .withWatermark("time", deadline)
        .groupBy("body.topic", f.window("time", bucket))
        .agg(total("producer").alias("produced"), total("consumer").alias("consumed"))
        .withColumn("bucket", f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
        .withColumn("missing", f.col("produced") - f.col("consumed"))
    )
    return verdicts.select(
        f.concat_ws("|", "topic", "bucket").alias("key"),
        f.to_json(f.struct("topic", "bucket", "produced", "consumed", "missing")).alias("value"),
    )


def draw(values: Values) -> Picture:
    lines = defaultdict(list)
    for value in map(json.loads, values.values()):
        lines[value["topic"]].append((time_of(value["bucket"]), value["missing"]))
    return Picture("Records that were sent and not received", "records", lines=lines)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--bucket", type=interval, default="1 minute", help="length of a bucket (default %(default)s)")
    add("--deadline", type=interval, default="10 minutes", help="how long reports may take (default %(default)s)")


JOB = Job(
    name="audit",
    doc=__doc__,
    parameters=AuditParameters,
    build=build,
    input="audit-reports",
    output="audit-verdicts",
    output_config=COMPACTED,
    add_flags=_add_flags,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
