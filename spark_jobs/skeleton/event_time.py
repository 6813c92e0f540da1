"""The event time of a record: its timestamp, or a field of its JSON value.

Owns the column expression for both. Must not know any job.
"""

from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as f


def event_time(value: Column, field: str | None) -> Column:
    """Return the event time of a record of Spark's Kafka source whose value is the text `value`.

    Without `field` it is the record's timestamp. Otherwise the field holds epoch milliseconds or ISO 8601 (UTC if it
    names no zone); the column is null if it holds neither.
    """
    if field is None:
        return f.col("timestamp")
    text = f.get_json_object(value, f"$['{field}']")
    return f.coalesce(f.timestamp_millis(text.try_cast("bigint")), text.try_cast("timestamp"))


def iso(time_ms: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
