"""Joins page views with the searches that the same user made shortly before or after.

Views are in `--input`, searches in `--searches`: `{"user": "u1", "page": "p"}` and `{"user": "u1", "terms": "t"}`.
Each view that is within `--within` of a search (the bounds included) is emitted with its terms, once per search; a
view without a search is emitted with null when the watermark has passed, so that no search can match it any more.
Output: key the user, value `{"user", "page", "terms"}`.

Delivery: U. The header `record-id` is that of the view, or its place, and that of the search behind a `+`.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import RECORD_ID, header, record_id, start_topic_query
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, interval
from spark_jobs.skeleton.records import read_input, start_dead_letters, timed_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickSearchParameters(JobParameters):
    searches: str
    within: str


def build(spark: SparkSession, parameters: ClickSearchParameters) -> list[StreamingQuery]:
    is_view = timed_rule(parameters, "user string, page string", "body.user IS NOT NULL", "a view of a user")
    is_search = timed_rule(parameters, "user string, terms string", "body.user IS NOT NULL", "a search of a user")
    views = read_input(spark, parameters, is_view)
    searches = read_input(spark, parameters, is_search, parameters.searches)
    return [
        start_topic_query(join(views, searches, parameters), parameters),
        *start_dead_letters(spark, parameters, is_view),
        *start_dead_letters(spark, parameters, is_search, parameters.searches),
    ]


def join(views: DataFrame, searches: DataFrame, parameters: ClickSearchParameters) -> DataFrame:
    """Return each view with the terms of each matching search, or once without: key, value and headers."""
    left = views.select("body.user", "body.page", f.col("time").alias("viewed"), record_id().alias("view_id"))
    right = searches.select(
        f.col("body.user").alias("searcher"),
        "body.terms",
        f.col("time").alias("searched"),
        record_id().alias("search_id"),
    )
    span = f.expr(f"INTERVAL {parameters.within}")
    matches = (
        (f.col("user") == f.col("searcher"))
        & (f.col("searched") >= f.col("viewed") - span)
        & (f.col("searched") <= f.col("viewed") + span)
    )
    joined = left.withWatermark("viewed", parameters.watermark).join(
        right.withWatermark("searched", parameters.watermark), matches, "left"
    )
    value = f.to_json(f.struct("user", "page", "terms"), {"ignoreNullFields": "false"})
    both = f.concat_ws("+", "view_id", "search_id")
    return joined.select(
        f.col("user").alias("key"), value.alias("value"), f.array(header(RECORD_ID, both)).alias("headers")
    )


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--views", dest="input", default="views", metavar="TOPIC", help="the same as --input")
    add("--searches", default="searches", metavar="TOPIC", help="topic of the searches (default %(default)s)")
    add("--within", type=interval, default="1 second", help="how far apart the two may be (default %(default)s)")


JOB = Job(
    name="click_search",
    doc=__doc__,
    parameters=ClickSearchParameters,
    build=build,
    input="views",
    output="views-with-terms",
    watermark="10 seconds",
    add_flags=_add_flags,
    further_topics=lambda parameters: [parameters.topic(parameters.searches)],
)

if __name__ == "__main__":
    sys.exit(JOB.main())
