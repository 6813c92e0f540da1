"""Sends the lines of a log that match a pattern to one topic, and all others to another.

Key, value and headers stay as they are. A line keeps its partition number (modulo the partitions of the target), so
lines of one partition stay in their order.

Delivery: U. Each line has the header `record-id` with the place that it came from.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, start_topic_query
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, checked, is_regex
from spark_jobs.skeleton.records import read_input, start_dead_letters, text_rule
from spark_jobs.skeleton.topics import partition_count


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitErrorsParameters(JobParameters):
    pattern: str
    error_topic: str


def build(spark: SparkSession, parameters: SplitErrorsParameters) -> list[StreamingQuery]:
    rule = text_rule()
    partitions = {
        topic: partition_count(parameters.bootstrap_servers, topic)
        for topic in (parameters.output, parameters.error_topic)
    }
    lines = split(read_input(spark, parameters, rule), parameters, partitions)
    return [start_topic_query(lines, parameters), *start_dead_letters(spark, parameters, rule)]


def split(records: DataFrame, parameters: SplitErrorsParameters, partitions: dict[str, int]) -> DataFrame:
    """Return the records with the topic and partition that each goes to."""
    is_error = f.col("line").rlike(parameters.pattern)

    def by_target(of_errors: str | int, of_others: str | int) -> Column:
        return f.when(is_error, f.lit(of_errors)).otherwise(f.lit(of_others))

    target_partitions = by_target(partitions[parameters.error_topic], partitions[parameters.output])
    return records.select(
        by_target(parameters.error_topic, parameters.output).alias("topic"),
        (f.col("partition") % target_partitions).alias("partition"),
        "key",
        "value",
        record_id_headers().alias("headers"),
    )


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add(
        "--pattern",
        type=checked(is_regex, "a regular expression"),
        default="ERROR",
        metavar="REGEX",
        help="what an error contains (default %(default)s)",
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
