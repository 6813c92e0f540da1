"""Sends the lines of a log that match a pattern to one topic, and all others to another.

Key, value and headers stay as they are. A line keeps its partition number (modulo the partitions of the target), so
lines of one partition stay in their order.

Delivery: U. Each line has the header `record-id` with the place that it came from.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, same_partition, start_topic_query
from spark_jobs.skeleton.java_runtime.java_regex import check_java_regex
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import read_input, start_dead_letters, text_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitErrorsParameters(JobParameters):
    pattern: str
    error_topic: str


def build(spark: SparkSession, parameters: SplitErrorsParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError for a pattern that is no regular expression."""
    check_java_regex(spark, "--pattern", parameters.pattern)
    rule = text_rule()
    lines = split(read_input(spark, parameters, rule), parameters)
    return [start_topic_query(lines, parameters), *start_dead_letters(spark, parameters, rule)]


def split(records: DataFrame, parameters: SplitErrorsParameters) -> DataFrame:
    """Return the records with the topic and partition that each goes to."""
    errors, others = parameters.error_topic, parameters.output
    is_error = f.col("line").rlike(parameters.pattern)
    partition = f.when(is_error, same_partition(parameters, errors)).otherwise(same_partition(parameters, others))
    return records.select(
        f.when(is_error, errors).otherwise(others).alias("topic"),
        partition.alias("partition"),
        "key",
        "value",
        record_id_headers().alias("headers"),
    )


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add(
        "--pattern",
        default="ERROR",
        metavar="REGEX",
        help="what an error contains, a regular expression of Java (default %(default)s)",
    )
    add("--error-topic", default="log-errors", metavar="TOPIC", help="topic of the errors (default %(default)s)")


JOB = Job(
    name="split_errors",
    doc=__doc__,
    parameters=SplitErrorsParameters,
    build=build,
    input="log-lines",
    output="log-others",
    add_flags=_add_flags,
    further_topics=lambda parameters: [parameters.topic(parameters.error_topic)],
)

if __name__ == "__main__":
    sys.exit(JOB.main())
