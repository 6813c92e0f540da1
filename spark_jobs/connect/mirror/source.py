"""The connector that mirrors topics (`MirrorSourceConnector`).

It finds the topics and their partitions, deals the partitions out to tasks in turn, and keeps the topics at the target
like those at the source. A change of the partitions makes the worker ask for new configurations of the tasks.

Owns the work of the connector and when it is repeated. Must not know how records are copied (`source_task`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from base.topic_partition import partition_name
from spark_jobs.connect.base.api import SourceConnector
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.mirror.cluster import both_clusters
from spark_jobs.connect.mirror.connector_settings import (
    EMITS_SYNCS,
    ENABLED,
    REFRESH_TOPICS,
    SOURCE,
    SOURCE_DEFINITION,
    SYNC_ACLS,
    SYNC_CONFIGS,
    SYNCS_LOCATION,
    SYNCS_REPLICATION,
    TASK_INDEX,
    TASK_PARTITIONS,
    ConnectorSettings,
)
from spark_jobs.connect.mirror.offsets import check_offset, require_index, require_text
from spark_jobs.connect.mirror.schedule import Schedule
from spark_jobs.connect.mirror.source_task import CONSUMER_ROLE, MirrorSourceTask
from spark_jobs.connect.mirror.target_topics import TargetTopics

EXACTLY_ONCE: Final = "exactly.once.support"
READ_COMMITTED: Final = "read_committed"
NOT_EXACTLY_ONCE: Final = (
    "MirrorSourceConnector copies exactly once only if its consumer has isolation.level=read_committed; else records "
    "of transactions that are open or aborted are copied too"
)
_OF_SYNCS: Final = ("offset-syncs-", "offset-syncs.topic.")


class MirrorSourceConnector(SourceConnector):
    """Mirrors the topics of one flow."""

    version = KAFKA_VERSION
    definition = SOURCE_DEFINITION
    task = MirrorSourceTask

    _topics: TargetTopics | None = None
    _schedule: Schedule | None = None

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        settings = ConnectorSettings(SOURCE_DEFINITION, config)
        if not settings[ENABLED]:
            return
        self._source, self._target = both_clusters(settings)
        self._topics = TargetTopics(settings, self._source, self._target)
        self._is_started = False
        schedule = self._schedule = Schedule(settings.name)
        schedule.add(lambda: self._create_syncs_topic(settings), None, f"creation of {settings.offset_syncs_topic}")
        schedule.add(self._refresh, settings.interval_s(REFRESH_TOPICS), "the search for topics")
        for name, action in ((SYNC_ACLS, self._topics.sync_acls), (SYNC_CONFIGS, self._topics.sync_configs)):
            if (interval_s := settings.interval_s(name)) is not None:
                schedule.add(action, interval_s, name)
        self._is_started = True
        schedule.start()

    def stop(self) -> None:
        if self._schedule is not None:
            self._schedule.stop()
            self._source.close()
            self._target.close()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Deal the partitions out in turn, so that those of one topic are spread over tasks."""
        partitions = self._topics.partitions if self._topics is not None else ()
        count = min(max_tasks, len(partitions))
        return [
            {
                **self.config,
                TASK_PARTITIONS: ",".join(map(partition_name, partitions[index::count])),
                TASK_INDEX: str(index),
            }
            for index in range(count)
        ]

    def validate(self, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        errors: dict[str, list[str]] = {}
        if config.get(EXACTLY_ONCE) == "required" and not self.exactly_once_support(config):
            errors[EXACTLY_ONCE] = [NOT_EXACTLY_ONCE]
        if config.get(EMITS_SYNCS) == "false" and (given := [key for key in config if key.startswith(_OF_SYNCS)]):
            errors[EMITS_SYNCS] = [f"{given[0]} has no effect while {EMITS_SYNCS} is false"]
        return errors

    def exactly_once_support(self, config: Mapping[str, str]) -> bool:
        try:
            consumer = ConnectorSettings(SOURCE_DEFINITION, config).consumer(SOURCE, CONSUMER_ROLE)
        except ConfigError:  # reported with its own name
            return False
        return bool(consumer["isolation.level"] == READ_COMMITTED)

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is not None:
                require_text(partition, "cluster", "topic")
                require_index(partition)
                check_offset(partition, offset)
        return True

    def _refresh(self) -> None:
        assert self._topics is not None
        if self._topics.refresh() and self._is_started:
            self.context.request_reconfiguration()

    def _create_syncs_topic(self, settings: ConnectorSettings) -> None:
        if settings[EMITS_SYNCS]:
            cluster = self._source if settings[SYNCS_LOCATION] == SOURCE else self._target
            cluster.create_compacted(settings.offset_syncs_topic, settings[SYNCS_REPLICATION])
