"""Reads the one partition of a topic of MirrorMaker 2's own.

Owns the consumer. Must not know what the records mean. Records that cannot be parsed are logged and left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from spark_jobs.connect.base.errors import ConnectError, DataError
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.connect.mirror.TopicReader")

_BATCH_SIZE: Final = 1_000
REFRESH_MS: Final = 5_000
"""How often a topic that does not exist yet is looked for."""
_POLL_S: Final = 0.1
_AT_END: Final = "_PARTITION_EOF"
_NOT_YET: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
"""Errors of a topic that does not exist yet: it has no records."""
_TRANSIENT: Final = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "LEADER_NOT_AVAILABLE"})

T = TypeVar("T")


class TopicReader(Generic[T]):
    """Reads from the start. Not thread-safe."""

    def __init__(
        self, topic: str, settings: Mapping[str, Any], parse: Callable[[bytes | None, bytes | None], T]
    ) -> None:
        """`settings` are the library's; `parse` takes key and value, and raises DataError.

        Raises ConnectError if the library rejects the settings.
        """
        self.topic = topic
        self._parse = parse
        try:
            self._consumer = library.Consumer(
                {**settings, "enable.partition.eof": True, "topic.metadata.refresh.interval.ms": REFRESH_MS},
                logger=logger,
            )
        except library.KafkaException as error:
            raise ConnectError(f"{topic} cannot be read: {error.args[0].str()}") from error

    def to_end(self, timeout_s: float) -> Iterator[T]:
        """Yield all records up to the end. To be called once, before `new`.

        Raises ConnectError if the topic may not be read, or its end is not reached in time.
        """
        give_up_s = time.monotonic() + timeout_s
        exists = self._exists(timeout_s)
        self._consumer.assign([library.TopicPartition(self.topic, 0, library.OFFSET_BEGINNING)])
        if not exists:
            return
        while time.monotonic() < give_up_s:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield from self._parsed(message)
            elif error.name() == _AT_END:
                return
            else:
                self._report(error)
        raise ConnectError(f"the end of {self.topic} was not reached within {timeout_s:g} s")

    def new(self) -> Iterator[T]:
        """Yield the records that have arrived since. Raises ConnectError if they may not be read."""
        while messages := self._consumer.consume(_BATCH_SIZE, 0):
            for message in messages:
                error = message.error()
                if error is None:
                    yield from self._parsed(message)
                elif error.name() != _AT_END and error.name() not in _NOT_YET:
                    self._report(error)

    def close(self) -> None:
        self._consumer.close()

    def _parsed(self, message: library.Message) -> Iterator[T]:
        try:
            yield self._parse(message.key(), message.value())
        except DataError as error:
            logger.warning("the record of %s at offset %s is ignored: %s", self.topic, message.offset(), error)

    def _exists(self, timeout_s: float) -> bool:
        """Raises ConnectError. An assignment of a topic whose leader is known needs no timer of the library."""
        try:
            found = self._consumer.list_topics(self.topic, timeout_s).topics[self.topic]
        except library.KafkaException as error:
            raise ConnectError(f"{self.topic} cannot be read: {error.args[0].str()}") from error
        return found.error is None or found.error.name() not in _NOT_YET

    def _report(self, error: Any) -> None:
        if error.name() not in _TRANSIENT:
            raise ConnectError(f"{self.topic} cannot be read: {error.str()}")
        logger.warning("%s: %s", self.topic, error.str())
