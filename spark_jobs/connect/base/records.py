"""Records on their way between a task and a topic.

Owns their fields. Must not know how they are converted or sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_jobs.connect.base.data import Schema

Headers = tuple[tuple[str, Schema | None, Any], ...]
"""Name, schema and value of each header, in order."""


class SourceRecord(NamedTuple):
    """A record that a source has read.

    `source_partition` names the part of the source, such as `{"filename": "a.txt"}`, and `source_offset` the position
    behind the record, such as `{"position": 12}`: JSON objects that a restarted task gets back. Without a `partition`
    the key selects it; without `timestamp_ms` it is the time of sending.
    """

    source_partition: Mapping[str, Any]
    source_offset: Mapping[str, Any]
    topic: str
    value: Any
    value_schema: Schema | None = None
    key: Any = None
    key_schema: Schema | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class SinkRecord(NamedTuple):
    """A record of a topic for a sink.

    A transform may change all fields but the last four: topic, partition and offset of the record in the broker, and
    how it was read there, if its task has a topic of dead letters.
    """

    topic: str
    partition: int
    value: Any
    value_schema: Schema | None
    key: Any
    key_schema: Schema | None
    timestamp_ms: int | None
    headers: Headers
    original_topic: str
    original_partition: int
    offset: int
    message: object | None = None


Record = SourceRecord | SinkRecord
