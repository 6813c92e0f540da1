"""The event time of a record: its timestamp, or a field of its JSON value.

Owns the column expression for both. Must not know any job.
"""

from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as f

TIME_MS_MAX = 9_223_372_036_854
"""The last time that pandas stores in nanoseconds, in the year 2262; the first is as far from 1970. Microseconds and
nanoseconds that were taken for milliseconds are later, or overflow."""
_BEGINS_WITH_A_DATE = r"^\s*\d{4}-"
"""Spark takes a time of the day for one of today: a batch that is repeated tomorrow would have other results."""


def event_time(value: Column, field: str | None) -> Column:
    """Return the event time of a record of Spark's Kafka source whose value is the text `value`.

    Without `field` it is the record's timestamp. Otherwise the field holds epoch milliseconds or ISO 8601 (UTC if it
    names no zone). The column is null if the field holds neither, and for a time beyond `TIME_MS_MAX`.
    """
    if field is None:
        time = f.col("timestamp")
    else:
        text = f.get_json_object(value, f"$['{field}']")
        number = text.try_cast("bigint")
        moment = f.when(text.rlike(_BEGINS_WITH_A_DATE), text.try_cast("timestamp"))
        time = f.coalesce(f.when(_is_in_range(number), f.timestamp_millis(number)), moment)
    return f.when(_is_in_range(f.unix_millis(time)), time)


def _is_in_range(time_ms: Column) -> Column:
    return time_ms.between(-TIME_MS_MAX, TIME_MS_MAX)


def iso(time_ms: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
