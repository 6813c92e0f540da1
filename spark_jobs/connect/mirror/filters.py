"""Which topics, groups and settings of topics are mirrored: names or regular expressions, included and excluded.

Owns the match of a whole name. Must not know what is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from spark_jobs.connect.base.definitions import invalid


class NameFilter:
    """Accepts names that match one of `included` and none of `excluded`."""

    def __init__(self, included: Sequence[str], excluded: Sequence[str]) -> None:
        self._included = [re.compile(each) for each in included]
        self._excluded = [re.compile(each) for each in excluded]

    def accepts(self, name: str) -> bool:
        return _matches(self._included, name) and not _matches(self._excluded, name)


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def patterns(name: str, value: Any) -> None:
    """Check a list of regular expressions. Raises ConfigError."""
    for each in value:
        try:
            re.compile(each)
        except re.error as error:
            raise invalid(name, each, f"Not a regular expression: {error}") from error
