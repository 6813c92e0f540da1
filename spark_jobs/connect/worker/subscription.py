"""Which topics a sink reads: those that it names, or those whose names match a regular expression of Java.

The client library has patterns of its own, but those of POSIX, which know no `\\d` and no `(?:`. So the topics of the
cluster are listed from time to time, as Java's consumer does when it renews its metadata.

Owns the present list, and when it is looked up again. Must not know records or partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from protocol.internal_topics import INTERNAL_TOPICS
from spark_jobs.connect.base.java_regex import compile_regex
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.clients.consumer.internals.SubscriptionState")

LIST_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 1.0
"""After how long topics are listed again if the brokers did not respond."""


class Subscription:
    """The topics of one task."""

    def __init__(self, names: Sequence[str], pattern: str, refresh_s: float) -> None:
        """Without `names`, all topics that match `pattern` are read, which `refresh_s` later may be others.

        Raises ConfigError for a pattern that is no regular expression.
        """
        self._names = list(names)
        self._pattern = None if names else compile_regex(pattern)
        self._refresh_s = refresh_s
        self._present: list[str] = []
        self._due_s = float("-inf")

    def changed(self, consumer: library.Consumer, now_s: float) -> list[str] | None:
        """Return the topics to subscribe to, perhaps none; None if they are the same as before."""
        if now_s < self._due_s:
            return None
        topics = self._names if self._pattern is None else self._matching(consumer)
        self._due_s = now_s + (RETRY_S if topics is None else self._refresh_s)
        if topics is None or topics == self._present:
            return None
        self._present = topics
        return topics

    def _matching(self, consumer: library.Consumer) -> list[str] | None:
        """Return the topics that match; None if the brokers do not respond."""
        assert self._pattern is not None
        try:
            found = consumer.list_topics(timeout=LIST_TIMEOUT_S).topics
        except library.KafkaException as error:
            logger.warning("the topics that match %s are not known: %s", self._pattern.pattern, error.args[0].str())
            return None
        return sorted(name for name in found if name not in INTERNAL_TOPICS and self._pattern.fullmatch(name))
