"""Adds the profile of the user to each click: a stream joined with a topic that is a changing table.

Clicks are in `--input`, profiles in `--profiles`; both are JSON objects keyed by the user. The profiles' topic is
compacted; a record without a value removes the profile. Output: key the user, value the click with one more field,
`profile`: the user's profile, or null. With `--join inner`, clicks without a profile are dropped.

The state is the profile of each user, on the executor that gets the user's clicks: no request per click. The records
of a batch are applied in the order of their timestamps; a profile changes later clicks only.

Delivery: U. Each click has the header `record-id`, its own or its place.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from spark_jobs.skeleton.delivery import RECORD_ID, header, record_id, start_topic_query
from spark_jobs.skeleton.formats.schemas import is_json_object, value_text
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters

_PROFILE, _CLICK = 0, 1  # in this order at equal times
_COLUMNS = ("user", "kind", "text", "record_id", "time_ms", "partition", "offset")
_OUTPUT = "key string, value string, record_id string"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichClicksParameters(JobParameters):
    profiles: str
    join: str


def build(spark: SparkSession, parameters: EnrichClicksParameters) -> list[StreamingQuery]:
    clicks = keyed_rule(parameters, _CLICK, "is_object", "a click with a user")
    profiles = keyed_rule(parameters, _PROFILE, "value IS NULL OR is_object", "a profile with a user")
    both = (
        read_input(spark, parameters, profiles, parameters.profiles)
        .select(*_COLUMNS)
        .unionByName(read_input(spark, parameters, clicks).select(*_COLUMNS))
    )
    enriched = enrich(both, is_inner=parameters.join == "inner")
    return [
        start_topic_query(enriched, parameters),
        *start_dead_letters(spark, parameters, clicks),
        *start_dead_letters(spark, parameters, profiles, parameters.profiles),
    ]


def keyed_rule(parameters: JobParameters, kind: int, condition: str, expected: str) -> InputRule:
    """Return the rule of one of the two inputs: JSON objects keyed by the user."""

    def read(records: DataFrame) -> DataFrame:
        return (
            records.withColumn("user", f.try_validate_utf8(f.col("key").cast("string")))
            .withColumn("text", value_text(parameters))
            .withColumn("is_object", f.udf(is_json_object, "boolean")("text"))
            .withColumn("kind", f.lit(kind))
            .withColumn("time_ms", f.unix_millis("timestamp"))
            .withColumn("record_id", record_id())
        )

    return InputRule(read, f"user IS NOT NULL AND ({condition})", expected)


def enrich(records: DataFrame, *, is_inner: bool) -> DataFrame:
    """Return the clicks of the union of clicks and profiles, with their profiles: key, value and headers."""
    rows = records.groupBy("user").transformWithStateInPandas(_Profiles(is_inner), _OUTPUT, "append", "none")
    return rows.select("key", "value", f.array(header(RECORD_ID, f.col("record_id"))).alias("headers"))


class _Profiles(StatefulProcessor):  # type: ignore[misc]
    """Knows the profile of one user."""

    def __init__(self, is_inner: bool) -> None:
        self._is_inner = is_inner

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._profile = handle.getValueState("profile", "text string")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        stored = self._profile.get()[0] if self._profile.exists() else None
        profile = stored
        enriched = []
        for row in pd.concat(rows).sort_values(["time_ms", "kind", "partition", "offset"]).itertuples():
            if row.kind == _PROFILE:
                profile = row.text if isinstance(row.text, str) else None
            elif profile is not None or not self._is_inner:
                click = {**json.loads(row.text), "profile": None if profile is None else json.loads(profile)}
                enriched.append((key[0], json.dumps(click), row.record_id))
        if profile is None:
            self._profile.clear()
        elif profile != stored:
            self._profile.update((profile,))
        yield pd.DataFrame(enriched, columns=["key", "value", "record_id"])

    def close(self) -> None: ...


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--profiles", default="profiles", metavar="TOPIC", help="topic of the profiles (default %(default)s)")
    add("--join", choices=("left", "inner"), default="left", help="whether clicks need a profile (default %(default)s)")


JOB = Job(
    name="enrich_clicks",
    doc=__doc__,
    parameters=EnrichClicksParameters,
    build=build,
    input="clicks",
    output="enriched-clicks",
    add_flags=_add_flags,
    further_topics=lambda parameters: [parameters.topic(parameters.profiles, COMPACTED)],
)

if __name__ == "__main__":
    sys.exit(JOB.main())
