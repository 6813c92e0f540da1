"""Stores of the offsets of sources: a topic of a group of workers, and the file of a single one.

The key of an offset is the JSON text `["CONNECTOR",{source partition}]`, its value the JSON text of the source offset.
Java's workers write the fields of a source partition in the order of their hash map: a key that the store already has
is kept as it is, so that the same source partition keeps its key.

Owns keys and values. Must not know sources.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.stores.config_state import encoded
from spark_jobs.connect.stores.java_map_file import read_map, write_map
from spark_jobs.connect.stores.topic_log import TopicLog

logger = logging.getLogger("org.apache.kafka.connect.storage.OffsetStorageWriter")

REFRESH_S: Final = 80.0
"""How long a refresh may take. A killed worker leaves a transaction open, which the broker ends after a minute, the
default of `transaction.timeout.ms`, and at most ten seconds."""

Partition = Mapping[str, Any]
Offset = Mapping[str, Any]
Offsets = Sequence[tuple[Partition, Offset | None]]


class OffsetStore(Protocol):
    """The offsets of all sources of a group of workers."""

    @property
    def topic(self) -> str | None:
        """The topic that has them; None if it is a file."""

    def start(self) -> None:
        """Read what is stored. Raises ConnectError."""

    def stop(self) -> None: ...

    def refresh(self) -> None:
        """Read what others have stored. Raises ConnectError if that takes too long."""

    def offset(self, connector: str, partition: Partition) -> Offset | None: ...

    def all_of(self, connector: str) -> list[tuple[Partition, Offset]]:
        """Return the stored offsets of a connector."""

    def messages(self, connector: str, offsets: Offsets) -> list[tuple[bytes, bytes | None]]:
        """Return key and value of the records that store offsets."""

    def store(self, connector: str, offsets: Offsets, timeout_s: float) -> bool:
        """Store offsets durably, None to forget one; return False if that takes longer or fails."""


class OffsetTable:
    """Offsets by connector and source partition, with the keys that they were stored under."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[bytes, bytes]] = {}
        """By the key in one canonical form: the key as stored, and the value."""
        self._connectors: dict[str, set[str]] = {}

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take a stored record. Raises ValueError for one that is not an offset."""
        connector, partition, offset = _parsed(key, value)
        canonical = _canonical(connector, partition)
        with self._lock:
            if value is None or offset is None:
                self._entries.pop(canonical, None)
                self._connectors.get(connector, set()).discard(canonical)
            else:
                self._entries[canonical] = (key or b"", value)
                self._connectors.setdefault(connector, set()).add(canonical)

    def offset(self, connector: str, partition: Partition) -> Offset | None:
        with self._lock:
            found = self._entries.get(_canonical(connector, partition))
        return None if found is None else json.loads(found[1])

    def all_of(self, connector: str) -> list[tuple[Partition, Offset]]:
        with self._lock:
            entries = [self._entries[each] for each in sorted(self._connectors.get(connector, ()))]
        return [(json.loads(key)[1], json.loads(value)) for key, value in entries]

    def messages(self, connector: str, offsets: Offsets) -> list[tuple[bytes, bytes | None]]:
        return [(self._key(connector, partition), encoded(offset)) for partition, offset in offsets]

    def entries(self) -> dict[bytes, bytes | None]:
        """Return all records as they are stored."""
        with self._lock:
            return dict(self._entries.values())

    def _key(self, connector: str, partition: Partition) -> bytes:
        with self._lock:
            known = self._entries.get(_canonical(connector, partition))
        return known[0] if known is not None else encoded([connector, partition]) or b""


def _parsed(key: bytes | None, value: bytes | None) -> tuple[str, Partition, Offset | None]:
    """Return connector, source partition and offset of a stored record. Raises ValueError."""
    try:
        found, offset = json.loads(key or b""), None if value is None else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON, found {key!r:.100} and {value!r:.100}: {error}") from error
    match found, offset:
        case [str(connector), dict(partition)], None | dict():
            return connector, partition, offset
    raise ValueError(f'expected ["CONNECTOR",{{..}}] and a JSON object, found {key!r:.100} and {value!r:.100}')


def _canonical(connector: str, partition: Partition) -> str:
    return json.dumps([connector, partition], sort_keys=True, separators=(",", ":"))


class _Stored:
    """What both stores have in common: a table."""

    def __init__(self) -> None:
        self._table = OffsetTable()

    def offset(self, connector: str, partition: Partition) -> Offset | None:
        return self._table.offset(connector, partition)

    def all_of(self, connector: str) -> list[tuple[Partition, Offset]]:
        return self._table.all_of(connector)

    def messages(self, connector: str, offsets: Offsets) -> list[tuple[bytes, bytes | None]]:
        return self._table.messages(connector, offsets)


class FileOffsets(_Stored):
    """The file of a standalone worker, replaced as a whole each time."""

    topic = None

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._lock = threading.Lock()

    def start(self) -> None:
        try:
            stored = read_map(self._path)
        except OSError as error:
            raise ConnectError(f"{self._path} cannot be read: {error.strerror}") from error
        for key, value in stored.items():
            try:
                self._table.read(key, value)
            except ValueError as error:
                raise ConnectError(f"{self._path} has an invalid key {key!r:.100}: {error}") from error

    def stop(self) -> None: ...

    def refresh(self) -> None: ...

    def store(self, connector: str, offsets: Offsets, timeout_s: float) -> bool:
        with self._lock:
            messages = self.messages(connector, offsets)
            try:
                entries = {**self._table.entries(), **dict(messages)}
                write_map(self._path, {key: value for key, value in entries.items() if value is not None})
            except OSError as error:
                logger.error("the offsets of %s are not stored in %s: %s", connector, self._path, error)
                return False
            for key, value in messages:
                self._table.read(key, value)
        return True


class TopicOffsets(_Stored):
    """The topic of a group of workers."""

    def __init__(self, new_log: Callable[[Callable[[bytes | None, bytes | None, int], None]], TopicLog]) -> None:
        super().__init__()
        self._log = new_log(lambda key, value, _offset: self._table.read(key, value))

    @property
    def topic(self) -> str:
        return self._log.topic

    def start(self) -> None:
        self._log.start()

    def stop(self) -> None:
        self._log.stop()

    def refresh(self) -> None:
        self._log.read_to_end(REFRESH_S)

    def store(self, connector: str, offsets: Offsets, timeout_s: float) -> bool:
        sent = [self._log.write(key, value) for key, value in self.messages(connector, offsets)]
        if not self._log.flush(timeout_s):
            logger.error("the offsets of %s are not stored within %g s", connector, timeout_s)
            return False
        failures = [error for each in sent if (error := each.exception()) is not None]
        for error in failures[:1]:
            logger.error("the offsets of %s are not stored: %s", connector, error)
        return not failures


class ConnectorOffsets:
    """The offsets of one connector, as its tasks read and store them."""

    def __init__(self, store: OffsetStore, connector: str) -> None:
        self._store = store
        self._connector = connector

    def offset(self, source_partition: Partition) -> Offset | None:
        """Return the last stored offset of one part of the source; None if there is none."""
        return self._store.offset(self._connector, source_partition)

    def offsets(self, source_partitions: Sequence[Partition]) -> list[Offset | None]:
        return [self.offset(each) for each in source_partitions]

    def store(self, offsets: Offsets, timeout_s: float) -> bool:
        return self._store.store(self._connector, offsets, timeout_s)

    def messages(self, offsets: Offsets) -> Iterable[tuple[str, bytes, bytes | None]]:
        """Return topic, key and value of the records that store offsets, for a transaction."""
        topic = self._store.topic
        if topic is None:
            raise ConnectError("offsets in a file cannot be part of a transaction")
        return [(topic, key, value) for key, value in self._store.messages(self._connector, offsets)]

    def refresh(self) -> None:
        """Read what other workers have stored. Raises ConnectError if that takes too long."""
        self._store.refresh()
