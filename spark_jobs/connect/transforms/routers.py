"""Transforms that choose another topic: RegexRouter, TimestampRouter; and Filter, which drops every record.

Owns these three. Must not know topics of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.connect.base.api import Transformation
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, invalid
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.base.java_regex import compile_regex, compile_replacement, regex
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.java_dates import JavaDateFormat

_TOPIC: Final = "topic.format"
_TIMESTAMP: Final = "timestamp.format"


class Filter(Transformation):
    """Drops records: all, or those that its predicate chooses."""

    def apply(self, record: Record) -> None:
        return None


class RegexRouter(Transformation):
    definition = Definition(
        [
            Setting(
                "regex", Kind.STRING, REQUIRED, Importance.HIGH, "Java's regular expression of a whole topic.", regex
            ),
            Setting(
                "replacement",
                Kind.STRING,
                REQUIRED,
                Importance.HIGH,
                "What replaces the first match; it may have groups, such as $1.",
            ),
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._pattern = compile_regex(settings["regex"])
        self._replace = compile_replacement(settings["replacement"], self._pattern)

    def apply(self, record: Record) -> Record:
        """Rename the topic if all of it matches. As in Java, the match that is replaced may be a shorter one."""
        if self._pattern.fullmatch(record.topic) is None:
            return record
        return record._replace(topic=self._pattern.sub(self._replace, record.topic, count=1))


def date_pattern(name: str, value: Any) -> None:
    """Check that the value of a setting is a pattern of times."""
    try:
        JavaDateFormat(value)
    except ValueError as error:
        raise invalid(name, value, str(error)) from error


class TimestampRouter(Transformation):
    definition = Definition(
        [
            Setting(
                _TOPIC,
                Kind.STRING,
                "${topic}-${timestamp}",
                Importance.HIGH,
                "The new topic, with ${topic} and ${timestamp} for the old one and the record's time.",
            ),
            Setting(
                _TIMESTAMP,
                Kind.STRING,
                "yyyyMMdd",
                Importance.HIGH,
                "The form of the time, in UTC, as a pattern of Java's SimpleDateFormat.",
                date_pattern,
            ),
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._topic: str = settings[_TOPIC]
        self._format = JavaDateFormat(settings[_TIMESTAMP])

    def apply(self, record: Record) -> Record:
        if record.timestamp_ms is None:
            raise DataError(f"Timestamp missing on a record for topic {record.topic}")
        time = self._format.format(record.timestamp_ms)
        return record._replace(topic=self._topic.replace("${topic}", record.topic).replace("${timestamp}", time))
