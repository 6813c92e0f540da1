"""The connector that mirrors the positions of groups (`MirrorCheckpointConnector`).

A checkpoint is a group's position at the source, and its translation. It is a record of a compacted topic at the
target, from which a client that fails over reads where to continue. With `sync.group.offsets.enabled` the translated
position is committed as well, unless the group has members at the target.

Owns the search for groups. Must not know how positions are translated (`checkpoint_task`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from spark_jobs.connect.base.api import SourceConnector
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.mirror.checkpoint_task import MirrorCheckpointTask
from spark_jobs.connect.mirror.cluster import both_clusters
from spark_jobs.connect.mirror.connector_settings import (
    CHECKPOINT_DEFINITION,
    CHECKPOINTS_REPLICATION,
    EMIT_CHECKPOINTS,
    EMITS_SYNCS,
    ENABLED,
    REFRESH_GROUPS,
    TASK_GROUPS,
    TASK_INDEX,
    ConnectorSettings,
)
from spark_jobs.connect.mirror.offsets import check_offset, require_index, require_text
from spark_jobs.connect.mirror.schedule import Schedule

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorCheckpointConnector")

_NEEDED: Mapping[str, str] = {
    f"{EMIT_CHECKPOINTS}.enabled": "MirrorCheckpointConnector has nothing to do if it is false",
    EMITS_SYNCS: "MirrorCheckpointConnector cannot translate positions if it is false",
}


class MirrorCheckpointConnector(SourceConnector):
    """Mirrors the positions of the groups of one flow."""

    version = KAFKA_VERSION
    definition = CHECKPOINT_DEFINITION
    task = MirrorCheckpointTask

    _groups: Sequence[str] = ()
    _schedule: Schedule | None = None

    def start(self, config: Mapping[str, str]) -> None:
        super().start(config)
        settings = self._settings = ConnectorSettings(CHECKPOINT_DEFINITION, config)
        if not settings[ENABLED] or settings.interval_s(EMIT_CHECKPOINTS) is None:
            return
        self._source, self._target = both_clusters(settings)
        self._is_started = False
        self._schedule = Schedule(settings.name)
        self._schedule.add(self._create_topic, None, f"creation of {settings.checkpoints_topic}")
        self._schedule.add(self._refresh, settings.interval_s(REFRESH_GROUPS), "the search for groups")
        self._is_started = True
        self._schedule.start()

    def stop(self) -> None:
        if self._schedule is not None:
            self._schedule.stop()
            self._source.close()
            self._target.close()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Give each task groups that follow each other, and all about the same number."""
        groups = self._groups
        count = min(max_tasks, len(groups))
        bounds = [len(groups) * index // count for index in range(count + 1)] if count else []
        return [
            {**self.config, TASK_GROUPS: ",".join(groups[begin:end]), TASK_INDEX: str(index)}
            for index, (begin, end) in enumerate(pairwise(bounds))
        ]

    def validate(self, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        if config.get(ENABLED) == "false":
            return {}
        return {name: [reason] for name, reason in _NEEDED.items() if config.get(name) == "false"}

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            if offset is not None:
                require_text(partition, "group", "topic")
                require_index(partition)
                check_offset(partition, offset, is_zero=True)
        return True

    def _create_topic(self) -> None:
        settings = self._settings
        self._target.create_compacted(settings.checkpoints_topic, settings[CHECKPOINTS_REPLICATION])

    def _refresh(self) -> None:
        groups = sorted(filter(self._is_mirrored, self._source.groups()))
        if groups == self._groups:
            return
        added, removed = set(groups).difference(self._groups), set(self._groups).difference(groups)
        logger.info(
            "%s->%s: the positions of %d groups are mirrored, %d of them new; %d are gone",
            self._settings.source_alias, self._settings.target_alias, len(groups), len(added), len(removed),
        )  # fmt: skip
        self._groups = groups
        if self._is_started:
            self.context.request_reconfiguration()

    def _is_mirrored(self, group: str) -> bool:
        """Whether a group is included, and has positions in topics that are mirrored."""
        if not self._settings.group_filter.accepts(group):
            return False
        return any(self._settings.topic_filter.accepts(topic) for topic, _ in self._source.positions(group))
