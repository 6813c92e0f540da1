"""Plug-ins whose methods do what a test says, for workers in the process of the test and in others.

A test gives a connector a `Script` by its name. Without one a method does nothing; each start of a task adds a line to
the file that the setting `starts` names, which other processes can read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from base.topic_partition import TopicPartition
from spark_jobs.connect.base.api import (
    Connector,
    Offsets,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
    Transformation,
)
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting
from spark_jobs.connect.base.errors import DataError, RetriableError
from spark_jobs.connect.base.records import SinkRecord, SourceRecord

IDLE_S = 0.02


class Script:
    """What the methods of a connector and its tasks do, and which were called with which arguments."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        self.methods = methods
        self.calls: list[tuple[Any, ...]] = []

    def call(self, method: str, plugin: Any, *arguments: Any) -> Any:
        self.calls.append((method, *arguments))
        return self.methods[method](plugin, *arguments) if method in self.methods else None

    def count(self, method: str) -> int:
        return sum(call[0] == method for call in self.calls)

    def arguments(self, method: str) -> list[Any]:
        """Return the first argument of each call of a method."""
        return [call[1] for call in self.calls if call[0] == method]


SCRIPTS: dict[str, Script] = {}
"""By the name of a connector."""


def _script(config: Mapping[str, str]) -> Script:
    return SCRIPTS.setdefault(config["name"], Script())


DEFINITION = Definition(
    [
        Setting("starts", Kind.STRING, None, Importance.LOW, "The file that each start of a task is added to."),
        Setting("password", Kind.PASSWORD, None, Importance.LOW, "A secret."),
        Setting("tasks", Kind.INT, 1, Importance.LOW, "How many tasks there are."),
    ]
)


class _Scripted(Connector):
    version = "1.5"
    definition = DEFINITION

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        _script(config).call("start_connector", self, config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        found = _script(self.config).call("task_configs", self, max_tasks)
        if found is not None:
            return list(found)
        count = min(max_tasks, int(self.config.get("tasks", max_tasks)))
        return [{**self.config, "number": str(number)} for number in range(count)]

    def validate(self, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return _script(config).call("validate", self, config) or {}

    def stop(self) -> None:
        _script(self.config).call("stop_connector", self)


def _add_start(config: Mapping[str, str]) -> None:
    if config.get("starts"):
        with Path(config["starts"]).open("a") as file:
            file.write(f"{os.getpid()} {config['name']}-{config['number']}\n")


class ScriptedSourceTask(SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        self.config, self.stopped = config, threading.Event()
        self.script = _script(config)
        _add_start(config)
        self.script.call("start", self, config)

    def poll(self) -> Sequence[SourceRecord]:
        found = self.script.call("poll", self)
        if found is None:
            self.stopped.wait(IDLE_S)
        return found or []

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        self.script.call("commit_record", self, record.value, partition, offset)

    def commit(self) -> None:
        self.script.call("commit", self)

    def stop(self) -> None:
        self.script.call("stop", self)
        self.stopped.set()


class ScriptedSource(_Scripted, SourceConnector):
    task = ScriptedSourceTask

    def exactly_once_support(self, config: Mapping[str, str]) -> bool:
        return True

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> bool:
        return True

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        return bool(_script(config).call("alter_offsets", self, offsets))


class ScriptedSinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        self.config = config
        self.script = _script(config)
        _add_start(config)
        self.script.call("start", self, config)

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self.script.call("open", self, list(partitions))

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            self.script.call("put", self, [each.value for each in records], records)

    def flush(self, offsets: Offsets) -> None:
        self.script.call("flush", self, dict(offsets))

    def pre_commit(self, offsets: Offsets) -> Offsets:
        wanted: Offsets | None = self.script.call("pre_commit", self, dict(offsets))
        return super().pre_commit(offsets) if wanted is None else wanted

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        self.script.call("close", self, list(partitions))

    def stop(self) -> None:
        self.script.call("stop", self)


class ScriptedSink(_Scripted, SinkConnector):
    task = ScriptedSinkTask


class Refuse(Transformation):
    """Fails for one value."""

    definition = Definition([Setting("value", Kind.STRING, REQUIRED, Importance.HIGH, "The value that it refuses.")])

    def configure(self, config: Mapping[str, str]) -> None:
        self.value = self.definition.parse(config)["value"]

    def apply(self, record: Any) -> Any:
        if record.value == self.value:
            raise DataError(f"{self.value} is refused")
        return record


class Postpone(Refuse):
    """Fails for now, each time, for one value."""

    seen: ClassVar[list[Any]] = []

    def apply(self, record: Any) -> Any:
        self.seen.append(record.value)
        if record.value == self.value:
            raise RetriableError(f"{self.value} is postponed")
        return record
