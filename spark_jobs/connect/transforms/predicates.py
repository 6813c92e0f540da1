"""Predicates, which choose the records that a transform applies to: HasHeaderKey, RecordIsTombstone, TopicNameMatches.

Owns these three. Must not know transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.connect.base.api import Predicate
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, not_empty
from spark_jobs.connect.base.java_regex import compile_regex, regex
from spark_jobs.connect.base.records import Record


class HasHeaderKey(Predicate):
    definition = Definition(
        [Setting("name", Kind.STRING, REQUIRED, Importance.MEDIUM, "The name of the header.", not_empty)]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._name: str = self.definition.parse(config)["name"]

    def test(self, record: Record) -> bool:
        return any(name == self._name for name, _, _ in record.headers)


class RecordIsTombstone(Predicate):
    def test(self, record: Record) -> bool:
        return record.value is None


def _pattern(name: str, value: Any) -> None:
    not_empty(name, value)
    regex(name, value)


class TopicNameMatches(Predicate):
    definition = Definition(
        [
            Setting(
                "pattern",
                Kind.STRING,
                REQUIRED,
                Importance.MEDIUM,
                "Java's regular expression of a whole topic.",
                _pattern,
            )
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._pattern = compile_regex(self.definition.parse(config)["pattern"])

    def test(self, record: Record) -> bool:
        return self._pattern.fullmatch(record.topic) is not None
