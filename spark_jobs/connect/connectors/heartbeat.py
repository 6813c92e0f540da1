"""One record per interval, with the time: shows that a worker runs and that its records arrive.

Key is the connector's name, value a Struct with `timestamp` in ms. An interval that was missed is not made up for.

Owns when a record is due. Must not know who reads them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.data import INT64, STRING, Struct, struct_schema
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, at_least
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors.sources import TOPIC, wait_until_due

VALUE_SCHEMA: Final = struct_schema({"timestamp": INT64}, name="milena.connect.Heartbeat", version=1)
_WAIT_S = 1.0


class HeartbeatSourceTask(SourceTask):
    version = "1.0"

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(self, config: Mapping[str, str]) -> None:
        settings = HeartbeatSourceConnector.definition.parse(config)
        self._name = config.get("name", "heartbeat")
        self._source_partition = {"heartbeat": self._name}
        self._topic: str = settings["topic"]
        self._interval_s: float = settings["emit.interval.ms"] / 1000
        self._due_s = time.monotonic()

    def poll(self) -> Sequence[SourceRecord]:
        if not wait_until_due(self._due_s, self._stopped, _WAIT_S):
            return []
        self._due_s = max(self._due_s + self._interval_s, time.monotonic())
        now_ms = time.time_ns() // 1_000_000
        record = SourceRecord(
            self._source_partition,
            {"timestamp": now_ms},
            self._topic,
            Struct(VALUE_SCHEMA, {"timestamp": now_ms}),
            VALUE_SCHEMA,
            self._name,
            STRING,
            timestamp_ms=now_ms,
        )
        return [record]

    def stop(self) -> None:
        self._stopped.set()


class HeartbeatSourceConnector(SourceConnector):
    """Sends the time, once per interval."""

    version = "1.0"
    definition: ClassVar[Definition] = Definition(
        [
            TOPIC,
            Setting(
                "emit.interval.ms", Kind.LONG, 1000, Importance.MEDIUM, "The time between two records.", at_least(1)
            ),
        ]
    )
    task = HeartbeatSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        self.definition.parse(config)
        super().start(config)
