"""The connector that sends signs of life to the target (`MirrorHeartbeatConnector`).

A heartbeat is a record of the topic `heartbeats`, which is mirrored like any other: readers see which flows work, and
how late they are. Owns the topic and the interval. Must not know other connectors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.data import BYTES
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.mirror.cluster import Cluster
from spark_jobs.connect.mirror.connector_settings import (
    EMIT_HEARTBEATS,
    HEARTBEAT_DEFINITION,
    HEARTBEATS_REPLICATION,
    TARGET,
    ConnectorSettings,
)
from spark_jobs.connect.mirror.formats import Heartbeat
from spark_jobs.connect.mirror.offsets import OFFSET_KEY, check_offset, require_text
from spark_jobs.connect.mirror.policies import HEARTBEATS
from spark_jobs.connect.mirror.schedule import Schedule


class MirrorHeartbeatTask(SourceTask):
    """Sends a heartbeat at each interval."""

    version = KAFKA_VERSION

    def __init__(self) -> None:
        self._is_stopping = threading.Event()

    def start(self, config: Mapping[str, str]) -> None:
        settings = ConnectorSettings(HEARTBEAT_DEFINITION, config)
        self._aliases = (settings.source_alias, settings.target_alias)
        self._source_partition = Heartbeat(*self._aliases, 0).source_partition()
        self._interval_s = settings.interval_s(EMIT_HEARTBEATS) or 0.0

    def poll(self) -> Sequence[SourceRecord]:
        if self._is_stopping.wait(self._interval_s):
            return []
        now_ms = time.time_ns() // 1_000_000
        beat = Heartbeat(*self._aliases, now_ms)
        return [
            SourceRecord(
                self._source_partition, {OFFSET_KEY: 0}, HEARTBEATS, beat.value(), BYTES, beat.key(), BYTES, 0, now_ms
            )
        ]

    def stop(self) -> None:
        self._is_stopping.set()


class MirrorHeartbeatConnector(SourceConnector):
    """Has one task. It runs whether or not the flow is enabled: the flow back may be, and mirrors the heartbeats."""

    version = KAFKA_VERSION
    definition = HEARTBEAT_DEFINITION
    task = MirrorHeartbeatTask

    _schedule: Schedule | None = None

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        settings = ConnectorSettings(HEARTBEAT_DEFINITION, config)
        self._is_enabled = settings.interval_s(EMIT_HEARTBEATS) is not None
        self._target = Cluster(settings.target_alias, settings.admin(TARGET), settings.admin_timeout_ms)
        schedule = self._schedule = Schedule(settings.name)
        schedule.add(
            lambda: self._target.create_compacted(HEARTBEATS, settings[HEARTBEATS_REPLICATION]),
            None,
            f"creation of {HEARTBEATS}",
        )
        schedule.start()

    def stop(self) -> None:
        if self._schedule is not None:
            self._schedule.stop()
            self._target.close()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.config] if self._is_enabled else []

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is not None:
                require_text(partition, "sourceClusterAlias", "targetClusterAlias")
                check_offset(partition, offset, is_zero=True)
        return True
