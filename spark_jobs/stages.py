"""Cleans articles, finds keywords in them, and publishes those that have any: three queries, chained by topics.

    --input -> clean -> --cleaned -> match -> --matched -> publish -> --output

- `clean` removes markup and repeated blanks from title and text: `{"title": "...", "text": "..."}`.
- `match` adds the keywords that occur as words, whatever their case: `"keywords": ["kafka"]`.
- `publish` sends the articles with a keyword on, without their text.

Each stage has a folder of its own in the checkpoint, and can run as a process of its own (`--stage match`): one stage
can be stopped and restarted while the others run.

Delivery: U. The header `record-id` is the place in `--input` that a record came from, through all stages.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, start_topic_query
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import object_rule, read_input, start_dead_letters

STAGES = ("clean", "match", "publish")
_ARTICLE = "title string, text string, keywords array<string>"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesParameters(JobParameters):
    cleaned: str
    matched: str
    keywords: str
    stage: str | None


def build(spark: SparkSession, parameters: StagesParameters) -> list[StreamingQuery]:
    keywords = parameters.keywords.lower().split(",")
    topics = (parameters.input, parameters.cleaned, parameters.matched, parameters.output)
    transforms: Mapping[str, Callable[[DataFrame], DataFrame]] = {
        "clean": clean,
        "match": lambda articles: match(articles, keywords),
        "publish": publish,
    }
    rule = object_rule(parameters, _ARTICLE, "body.text IS NOT NULL", "an article with a text")
    queries = []
    for stage, source, target in zip(STAGES, topics, topics[1:], strict=False):
        if parameters.stage in {None, stage}:
            rows = transforms[stage](read_input(spark, parameters, rule, source))
            queries.append(start_topic_query(rows, parameters, topic=target, name=stage))
            queries += start_dead_letters(spark, parameters, rule, source)
    return queries


def clean(articles: DataFrame) -> DataFrame:
    """Return the articles without markup and with single blanks."""

    def plain(field: str) -> Column:
        return f.trim(f.regexp_replace(f.regexp_replace(field, "<[^>]*>", " "), r"\s+", " ")).alias(field[5:])

    return _articles(articles, f.struct(plain("body.title"), plain("body.text")))


def match(articles: DataFrame, keywords: list[str]) -> DataFrame:
    """Return the articles with the keywords that occur in title or text."""
    words = f.split(f.lower(f.concat_ws(" ", "body.title", "body.text")), r"(?U)\W+")
    wanted = f.array(*map(f.lit, sorted(keywords)))
    found = f.filter(wanted, lambda keyword: f.array_contains(words, keyword))
    return _articles(articles, f.struct("body.title", "body.text", found.alias("keywords")))


def publish(articles: DataFrame) -> DataFrame:
    """Return title and keywords of the articles that have a keyword."""
    return _articles(articles.where(f.size("body.keywords") > 0), f.struct("body.title", "body.keywords"))


def _articles(records: DataFrame, value: Column) -> DataFrame:
    return records.select("key", f.to_json(value).alias("value"), record_id_headers().alias("headers"))


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--cleaned", default="articles-cleaned", metavar="TOPIC", help="second topic (default %(default)s)")
    add("--matched", default="articles-matched", metavar="TOPIC", help="third topic (default %(default)s)")
    add("--keywords", default="kafka,spark", metavar="WORD,...", help="words to find (default %(default)s)")
    add("--stage", choices=STAGES, help="run only this stage (default: all)")


JOB = Job(
    name="stages",
    doc=__doc__,
    parameters=StagesParameters,
    build=build,
    input="articles-raw",
    output="articles-published",
    add_flags=_add_flags,
    further_topics=lambda parameters: [parameters.topic(parameters.cleaned), parameters.topic(parameters.matched)],
)

if __name__ == "__main__":
    sys.exit(JOB.main())
