"""Stores of configurations: the topic of a group of workers, and the memory of a single one.

Owns the order of records and the call of those who want to know changes. Must not know what changes lead to.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.stores.config_state import NOTHING, Changes, ConfigState, Record, encoded
from spark_jobs.connect.stores.topic_log import TopicLog

logger = logging.getLogger("org.apache.kafka.connect.storage.KafkaConfigBackingStore")

OnChange = Callable[[Changes], None]


class ConfigStore(Protocol):
    """All configurations. `state` is what was read so far."""

    @property
    def state(self) -> ConfigState: ...

    def start(self, on_change: OnChange) -> None:
        """Read what is stored, and call `on_change` for each later change, in any thread."""

    def write(self, records: Iterable[Record]) -> None:
        """Store records, and read them. Raises ConnectError if that fails."""

    def refresh(self) -> None:
        """Read what others have written. Raises ConnectError if that takes too long."""

    def stop(self) -> None: ...


class MemoryConfigs:
    """The configurations of a worker that is alone, which its command line names each time."""

    def __init__(self) -> None:
        self.state = ConfigState()
        self._on_change: OnChange | None = None

    def start(self, on_change: OnChange) -> None:
        self._on_change = on_change

    def write(self, records: Iterable[Record]) -> None:
        for key, value in records:
            self.state, changes = self.state.after(key, value, self.state.offset)
            if changes is not NOTHING and self._on_change is not None:
                self._on_change(changes)

    def refresh(self) -> None: ...

    def stop(self) -> None: ...


class TopicConfigs:
    """The configurations of a group of workers, in a topic with one partition."""

    def __init__(self, new_log: Callable[[Callable[[bytes | None, bytes | None, int], None]], TopicLog]) -> None:
        self._log = new_log(self._read)
        self._lock = threading.Lock()
        self._state = ConfigState()
        self._on_change: OnChange | None = None

    @property
    def state(self) -> ConfigState:
        with self._lock:
            return self._state

    def start(self, on_change: OnChange) -> None:
        if (partitions := self._log.start()) != 1:
            raise ConfigError(
                f"Topic '{self._log.topic}' supplied via the 'config.storage.topic' property is required to have a "
                f"single partition in order to guarantee consistency of connector configurations, but found "
                f"{partitions} partitions."
            )
        self._on_change = on_change

    def write(self, records: Iterable[Record]) -> None:
        sent = [self._log.write(key.encode(), encoded(value)) for key, value in records]
        if not self._log.flush():
            raise ConnectError(f"the topic {self._log.topic} does not acknowledge what was written")
        for each in sent:
            each.result()
        self._log.read_to_end()

    def refresh(self) -> None:
        self._log.read_to_end()

    def stop(self) -> None:
        self._log.stop()

    def _read(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        with self._lock:
            before, self._state = self._state, self._state.behind(offset)
        # An invalid record leaves the state as it is, but all workers have to agree how far they have read.
        name, parsed = _parsed(key, value)
        state, changes = before.after(name, parsed, offset)
        with self._lock:
            self._state = state
        if changes is not NOTHING and self._on_change is not None:
            self._on_change(changes)


def _parsed(key: bytes | None, value: bytes | None) -> tuple[str, Any]:
    """Return key and value of a stored record. Raises ValueError."""
    try:
        parsed: Any = None if value is None else json.loads(value)
    except RecursionError as error:
        raise ValueError(f"the JSON of {key!r:.100} is nested too deeply") from error
    if key is None or not isinstance(parsed, dict | None):
        raise ValueError(f"expected a key and a JSON object, found {value!r:.100}")
    return key.decode(), parsed
