"""Counts how often each word occurs in lines of text.

Lines are lower-cased and split at everything that is no letter, digit or underscore; empty words and stop words are
dropped. Output: key the word, value its count so far as text. Each batch emits the words whose count it changed.

Delivery: I. A repeated batch writes the same counts again, and the last value of a word is valid.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.pictures import Picture, Values
from spark_jobs.skeleton.records import read_input, start_dead_letters, text_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class WordCountParameters(JobParameters):
    stop_words: str


def build(spark: SparkSession, parameters: WordCountParameters) -> list[StreamingQuery]:
    rule = text_rule()
    counts = count_words(read_input(spark, parameters, rule), parameters.stop_words.split(","))
    return [
        start_topic_query(counts, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def count_words(records: DataFrame, stop_words: list[str]) -> DataFrame:
    """Return the count of each word in the column `line`, as key and value."""
    words = records.select(f.explode(f.split(f.lower("line"), r"(?U)\W+")).alias("word"))
    counted = words.where((f.col("word") != "") & ~f.col("word").isin(stop_words)).groupBy("word").count()
    return counted.select(f.col("word").alias("key"), f.col("count").cast("string").alias("value"))


def draw(values: Values) -> Picture:
    return Picture("The most frequent words", "occurrences", bars={word: int(count) for word, count in values.items()})


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--stop-words", default="the", metavar="WORD,...", help="words that are not counted (default %(default)s)")


JOB = Job(
    name="wordcount",
    doc=__doc__,
    parameters=WordCountParameters,
    build=build,
    input="wordcount-input",
    output="wordcount-output",
    output_config=COMPACTED,
    add_flags=_add_flags,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
