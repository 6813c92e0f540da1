"""The effective configuration of every topic: its overrides over this broker's values.

Owns: the overrides as last read from the metadata store, without those that no log can use, and the warnings about
those that have no effect. Must not know: logs; it reports to listeners which topic changed.

Invariant: as long as the overrides of a topic are not known, its effective configuration removes no record.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from base.pause import Pause
from broker.loop.in_order import InOrder
from config.broker import BrokerConfig
from config.definition import ConfigError
from config.log_config import LogConfig
from config.topic_properties import TOPIC_PROPERTIES
from controller.store.state_store import StoreUnavailable

logger = logging.getLogger("kafka.server.TopicConfigHandler")

READ_AT_ONCE_MAX = 500
"""Topics whose overrides are read in one round trip."""

# So that the log of a start with thousands of topics stays readable.
WARNINGS_MAX = 50

NO_CLEANUP: frozenset[str] = frozenset()
"""A cleanup policy without retention and without compaction."""


class TopicConfigs:
    """Topic overrides, cached, with the `LogConfig` that follows from them."""

    def __init__(
        self,
        config: BrokerConfig,
        read_overrides: Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, str]]]],
    ) -> None:
        """`read_overrides(topics)` reads those of the topics from the metadata store, in one round trip.

        It leaves out the topics whose overrides the store refuses to read.
        """
        self._config = config
        self._read_overrides = read_overrides
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._effective: dict[str, LogConfig] = {}
        self._unread: set[str] = set()
        """The topics whose overrides the store has refused at every read. Their records are kept."""
        self._reading = InOrder()
        """Keeps reads and their effects in one order: an older read must not undo a newer one."""
        self._forgotten_since_read: set[str] = set()
        """The topics that were forgotten since the load in progress began."""

    def overrides(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of this topic; empty if they were never loaded."""
        return self._overrides.get(topic, {})

    def effective(self, topic: str) -> LogConfig:
        """Return the effective configuration of the topic's logs."""
        known = self._effective.get(topic)
        if known is None:
            known = LogConfig.from_overrides(self._config, self.overrides(topic))
            if topic in self._unread:
                known = replace(known, cleanup_policy=NO_CLEANUP)
            self._effective[topic] = known
        return known

    async def unknown(self, topics: Iterable[str], pause: Pause) -> list[str]:
        """Return the topics whose overrides were never loaded."""
        found = []
        for topic in topics:
            if topic not in self._overrides:
                found.append(topic)
            await pause()
        return found

    async def load(self, topics: Collection[str], pause: Pause) -> None:
        """Read the overrides of topics, again if they are known.

        Overrides that cannot be read stay as they are known, else count as none: the topic must be served. Its records
        are then kept until a later read returns the overrides. What was read of a topic that is forgotten before the
        read ends is dropped: it may be that of a deleted topic.
        """
        if topics:
            async with self._reading:
                await self._load(topics, pause)

    async def load_all(self, topics: Collection[str], pause: Pause) -> None:
        """Load the overrides of all topics, at the start. Raises StoreUnavailable if the store refuses each of them."""
        await self.load(topics, pause)
        if topics and len(self._unread) == len(topics):
            raise StoreUnavailable(
                f"the metadata store refuses to read the overrides of all {len(topics)} topics; the log has the reasons"
            )

    async def load_known(self, topic: str, pause: Pause) -> bool:
        """Read the overrides of a topic again after a change; return False if the topic is not known here.

        A load in progress may have read the overrides before the change, so it ends first.
        """
        async with self._reading:
            if topic not in self._overrides:
                return False
            await self._load([topic], pause)
            return True

    async def _load(self, topics: Collection[str], pause: Pause) -> None:
        warnings: list[str] = []
        self._forgotten_since_read.clear()
        remaining = iter(topics)
        while chunk := list(islice(remaining, READ_AT_ONCE_MAX)):
            found = await self._read_overrides(chunk)
            for topic in chunk:
                if topic not in self._forgotten_since_read:
                    if topic in found:
                        warnings += self._learn(topic, found[topic])
                    elif topic not in self._overrides:
                        warnings.append(self._miss(topic))
                await pause()
        for warning in warnings[:WARNINGS_MAX]:
            logger.warning("%s", warning)
        if (others := len(warnings) - WARNINGS_MAX) > 0:
            logger.warning("%d more warnings about overrides of topics", others)

    async def read_again(self, pause: Pause) -> list[str]:
        """Read the overrides of all loaded topics; return the topics whose overrides have changed."""
        return await self._changed_by_reading(self._overrides, pause)

    async def read_unread(self, pause: Pause) -> list[str]:
        """Read the overrides that the store has refused so far; return the topics of those that it returns now."""
        return await self._changed_by_reading(self._unread, pause)

    async def _changed_by_reading(self, topics: Iterable[str], pause: Pause) -> list[str]:
        before = {topic: self._known(topic) for topic in topics}
        await self.load(before, pause)
        return [topic for topic, overrides in before.items() if self._known(topic) != overrides]

    def _known(self, topic: str) -> Mapping[str, str] | None:
        return None if topic in self._unread else self._overrides.get(topic)

    def _miss(self, topic: str) -> str:
        """Remember that the overrides of a topic are unknown; return a warning."""
        self._overrides[topic] = {}
        self._effective.pop(topic, None)
        self._unread.add(topic)
        return f"topic {topic} is neither compacted nor shortened by retention until its overrides can be read"

    def _learn(self, topic: str, stored: Mapping[str, str]) -> list[str]:
        """Apply the stored overrides; return warnings about those that were set since and have no effect."""
        usable = _usable(topic, stored)
        known = self._overrides.get(topic, {})
        self._overrides[topic] = usable
        self._unread.discard(topic)
        self._effective.pop(topic, None)
        changed = {key: text for key, text in usable.items() if known.get(key) != text}
        return self._config.without_effect_on_topic(topic, changed)

    def defaults_changed(self) -> None:
        """Discard the effective configurations after this broker's own values have changed."""
        self._effective.clear()

    def forget(self, topic: str) -> None:
        """Drop the overrides of a deleted topic; a new topic of the same name has its own."""
        self._overrides.pop(topic, None)
        self._unread.discard(topic)
        self._effective.pop(topic, None)
        self._forgotten_since_read.add(topic)


def _usable(topic: str, stored: Mapping[str, str]) -> dict[str, str]:
    """The overrides without those that cannot be used: one that was written by hand must not keep the topic away."""
    usable = {}
    for key, text in stored.items():
        row = TOPIC_PROPERTIES.get(key)
        try:
            if row is not None:
                row.parse(text)
                usable[key] = text
            else:
                logger.warning("ignoring the unknown override %s of topic %s", key, topic)
        except ConfigError as error:
            logger.error("ignoring a stored override of topic %s: %s", topic, error)
    return usable
