"""Compares two outputs by the last value of each key: reprocessing beside the old job.

    spark-job compare --bootstrap-servers localhost:9092 --left counts-v1 --right counts-v2

It reads both topics to their ends and prints each key whose last values differ (`--show` of them), and a summary. The
exit code is 0 if the topics are equal, 1 if not, and 2 if they cannot be compared. A tombstone counts as no value.
"""

import sys
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.skeleton.clients import source_options
from spark_jobs.skeleton.errors import JobError, cause_of
from spark_jobs.skeleton.java_runtime.pinned_jars import PinnedJarError
from spark_jobs.skeleton.parameters import (
    add_client_settings,
    add_session_settings,
    bare_parser,
    positive,
    session_settings,
)
from spark_jobs.skeleton.session import spark_session


def last_values(spark: SparkSession, options: dict[str, str], topic: str) -> DataFrame:
    """Return the last value of each key of a topic, as text; keys without a value are absent.

    In a partition the last one has the highest offset, whatever the timestamps say. Only a topic that got more
    partitions has a key in several of them: then the latest counts.
    """
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    last = f.max_by(f.struct("value", "timestamp"), "offset").alias("last")
    of_partitions = records.groupBy("key", "partition").agg(last).select("key", "partition", "last.*")
    newest = f.max_by("value", f.struct("timestamp", "partition"))
    values = of_partitions.groupBy(f.col("key").cast("string").alias("key")).agg(newest.cast("string").alias("value"))
    return values.where(f.col("value").isNotNull())


def differences(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return key, left and right of the keys whose values differ."""
    both = left.withColumnRenamed("value", "left").join(right.withColumnRenamed("value", "right"), "key", "full")
    return both.where(~f.col("left").eqNullSafe(f.col("right"))).orderBy("key")


def compare(spark: SparkSession, options: dict[str, str], left: str, right: str, show: int) -> bool:
    """Print how two topics differ; return whether they are equal."""
    values = last_values(spark, options, left).persist()
    different = differences(values, last_values(spark, options, right)).persist()
    for row in different.limit(show).collect():
        print(f"{row.key}: {left} has {row.left}, {right} has {row.right}")
    count = int(different.count())
    print(f"{values.count()} keys in {left}, {count} of both topics differ")
    values.unpersist()
    different.unpersist()
    return count == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bare_parser("compare", __doc__)
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to connect to first")
    add("--left", required=True, metavar="TOPIC", help="one topic, such as that of the old job")
    add("--right", required=True, metavar="TOPIC", help="the other topic")
    add("--show", type=positive, default=20, metavar="N", help="differences to print (default %(default)s)")
    add_client_settings(add, "kafka", "the Kafka clients")
    add_session_settings(add)
    flags = parser.parse_args(arguments)
    options = source_options(flags.bootstrap_servers, flags.kafka_option)
    try:
        spark = spark_session("compare", session_settings(flags.master, flags.spark_conf))
        try:
            return 0 if compare(spark, options, flags.left, flags.right, flags.show) else 1
        finally:
            spark.stop()
    except (JobError, PinnedJarError, OSError, PySparkException, Py4JError) as error:
        print(f"spark-job compare: {cause_of(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
