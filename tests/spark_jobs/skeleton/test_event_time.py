"""Event times in payloads: valid and invalid texts."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.skeleton.event_time import event_time

pytestmark = pytest.mark.spark

RECORD_MS = 5_000
TIMES = {
    '{"at":1700000000000}': 1_700_000_000_000,
    '{"at":"1700000000000"}': 1_700_000_000_000,
    '{"at":-1}': -1,
    '{"at":"2013-01-01T10:00:00Z"}': 1_357_034_400_000,
    '{"at":"2013-01-01T05:00:00.250-05:00"}': 1_357_034_400_250,
    '{"at":"2013-01-01T10:00:00"}': 1_357_034_400_000,
    '{"at":9223372036854}': 9_223_372_036_854,
    '{"at":1700000000000000}': None,
    '{"at":1700000000000000000}': None,
    '{"at":"2500-01-01T00:00:00Z"}': None,
    '{"at":"yesterday"}': None,
    '{"at":"12:30:00"}': None,
    '{"at":"T12:30"}': None,
    '{"at":null}': None,
    '{"other":1}': None,
    "{": None,
}


def times(spark: SparkSession, field: str | None, record_ms: int = RECORD_MS) -> dict[str, int | None]:
    records = spark.createDataFrame([(text,) for text in TIMES], "value string")
    records = records.withColumn("timestamp", f.timestamp_millis(f.lit(record_ms)))
    rows = records.select("value", f.unix_millis(event_time(f.col("value"), field)).alias("ms")).collect()
    return {row.value: row.ms for row in rows}


def test_a_field_is_read_as_milliseconds_or_iso_8601(spark: SparkSession) -> None:
    assert times(spark, "at") == TIMES


def test_event_time_without_a_field_is_the_records_timestamp(spark: SparkSession) -> None:
    assert set(times(spark, None).values()) == {RECORD_MS}
    assert set(times(spark, None, 1_700_000_000_000_000).values()) == {None}
