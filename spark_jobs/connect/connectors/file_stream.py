"""Kafka's file connectors: lines of a file to a topic, and records of topics to lines of a file.

Names, settings and offsets are those of Kafka 3.9 (`connect-file`): the source partition is `{"filename": PATH}`, the
source offset `{"position": BYTES}`. Beyond Kafka the source notices rotation (`line_readers`), and with `exactly.once`
the sink leaves no duplicate after a crash (`sink_file`); one task then writes the file, whatever `tasks.max` is.

Owns the settings and the records. Must not know how files are read, written or recovered.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from base.topic_partition import TopicPartition
from spark_jobs.connect.base.api import (
    Offsets,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from spark_jobs.connect.base.data import STRING
from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    not_empty,
)
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.records import SinkRecord, SourceRecord
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.connectors.line_readers import FileTail, LineReader, StandardInput
from spark_jobs.connect.connectors.sink_file import SinkFile, load_flushed, store_flushed
from spark_jobs.connect.converters.java_text import to_string
from spark_jobs.skeleton.followed_file import QUIET_S

_LOG = logging.getLogger(__name__)
_IDLE_S = 0.2
_FILENAME = "filename"
_POSITION = "position"

_FILE: Final = Setting(
    "file", Kind.STRING, None, Importance.HIGH, "Source filename. If not specified, the standard input will be used"
)
LINES: Final = Definition(
    [
        Setting("topic", Kind.STRING, REQUIRED, Importance.HIGH, "The topic to publish data to", not_empty),
        Setting(
            "batch.size",
            Kind.INT,
            2000,
            Importance.LOW,
            "The maximum number of records the source task can read from the file each time it is polled",
            at_least(1),
        ),
        Setting(
            "line.max.bytes",
            Kind.INT,
            16 << 20,
            Importance.LOW,
            "The length of the longest line; the task fails at a longer one.",
            at_least(1),
        ),
    ]
)
"""The settings of a source of lines that is not a file."""
_SOURCE: Final = Definition([_FILE]) + LINES
_SINK: Final = Definition(
    [
        Setting(
            "file",
            Kind.STRING,
            None,
            Importance.HIGH,
            "Destination filename. If not specified, the standard output will be used",
        ),
        Setting(
            "exactly.once",
            Kind.BOOLEAN,
            True,
            Importance.MEDIUM,
            "Store offsets in FILE.offsets at each flush, so that a crash leaves no duplicate line. One task then"
            " writes the file, and nobody else may. An extension: Kafka's connector is as with false.",
        ),
    ]
)


class FileStreamSourceTask(SourceTask):
    version = KAFKA_VERSION
    definition: ClassVar[Definition] = _SOURCE

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._in_use = threading.Lock()  # `stop` closes no file while `poll` reads it
        self._reader: LineReader | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._file: str | None = settings.get("file") or None
        self._source_partition = {_FILENAME: self._file}
        self._topic: str = settings["topic"]
        self._batch_size: int = settings["batch.size"]
        if self._file is None:
            self._reader = StandardInput(settings["line.max.bytes"])
        else:
            self._reader = FileTail(Path(self._file), self._stored_position(), settings["line.max.bytes"], QUIET_S)

    def _stored_position(self) -> int:
        stored = self.context.offset_reader.offset(self._source_partition) or {}
        position = stored.get(_POSITION)
        if position is None:
            return 0
        if type(position) is not int or position < 0:
            raise ConnectError(f"the stored offset of {self._file} is {position!r}: expected a number of bytes")
        return position

    def poll(self) -> Sequence[SourceRecord]:
        with self._in_use:
            if self._stopped.is_set() or self._reader is None:
                return []
            lines = self._reader.read(self._batch_size)
        if not lines:
            self._stopped.wait(_IDLE_S)
            return []
        now_ms = time.time_ns() // 1_000_000
        return [
            SourceRecord(self._source_partition, {_POSITION: position}, self._topic, line, STRING, timestamp_ms=now_ms)
            for line, position in lines
        ]

    def stop(self) -> None:
        self._stopped.set()
        with self._in_use:
            if self._reader is not None:
                self._reader.close()


class FileStreamSourceConnector(SourceConnector):
    """Sends each line of a file, and those that are appended later."""

    version = KAFKA_VERSION
    definition: ClassVar[Definition] = _SOURCE
    task = FileStreamSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        super().start(config)
        _LOG.info("the source reads from %s", settings.get("file") or "the standard input")

    def exactly_once_support(self, config: Mapping[str, str]) -> bool:
        """Whether a file is given, which is only appended to; the standard input has no offsets."""
        return bool(self.definition.parse(config).get("file"))

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        if not self.definition.parse(config).get("file"):
            raise ConnectError(
                "Offsets cannot be changed without the setting 'file': the standard input has no offsets."
            )
        for source_partition, source_offset in offsets:
            if source_offset is not None:  # to forget an offset is never wrong
                _check_offset(source_partition, source_offset)
        return True


def _check_offset(source_partition: Mapping[str, Any] | None, source_offset: Mapping[str, Any]) -> None:
    if _POSITION not in source_offset:
        raise ConnectError(f"An offset is null or has the key '{_POSITION}', not {dict(source_offset)}")
    position = source_offset[_POSITION]
    if type(position) is not int or position < 0:
        raise ConnectError(f"The value of '{_POSITION}' is {position!r}: expected a number that is not negative")
    if source_partition is None or _FILENAME not in source_partition:
        raise ConnectError(f"A partition has the key '{_FILENAME}', not {source_partition}")


class FileStreamSinkTask(SinkTask):
    version = KAFKA_VERSION
    definition: ClassVar[Definition] = _SINK

    def __init__(self) -> None:
        self._file: SinkFile | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        if settings.get("file"):
            self._file = SinkFile(Path(settings["file"]), exactly_once=settings["exactly.once"])

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        if self._file is not None and self._file.is_exactly_once:
            self._file.identify(self.context.topic_ids({topic for topic, _ in partitions}))
            offsets = self._file.offsets
            if known := {each: offsets[each] for each in partitions if each in offsets}:
                self.context.seek(known)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        lines = [
            record.value if type(record.value) is str else to_string(record.value, record.value_schema)
            for record in records
        ]
        lines.append("")
        content = "\n".join(lines).encode(errors="replace")
        if self._file is None:
            sys.stdout.buffer.write(content)
        else:
            positions = {(each.original_topic, each.original_partition): each.offset + 1 for each in records}
            self._file.append(content, positions)

    def flush(self, offsets: Offsets) -> None:
        if self._file is None:
            sys.stdout.buffer.flush()
            return
        try:
            self._file.flush(offsets)
        except OSError:
            # The worker delivers again what it has not committed: the file may have a part of it.
            self.context.seek(self._file.offsets)
            raise

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FileStreamSinkConnector(SinkConnector):
    """Appends the value of each record to a file, as a line."""

    version = KAFKA_VERSION
    definition: ClassVar[Definition] = _SINK
    task = FileStreamSinkTask

    def start(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        super().start(config)
        _LOG.info("the sink writes to %s", settings.get("file") or "the standard output")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        settings = self.definition.parse(self.config)
        one_writes = settings.get("file") and settings.get("exactly.once")
        return [self.config] * (1 if one_writes else max_tasks)

    def alter_offsets(self, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Change the offsets beside the file too, if it is on this machine: a task continues at these."""
        settings = self.definition.parse(config)
        path = Path(settings.get("file") or "")
        if settings.get("file") and (flushed := load_flushed(path)) is not None:
            merged = {**flushed.offsets, **offsets}
            known = {partition: offset for partition, offset in merged.items() if offset is not None}
            store_flushed(path, replace(flushed, offsets=known))
        return True
