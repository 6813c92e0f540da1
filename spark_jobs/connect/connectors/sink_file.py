"""The file that a sink task appends to, and beside it `FILE.offsets`: how long the file was, and which records it had.

    {"length": 120, "offsets": {"clicks": {"0": 17}}, "topic-ids": {"clicks": "8jTn3b1mQ0ao8QSVxA8bvw"}}

The state is stored at each flush, after the content is on the drive. Whoever opens the file again cuts what was
appended later, and continues at the stored offsets: an end at any moment leaves each record in the file once. For this
one task alone may append to a file, so it is locked. Offsets of a topic that was deleted and created again, which has
another id, are dropped: the file then continues at the offsets of the group.

Owns both files. Must not know records or topics beyond their offsets.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from base.replaced_file import replace_file
from base.system_calls import SYSTEM_CALLS
from base.topic_partition import TopicPartition
from spark_jobs.connect.base.errors import ConnectError, RetriableError

_LOG = logging.getLogger(__name__)
_TOPIC_IDS = "topic-ids"
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Flushed:
    """What a file had at its last flush."""

    length: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Of the topics with offsets, where the brokers have named them."""


def offsets_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.offsets")


def load_flushed(path: Path) -> Flushed | None:
    """Return the state beside a file; None if there is none. Raises ConnectError if it is damaged."""
    side_file = offsets_path(path)
    try:
        stored = json.loads(side_file.read_bytes())
        offsets = {
            (str(topic), int(partition)): int(offset)
            for topic, by_partition in stored["offsets"].items()
            for partition, offset in by_partition.items()
        }
        topic_ids = {str(topic): str(each) for topic, each in stored.get(_TOPIC_IDS, {}).items()}
        return Flushed(int(stored["length"]), offsets, topic_ids)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConnectError(
            f"{side_file} is damaged ({error!r}): restore it, or delete it to continue at the offsets of the group"
        ) from error


def store_flushed(path: Path, flushed: Flushed) -> None:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in flushed.offsets.items():
        by_topic.setdefault(topic, {})[str(partition)] = offset
    topic_ids = {topic: each for topic, each in flushed.topic_ids.items() if topic in by_topic}
    content = {"length": flushed.length, "offsets": by_topic, _TOPIC_IDS: topic_ids}
    replace_file(offsets_path(path), json.dumps(content))


class SinkFile:
    """A file that is open for appending."""

    def __init__(self, path: Path, *, exactly_once: bool) -> None:
        """Raises ConnectError if the file cannot be opened, or if another task has it."""
        self._path = path
        self._flushed: Flushed | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConnectError(f"the file {path} of the setting file cannot be opened: {error.strerror}") from error
        try:
            if exactly_once:
                self._lock()
                self._flushed = self._recover()
                self._offsets.update(self._flushed.offsets)
                self._topic_ids.update(self._flushed.topic_ids)
            else:
                offsets_path(path).unlink(missing_ok=True)  # else it would cut the file when the setting changes back
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def is_exactly_once(self) -> bool:
        return self._flushed is not None

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The offset of the next record of each partition that the file has; empty unless exactly once."""
        return self._offsets if self._flushed else {}

    def identify(self, topic_ids: Mapping[str, str]) -> None:
        """Set the ids that topics have now, and drop the offsets of those that had another one.

        Only if exactly once. Raises OSError.
        """
        assert self._flushed is not None
        other = {topic for topic, each in topic_ids.items() if self._topic_ids.get(topic, each) != each}
        self._topic_ids.update(topic_ids)
        if not other:
            return  # new ids are stored at the next flush
        _LOG.warning("%s has offsets of topics that were deleted: %s; dropped", self._path, ", ".join(sorted(other)))
        self._offsets = _without(self._offsets, other)
        flushed = Flushed(self._flushed.length, _without(self._flushed.offsets, other), dict(self._topic_ids))
        store_flushed(self._path, flushed)
        self._flushed = flushed

    def append(self, content: bytes, offsets: Mapping[TopicPartition, int]) -> None:
        """Append the records before these offsets, all or none.

        Raises RetriableError if the disk is full, ConnectError for another failure.
        """
        length = self._length()
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            os.ftruncate(self._descriptor, length)
            kind = RetriableError if error.errno in _DISK_IS_FULL else ConnectError
            raise kind(f"{self._path}: {error.strerror}") from error
        self._offsets.update(offsets)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store that the file has the records before these offsets.

        Raises OSError. Then the file goes on behind `offsets`, which records of before the failure may have raised.
        """
        if self._flushed is None:
            return  # nothing is held back
        self._offsets.update(offsets)
        flushed = Flushed(self._length(), dict(self._offsets), dict(self._topic_ids))
        if flushed != self._flushed:
            self._sync()
            store_flushed(self._path, flushed)
            self._flushed = flushed

    def close(self) -> None:
        os.close(self._descriptor)

    def _sync(self) -> None:
        """Write the content to the drive. Raises OSError, and the file is as at the last flush."""
        assert self._flushed is not None
        try:
            SYSTEM_CALLS.sync_data(self._descriptor)
        except OSError:
            # The kernel reports once what it could not write, and drops it: another attempt would succeed without it.
            os.ftruncate(self._descriptor, self._flushed.length)
            self._offsets = dict(self._flushed.offsets)
            raise

    def _length(self) -> int:
        return os.fstat(self._descriptor).st_size

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConnectError(
                f"another task writes the file {self._path} of the setting file: choose another file, or"
                " exactly.once=false for both"
            ) from None

    def _recover(self) -> Flushed:
        length = self._length()
        flushed = load_flushed(self._path)
        if flushed is None:
            return Flushed(length)
        if length > flushed.length:
            _LOG.warning("%s: the last %d bytes were not flushed: cut", self._path, length - flushed.length)
            os.ftruncate(self._descriptor, flushed.length)
        elif length < flushed.length:
            _LOG.warning("%s has %d bytes, fewer than the %d flushed", self._path, length, flushed.length)
        return replace(flushed, length=min(length, flushed.length))


def _without(offsets: Mapping[TopicPartition, int], topics: Collection[str]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in offsets.items() if partition[0] not in topics}
