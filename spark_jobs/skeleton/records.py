"""Reading an input topic: what a job reads from a record, which records it accepts, and what the others do.

A job states an `InputRule`. A record that breaks it fails the job with its topic, partition and offset; or is counted
and dropped (`--on-error skip`); or goes to the topic `--dead-letter` as well: key, value and headers as they were, with
headers that name its place and the error. The dead letters are a query of their own beside the job's, because a query
has one output. It reads the input a second time, and only if dead letters are wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import header, headers_with, start_topic_query
from spark_jobs.skeleton.event_time import event_time
from spark_jobs.skeleton.formats.schemas import value_text
from spark_jobs.skeleton.parameters import JobParameters

PLACE = ("topic", "partition", "offset")
DEAD_LETTERS = "dead-letters"
COUNT_MAX = 10**9
"""The highest number that jobs accept of things in one record. Sums of larger ones could overflow, and end the job."""


@dataclass(frozen=True, slots=True)
class InputRule:
    """How a job reads a record of its input, and which it accepts."""

    read: Callable[[DataFrame], DataFrame]
    """Adds the columns that the job needs to those of Spark's Kafka source."""
    accepts: str
    """An SQL condition over the columns; null counts as false."""
    expected: str
    """What an accepted record is, for messages: "a flight"."""


def is_finite(field: str) -> str:
    """Return the SQL condition that a field of type double is a number: Spark reads "NaN" and 1e999 as doubles, too."""
    return f"abs({field}) < double('Infinity')"


def text_rule() -> InputRule:
    """Return the rule of jobs that read lines of text: the column `line`, and no record without a value."""
    return InputRule(
        lambda records: records.withColumn("line", f.col("value").cast("string")), "line IS NOT NULL", "a text"
    )


def object_rule(parameters: JobParameters, schema: str, accepts: str, expected: str) -> InputRule:
    """Return the rule of jobs that read objects: the column `body` with the fields of `schema`, in DDL.

    The values are in the format of `--value-format`.
    """

    def read(records: DataFrame) -> DataFrame:
        text = value_text(parameters)
        return records.withColumn("text", text).withColumn("body", f.from_json("text", schema))

    return InputRule(read, f"body IS NOT NULL AND ({accepts})", expected)


def timed_rule(parameters: JobParameters, schema: str, accepts: str, expected: str) -> InputRule:
    """Return the rule of jobs that read objects with an event time: the columns `body` and `time`."""
    rule = object_rule(parameters, schema, f"time IS NOT NULL AND ({accepts})", expected)

    def read(records: DataFrame) -> DataFrame:
        return rule.read(records).withColumn("time", event_time(f.col("text"), parameters.time_field))

    return InputRule(read, rule.accepts, expected)


def read_stream(spark: SparkSession, parameters: JobParameters, topic: str | None = None) -> DataFrame:
    """Return the records of `--input`, or of `topic`, as Spark's Kafka source has them, with headers."""
    options = {**parameters.source_options(topic), "includeHeaders": "true"}
    return spark.readStream.format("kafka").options(**options).load()


def read_input(spark: SparkSession, parameters: JobParameters, rule: InputRule, topic: str | None = None) -> DataFrame:
    """Return the records of `--input`, or of `topic`, that `rule` accepts."""
    return accepted(read_stream(spark, parameters, topic), rule, parameters.error_action, topic or parameters.input)


def accepted(records: DataFrame, rule: InputRule, error_action: str, topic: str) -> DataFrame:
    """Return the accepted ones of the records of a Kafka source; the others are counted, or fail the query.

    A query may read several topics by one call each: Spark wants another name for each count.
    """
    rows = rule.read(records).withColumn("is_accepted", f.coalesce(f.expr(rule.accepts), f.lit(False)))
    if error_action == "fail":
        is_accepted = f.when(f.col("is_accepted"), True).otherwise(f.raise_error(_message(rule)).cast("boolean"))
        return rows.where(is_accepted).drop("is_accepted")
    counted = rows.observe(f"input of {topic}", f.count_if(~f.col("is_accepted")).alias("malformed"))
    return counted.where("is_accepted").drop("is_accepted")


def start_dead_letters(
    spark: SparkSession, parameters: JobParameters, rule: InputRule, topic: str | None = None
) -> list[StreamingQuery]:
    """Start the query that copies the records that `rule` does not accept; none unless dead letters are wanted."""
    if parameters.error_action != "dlq" or parameters.dead_letter is None:
        return []
    name = DEAD_LETTERS if topic is None else f"{DEAD_LETTERS}-{topic}"
    rows = rule.read(read_stream(spark, parameters, topic))
    refused = rows.where(~f.coalesce(f.expr(rule.accepts), f.lit(False)))
    letters = refused.select("key", "value", dead_letter_headers(_message(rule)).alias("headers"))
    return [start_topic_query(letters, parameters, topic=parameters.dead_letter, name=name)]


def dead_letter_headers(error: Column) -> Column:
    """Return the headers of a record, with those that name its place and the error."""
    place = [header(f"dead-letter.{part}", f.col(part).cast("string")) for part in PLACE]
    return headers_with(*place, header("dead-letter.error", error))


def _message(rule: InputRule) -> Column:
    return f.format_string(f"record at %s-%d offset %d is not {rule.expected}".replace("%%", "%"), *PLACE)
