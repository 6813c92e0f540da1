"""Compares how many records producers have sent and consumers have received, per topic and bucket of time.

Producers and consumers report counts to `--input`: `{"side": "producer", "topic": "orders", "time": 1700000000000,
"count": 7}`; `time` is the time of the counted records, in epoch milliseconds, so that both sides count a record in the
same bucket. Output: key `topic|start of bucket`, value `{"topic", "bucket", "produced", "consumed", "missing",
"completeness_percent", "delay_seconds"}`. Completeness is what was consumed of 100 produced records; it exceeds 100 if
records were consumed twice, and is missing if none was produced. The delay is the time from the end of the bucket to
the last report of a consumer about it. The verdict on a bucket is emitted once, when reports have come that are
`--deadline` newer than its end.

With `--metrics`: `spark_job_audit_buckets_total`, `spark_job_audit_incomplete_buckets_total`, and of the newest
verdicts `spark_job_audit_completeness_percent` (the lowest) and `spark_job_audit_delay_seconds` (the longest).

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
from spark_jobs.skeleton.event_time import TIME_MS_MAX
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, interval
from spark_jobs.skeleton.pictures import Picture, Values, time_of
from spark_jobs.skeleton.progress import COUNTERS, GAUGES
from spark_jobs.skeleton.records import COUNT_MAX, object_rule, read_input, start_dead_letters

_REPORT = "side string, topic string, time bigint, count bigint"
_IS_REPORT = f"""body.side IN ('producer', 'consumer') AND body.topic IS NOT NULL
    AND body.time BETWEEN 0 AND {TIME_MS_MAX} AND body.count BETWEEN 0 AND {COUNT_MAX}"""
_GAUGES = {"audit_completeness_percent": "min(completeness_percent)", "audit_delay_seconds": "max(delay_seconds)"}
AUDIT_COUNTERS = {"audit_buckets": "count(*)", "audit_incomplete_buckets": "count_if(missing > 0)"}
_FIELDS = ("topic", "bucket", "produced", "consumed", "missing", "completeness_percent", "delay_seconds")


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

    is_consumer = f.col("body.side") == "consumer"
    verdicts = (
        records.withColumn("time", f.timestamp_millis("body.time"))
        .withWatermark("time", deadline)
        .groupBy("body.topic", f.window("time", bucket))
        .agg(
            total("producer").alias("produced"),
            total("consumer").alias("consumed"),
            f.max(f.when(is_consumer, f.col("timestamp"))).alias("reported"),
        )
        .withColumn("bucket", f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
        .withColumn("missing", f.col("produced") - f.col("consumed"))
        .withColumn("completeness_percent", f.round(100 * f.col("consumed") / f.nullif("produced", f.lit(0)), 2))
        .withColumn("delay_seconds", _seconds_after("window.end", "reported"))
        .observe(GAUGES, *(f.expr(figure).alias(name) for name, figure in _GAUGES.items()))
        .observe(COUNTERS, *(f.expr(figure).alias(name) for name, figure in AUDIT_COUNTERS.items()))
    )
    return verdicts.select(
        f.concat_ws("|", "topic", "bucket").alias("key"),
        f.to_json(f.struct(*_FIELDS)).alias("value"),
    )


def _seconds_after(begin: str, end: str) -> Column:
    """Return the seconds from one time to a later one, 0 to an earlier one, null to none."""
    seconds = (f.unix_millis(end) - f.unix_millis(begin)) / 1000
    return f.when(f.col(end).isNotNull(), f.greatest(seconds, f.lit(0.0)))


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
