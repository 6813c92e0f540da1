"""The task that translates the positions of some groups (`MirrorCheckpointTask`).

It first reads the checkpoints that were written earlier, then the pairs of offsets, and then at each interval the new
pairs and the positions of its groups. Everything is done by the thread that calls `poll`.

Owns the order of this. Must not know the rules of translation.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from base.topic_partition import TopicPartition, partition_name
from spark_jobs.connect.base.api import SourceTask
from spark_jobs.connect.base.data import BYTES
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.base.versions import KAFKA_VERSION
from spark_jobs.connect.mirror import policies
from spark_jobs.connect.mirror.checkpoints import Checkpoints
from spark_jobs.connect.mirror.cluster import Cluster, Position, both_clusters
from spark_jobs.connect.mirror.connector_settings import (
    CHECKPOINT_DEFINITION,
    EMIT_CHECKPOINTS,
    POLL_TIMEOUT_MS,
    SYNC_GROUPS,
    SYNCS_LOCATION,
    TARGET,
    TASK_GROUPS,
    ConnectorSettings,
)
from spark_jobs.connect.mirror.formats import Checkpoint, OffsetSync
from spark_jobs.connect.mirror.offset_syncs import OffsetSyncStore
from spark_jobs.connect.mirror.offsets import OFFSET_KEY
from spark_jobs.connect.mirror.topic_reader import TopicReader

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorCheckpointTask")

IDLE: Final = frozenset({"Empty", "Dead"})
"""States of groups without members. A group that the target does not know is dead."""
_DEAD: Final = "Dead"
_SYNCS_ROLE: Final = "offset-syncs-{}-consumer"
_CHECKPOINTS_ROLE: Final = "checkpoints-target-consumer"


class MirrorCheckpointTask(SourceTask):
    """Translates the positions of the groups in `task.assigned.groups`."""

    version = KAFKA_VERSION

    def __init__(self) -> None:
        self._is_stopping = threading.Event()
        self._access = threading.Lock()
        self._open: list[Cluster | TopicReader[OffsetSync]] = []

    def start(self, config: Mapping[str, str]) -> None:
        settings = self._settings = ConnectorSettings(CHECKPOINT_DEFINITION, config)
        self._groups = [group for group in config.get(TASK_GROUPS, "").split(",") if group]
        self._timeout_s = settings[POLL_TIMEOUT_MS] / 1000
        self._source, self._target = both_clusters(settings)
        self._checkpoints = Checkpoints()
        self._store = OffsetSyncStore()
        location = settings[SYNCS_LOCATION]
        role = _SYNCS_ROLE.format(location)
        self._syncs = TopicReader(
            settings.offset_syncs_topic, settings.consumer(location, role), OffsetSync.from_record
        )
        self._open += [self._source, self._target, self._syncs]
        self._interval_s = settings.interval_s(EMIT_CHECKPOINTS) or 0.0
        self._sync_interval_s = settings.interval_s(SYNC_GROUPS)
        now_s = time.monotonic()
        self._due_s = now_s + self._interval_s
        self._sync_due_s = now_s + (self._sync_interval_s or 0.0)

    def poll(self) -> Sequence[SourceRecord]:
        """Return new checkpoints if it is time, else none after a while. A cluster that fails is tried again."""
        with self._access:
            try:
                if self._is_stopping.is_set():
                    return []
                if not self._store.is_loaded:
                    self._load()
                return self._checkpoints_if_due()
            except ConnectError as error:
                logger.warning("%s: %s", self._settings.name, error)
                self._is_stopping.wait(self._timeout_s)
                return []
            finally:
                if self._is_stopping.is_set():
                    self._close()

    def stop(self) -> None:
        """A `poll` that waits for a cluster is not waited for: it closes everything itself. May be called again."""
        self._is_stopping.set()
        if self._access.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._access.release()

    def _close(self) -> None:
        while self._open:
            self._open.pop().close()

    def _checkpoints_if_due(self) -> list[SourceRecord]:
        if self._sync_interval_s is not None and time.monotonic() >= self._sync_due_s:
            self._sync_due_s = time.monotonic() + self._sync_interval_s
            self._commit_at_target()
        wait_s = self._due_s - time.monotonic()
        if wait_s > 0:
            self._is_stopping.wait(min(wait_s, self._timeout_s))
        if self._is_stopping.is_set() or time.monotonic() < self._due_s:
            return []
        self._due_s = time.monotonic() + self._interval_s
        for sync in self._syncs.new():
            self._store.add(sync)
        return [self._record(checkpoint) for group in self._groups for checkpoint in self._new_checkpoints(group)]

    def _load(self) -> None:
        """Read what was written earlier. Raises ConnectError to be called again."""
        has_checkpoints = self._load_checkpoints()
        self._store.begin(begins_at_end=not has_checkpoints)
        for sync in self._syncs.to_end(self._settings.admin_timeout_ms / 1000):
            self._store.add(sync)
        self._store.loaded()

    def _load_checkpoints(self) -> bool:
        """Return whether the earlier checkpoints could be read."""
        settings = self._settings
        wanted = set(self._groups)
        consumer = settings.consumer(TARGET, _CHECKPOINTS_ROLE)
        reader = TopicReader(settings.checkpoints_topic, consumer, Checkpoint.from_record)
        try:
            for checkpoint in reader.to_end(settings.admin_timeout_ms / 1000):
                if checkpoint.group in wanted:
                    self._checkpoints.add(checkpoint)
        except ConnectError as error:
            self._checkpoints.clear()
            logger.warning("only positions behind what is copied from now on are translated: %s", error)
            return False
        finally:
            reader.close()
        return True

    def _new_checkpoints(self, group: str) -> list[Checkpoint]:
        if self._is_stopping.is_set():
            return []
        try:
            positions = self._source.positions(group)
        except ConnectError as error:  # one group may be forbidden or unavailable
            logger.error("%s", error)
            return []
        found = []
        for (topic, partition), position in positions.items():
            checkpoint = self._translated(group, topic, partition, position)
            if checkpoint is not None and self._checkpoints.is_new(checkpoint):
                self._checkpoints.add(checkpoint)
                found.append(checkpoint)
        return found

    def _translated(self, group: str, topic: str, partition: int, position: Position) -> Checkpoint | None:
        if not self._settings.topic_filter.accepts(topic):
            return None
        downstream_offset = self._store.translate(topic, partition, position.offset)
        if downstream_offset is None or downstream_offset < 0:
            return None
        remote = self._remote(topic)
        return Checkpoint(group, remote, partition, position.offset, downstream_offset, position.metadata)

    def _remote(self, topic: str) -> str:
        """Return the name at the target; a copy from there is the original there."""
        policy = self._settings.policy
        if policy.source_of(topic) == self._settings.target_alias:
            return policies.original_topic(policy, topic)
        return policy.remote_topic(self._settings.source_alias, topic)

    def _record(self, checkpoint: Checkpoint) -> SourceRecord:
        return SourceRecord(
            checkpoint.source_partition(),
            {OFFSET_KEY: 0},
            self._settings.checkpoints_topic,
            checkpoint.value(),
            BYTES,
            checkpoint.key(),
            BYTES,
            0,
            time.time_ns() // 1_000_000,
        )

    def _commit_at_target(self) -> None:
        """Commit the translated positions of groups without members at the target."""
        states = self._target.groups()
        for group in self._groups:
            state = states.get(group, _DEAD)
            if state not in IDLE:
                logger.debug("group %s is %s at the target: its positions stay", group, state)
                continue
            committed = self._target.positions(group) if group in states else {}
            if missing := self._checkpoints.missing_positions(group, committed):
                self._commit(group, missing)

    def _commit(self, group: str, missing: Mapping[TopicPartition, Position]) -> None:
        failures = self._target.commit(group, missing)
        for partition, failure in failures.items():
            logger.warning("group %s: %s is not committed: %s", group, partition_name(partition), failure.text)
