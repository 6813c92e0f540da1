"""Files that others put into a folder become records; finished files are kept, moved or deleted.

The source partition is `{"file": PATH}`, the source offset `{"record": N, "size": S, "mtime": T}`: how many records of
the file were sent, and which file it was; the last record of a file adds `"finished": true`. A restarted task continues
behind record N. A file of another size or time is another file, and is read from its start.

A file is read when two listings have shown the same size and time: it may be being written before. Writers that are
slower than `poll.interval.ms` should write under a hidden name (`.NAME`) and rename. After its last record is
acknowledged and offsets are stored, a file is moved or deleted; a worker that ends in between does so after its start.

With several tasks each has some of the files, by their names.

Delivery: exactly-once with `exactly.once.source.support`, else at-least-once from the stored offset on.

Owns which file is next, and what was acknowledged. Must not know protocols (`folders`) or formats (`file_formats`).
"""

from __future__ import annotations

import fnmatch
import logging
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, ClassVar, Final

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.data import STRING
from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    invalid,
    not_empty,
    one_of,
)
from spark_jobs.connect.base.errors import ConnectError, DataError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors import file_formats
from spark_jobs.connect.connectors.file_formats import Format, Value, parse_format
from spark_jobs.connect.connectors.folders import Folder, Found, open_folder, split_url
from spark_jobs.connect.connectors.sources import TOPIC

_LOG = logging.getLogger(__name__)
_WAIT_S = 0.5
_TASK = "task.number"
_TASKS = "task.count"

_SETTINGS: Final = (
    Definition(
        [
            Setting(
                "folder",
                Kind.STRING,
                REQUIRED,
                Importance.HIGH,
                "A path, or a URL with ftp://, ftps:// or sftp://.",
                not_empty,
            ),
            TOPIC,
            Setting("folder.user", Kind.STRING, "", Importance.MEDIUM, "The user on the server."),
            Setting("folder.password", Kind.PASSWORD, "", Importance.MEDIUM, "The password of this user."),
            Setting(
                "file.pattern", Kind.STRING, "*", Importance.MEDIUM, "Which files count, such as *.csv.", not_empty
            ),
            Setting(
                "after.file",
                Kind.STRING,
                "keep",
                Importance.HIGH,
                "What becomes of a finished file: keep, move (into finished.folder) or delete.",
                one_of("keep", "move", "delete"),
            ),
            Setting(
                "finished.folder",
                Kind.STRING,
                None,
                Importance.MEDIUM,
                "Where finished files are moved, a path on the same machine or server.",
            ),
            Setting(
                "malformed.rows",
                Kind.STRING,
                "fail",
                Importance.MEDIUM,
                "fail ends the task at a malformed record; skip logs how many there are.",
                one_of("fail", "skip"),
            ),
            Setting("batch.size", Kind.INT, 2000, Importance.LOW, "The most records of a poll.", at_least(1)),
            Setting(
                "poll.interval.ms", Kind.LONG, 5000, Importance.MEDIUM, "The time between two listings.", at_least(1)
            ),
        ]
    )
    + file_formats.SETTINGS
)


def _parse(config: Mapping[str, str]) -> tuple[dict[str, Any], Format]:
    """Return the settings and the format. Raises ConfigError."""
    settings = _SETTINGS.parse(config)
    split_url(settings["folder"])
    if (settings["after.file"] == "move") != bool(settings["finished.folder"]):
        raise invalid(
            "finished.folder", settings["finished.folder"], "Expected a folder if after.file is move, else none"
        )
    return settings, parse_format(config)


@dataclass(slots=True)
class _File:
    """A file that is being read, or whose records are being acknowledged."""

    source_partition: Mapping[str, Any]
    found: Found
    waiting: int = 0
    is_finished: bool = False


class _Reading:
    """The rest of one file. Looks one record ahead, so that the last one can be marked."""

    def __init__(self, file: _File, content: BinaryIO, values: Iterator[Value], sent: int) -> None:
        self.file = file
        self.sent = sent
        self._content = content
        self._values = values
        self._error: ConnectError | None = None
        self._ahead = self._advance()

    def _advance(self) -> Value | None:
        try:
            return next(self._values, None)
        except ConnectError as error:
            self._error = error
            return None

    @property
    def is_at_end(self) -> bool:
        return self._ahead is None and self._error is None

    def take(self, count: int) -> Iterator[tuple[Value, bool]]:
        """Yield the next records, each with whether it is the last. Raises ConnectError if the first is unreadable."""
        if self._ahead is None and self._error is not None:
            raise self._error
        while count > 0 and self._ahead is not None:
            value, self._ahead = self._ahead, self._advance()
            self.sent += 1
            count -= 1
            yield value, self.is_at_end

    def close(self) -> None:
        self._content.close()


class DropFolderSourceTask(SourceTask):
    version = "1.0"

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._in_use = threading.Lock()  # `stop` closes no file while `poll` reads it
        self._is_open = False
        self._reading: _Reading | None = None
        self._seen: dict[str, Found] = {}  # of the last listing
        self._done: dict[str, Found] = {}  # finished files that are still there
        self._next: list[_File] = []  # in reverse
        self._files: dict[str, _File] = {}  # being read or acknowledged, by path

    def start(self, config: Mapping[str, str]) -> None:
        self._settings, self._format = _parse(config)
        self._topic: str = self._settings["topic"]
        self._number, self._count = int(config.get(_TASK, "0")), int(config.get(_TASKS, "1"))
        self._folder: Folder = open_folder(
            self._settings["folder"], self._settings["folder.user"], self._settings["folder.password"]
        )
        self._is_open = True
        self._due_s = time.monotonic()

    def poll(self) -> Sequence[SourceRecord]:
        with self._in_use:
            if self._stopped.is_set():
                return []
            try:
                if records := self._read():
                    return records
                remaining_s = self._due_s - time.monotonic()
                if remaining_s <= 0:
                    self._list()
                    self._due_s = time.monotonic() + self._settings["poll.interval.ms"] / 1000
                    if self._next:
                        return self._read()
            except OSError as error:
                self._next.clear()  # the next listing finds them again
                self._due_s = time.monotonic() + self._settings["poll.interval.ms"] / 1000
                _LOG.warning("%s: %s: tried again later", self._folder.url, error.strerror or error)
        self._stopped.wait(max(0.0, min(self._due_s - time.monotonic(), _WAIT_S)))
        return []

    def _read(self) -> list[SourceRecord]:
        """Return the next records of the present file, or of the next one."""
        while self._reading is not None or self._next:
            if self._reading is None:
                self._reading = self._open(self._next[-1])
                self._next.pop()
            if self._reading is not None:
                records = [self._record(*each) for each in self._reading.take(self._settings["batch.size"])]
                if self._reading.is_at_end:
                    self._end_reading()
                if records:
                    return records
        return []

    def _open(self, file: _File) -> _Reading | None:
        """Return the rest of a file; None if it has gone."""
        path = file.source_partition["file"]
        stored = self.context.offset_reader.offset(file.source_partition) or {}
        sent = stored.get("record", 0) if _is_of(stored, file.found) else 0
        try:
            content = self._folder.open(file.found.name)
        except FileNotFoundError:
            _LOG.info("%s has gone", path)
            return None
        self._files[path] = file
        values = islice(self._values(path, content), sent, None)
        try:
            return _Reading(file, content, values, sent)
        except BaseException:
            content.close()
            raise

    def _values(self, path: str, content: BinaryIO) -> Iterator[Value]:
        skipped = 0

        def malformed(line: int, reason: str, *, is_fatal: bool = False) -> None:
            nonlocal skipped
            if is_fatal or self._settings["malformed.rows"] == "fail":
                raise DataError(f"{path}, line {line}: {reason}")
            if not skipped:
                _LOG.warning("%s, line %d: %s: skipped", path, line, reason)
            skipped += 1

        try:
            yield from self._format.values(content, malformed)
        except OSError as error:
            raise ConnectError(f"{path}: {error.strerror or error}") from error
        if skipped:
            _LOG.warning("%s: %d malformed records were skipped", path, skipped)

    def _record(self, value: Value, is_last: bool) -> SourceRecord:
        assert self._reading is not None
        file = self._reading.file
        file.waiting += 1
        offset: dict[str, Any] = {
            "record": self._reading.sent,
            "size": file.found.size,
            "mtime": file.found.modified,
        }
        if is_last:
            offset["finished"] = True
        schema, content = value
        is_whole = self._settings["format"] == "whole"
        return SourceRecord(
            file.source_partition,
            offset,
            self._topic,
            content,
            schema,
            file.found.name if is_whole else None,
            STRING if is_whole else None,
        )

    def _end_reading(self) -> None:
        assert self._reading is not None
        self._reading.file.is_finished = True
        self._reading.close()
        self._reading = None

    def _list(self) -> None:
        """Find the files that are to be read: those that have not changed since the last listing."""
        found = {each.name: each for each in self._folder.files() if self._is_mine(each.name)}
        self._done = {name: each for name, each in self._done.items() if found.get(name) == each}
        complete = [each for name, each in found.items() if self._seen.get(name) == each and name not in self._done]
        self._seen = found
        complete = [each for each in complete if self._folder.path(each.name) not in self._files]
        complete.sort(key=lambda each: (each.modified, each.name), reverse=True)
        paths = [{"file": self._folder.path(each.name)} for each in complete]
        self._next = []
        for each, source_partition, stored in zip(
            complete, paths, self.context.offset_reader.offsets(paths), strict=True
        ):
            if stored and stored.get("finished") and _is_of(stored, each):
                self._finish(each)
            else:
                self._next.append(_File(source_partition, each))

    def _is_mine(self, name: str) -> bool:
        return (
            not name.startswith(".")
            and fnmatch.fnmatchcase(name, self._settings["file.pattern"])
            and zlib.crc32(name.encode(errors="surrogateescape")) % self._count == self._number
        )

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        self._files[record.source_partition["file"]].waiting -= 1

    def commit(self) -> None:
        with self._in_use:
            for path, file in list(self._files.items()):
                if file.is_finished and not file.waiting:
                    del self._files[path]
                    self._finish(file.found)

    def _finish(self, found: Found) -> None:
        """Do what `after.file` says. After a failure the file is found, and finished, by the next listing."""
        if self._settings["after.file"] == "keep":
            self._done[found.name] = found
            return
        try:
            if self._folder.find(found.name) != found:
                _LOG.info("%s has gone or changed since it was read", self._folder.path(found.name))
            elif self._settings["after.file"] == "move":
                self._folder.move(found.name, self._settings["finished.folder"])
            else:
                self._folder.delete(found.name)
        except FileNotFoundError:
            _LOG.info("%s has gone", self._folder.path(found.name))
        except OSError as error:
            _LOG.warning("%s remains: %s", self._folder.path(found.name), error.strerror or error)

    def stop(self) -> None:
        self._stopped.set()
        with self._in_use:
            if self._reading is not None:
                self._reading.close()
                self._reading = None
            if self._is_open:
                self._folder.close()


def _is_of(stored: Mapping[str, Any], found: Found) -> bool:
    """Whether a stored offset is that of this file, and not of an earlier one of its name."""
    return (stored.get("size"), stored.get("mtime")) == (found.size, found.modified)


class DropFolderSourceConnector(SourceConnector):
    """Sends what is in files of a folder."""

    version = "1.0"
    definition: ClassVar[Definition] = _SETTINGS
    task = DropFolderSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        _parse(config)
        super().start(config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{**self.config, _TASK: str(number), _TASKS: str(max_tasks)} for number in range(max_tasks)]

    def exactly_once_support(self, config: Mapping[str, str]) -> bool:
        return True

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        for source_partition, source_offset in offsets:
            if source_offset is None:
                continue
            if not isinstance(source_partition.get("file"), str):
                raise ConnectError(f"A partition has the key 'file', not {dict(source_partition)}")
            record = source_offset.get("record")
            if type(record) is not int or record < 0 or not {"size", "mtime"} <= source_offset.keys():
                raise ConnectError(
                    "An offset has the keys 'record', a number that is not negative, 'size' and 'mtime', not"
                    f" {dict(source_offset)}"
                )
        return True
