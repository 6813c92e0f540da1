"""The producers and consumers of connectors: which settings they have.

Owns the defaults that lose nothing, and the order in which settings win: the connector's own (`producer.override.` and
`consumer.override.`) before the worker's (`producer.` and `consumer.`) before these defaults. Must not know tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.connect.base.connector_settings import ADMIN_OVERRIDE, CONSUMER_OVERRIDE, PRODUCER_OVERRIDE
from spark_jobs.connect.base.definitions import Kind, parse
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.worker.settings import WorkerSettings, for_library, with_prefix
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.connect.runtime.Worker")

PRODUCER_DEFAULTS: Final = {
    "acks": "all",
    "buffer.memory": str(32 << 20),
    "delivery.timeout.ms": str(2**31 - 1),
    "max.in.flight.requests.per.connection": "1",
    "retries": str(2**31 - 1),
}
TRANSACTIONAL: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "5",
}
OFFSET_RESET: Final = "auto.offset.reset"
METADATA_AGE: Final = "metadata.max.age.ms"
CONSUMER_DEFAULTS: Final = {OFFSET_RESET: "earliest", METADATA_AGE: "300000"}
ASSIGNORS: Final = "partition.assignment.strategy"
COOPERATIVE: Final = ("CooperativeStickyAssignor", "cooperative-sticky")
_EARLIEST: Final = ("earliest", "smallest", "beginning")
_LATEST: Final = ("latest", "largest", "end")
_REPORT: Final = "error"
"""The library reports a position that a log does not have, and the task begins again itself."""
# The partitioner selects the same partition for a key as Java's producer; the queue has the size of its buffer.
PRODUCER_QUEUE: Final = {"partitioner": "murmur2_random", "queue.buffering.max.messages": 20_000}
CONSUMER_QUEUE: Final = {"fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": 1_024}
"""How far the library reads ahead: less than its default, and without a pause of a second when it has read enough."""
PRINCIPAL_SETTINGS: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
"""What a connector may override with the policy 'Principal'."""


class Clients:
    """Makes the clients of one worker."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings

    def producer(self, task: TaskId, config: Mapping[str, str]) -> library.Producer:
        """Raises ConfigError."""
        return self._producer(f"connector-producer-{task}", PRODUCER_DEFAULTS, config, {})

    def transactional_producer(self, task: TaskId, config: Mapping[str, str]) -> library.Producer:
        """Return a producer whose transactional id is that of the task. Raises ConfigError."""
        last = {"transactional.id": transactional_id(self._settings.group_id, task)}
        defaults = {**PRODUCER_DEFAULTS, **TRANSACTIONAL}
        return self._producer(f"connector-producer-{task}", defaults, config, last)

    def consumer(self, task: TaskId, config: Mapping[str, str]) -> library.Consumer:
        """Return a member of the connector's group. Raises ConfigError."""
        settings = {
            "group.id": sink_group(task.connector),
            "client.id": f"connector-consumer-{task}",
            **self._session(),
            **self._consumer_settings(config),
            "enable.auto.commit": "false",
        }
        if (assignors := settings.get(ASSIGNORS)) is not None:
            settings[ASSIGNORS] = _eager(assignors, task)
        if self.reset_offset(config) is not None:
            settings[OFFSET_RESET] = _REPORT
        return library.Consumer({**for_library(settings, is_consumer=True), **CONSUMER_QUEUE})

    def reset_offset(self, config: Mapping[str, str]) -> int | None:
        """Return where a sink begins if a log does not have its position, as a logical offset of the library.

        None if the task is to fail then. Raises ConfigError.
        """
        reset = self._consumer_settings(config)[OFFSET_RESET].lower()
        offsets: dict[str, int] = {
            **dict.fromkeys(_EARLIEST, library.OFFSET_BEGINNING),
            **dict.fromkeys(_LATEST, library.OFFSET_END),
        }
        return offsets.get(reset)

    def metadata_age_s(self, config: Mapping[str, str]) -> float:
        """Return how often a sink looks which topics there are. Raises ConfigError."""
        age_ms: int = parse(METADATA_AGE, Kind.LONG, self._consumer_settings(config)[METADATA_AGE])
        return age_ms / 1000

    def _consumer_settings(self, config: Mapping[str, str]) -> dict[str, str]:
        return {**CONSUMER_DEFAULTS, **self.job_settings(config, is_consumer=True)}

    def _session(self) -> dict[str, str]:
        """Return how long the partitions of a dead worker wait: as long as its tasks do."""
        if not self._settings.is_distributed:
            return {}
        return {name: str(self._settings[name]) for name in ("session.timeout.ms", "heartbeat.interval.ms")}

    def job_settings(self, config: Mapping[str, str], *, is_consumer: bool) -> dict[str, str]:
        """Return the settings of the clients of a job, a sink or a source, under Java's names. Raises ConfigError."""
        kind, prefix = ("consumer", CONSUMER_OVERRIDE) if is_consumer else ("producer", PRODUCER_OVERRIDE)
        return {**self._settings.client(kind), **self.overrides(config, prefix)}

    def admin_settings(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of an administration client, as the client library has them."""
        return for_library(self.java_admin_settings(config), is_consumer=False)

    def java_admin_settings(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of an administration client under Java's names."""
        return {**self._settings.client("admin"), **self.overrides(config, ADMIN_OVERRIDE)}

    def overrides(self, config: Mapping[str, str], prefix: str) -> dict[str, str]:
        """Return what a connector overrides. Raises ConfigError for what the worker's policy forbids."""
        found = with_prefix(config, prefix)
        policy = self._settings["connector.client.config.override.policy"].lower()
        forbidden = {
            "all": set(),
            "none": set(found),
            "principal": set(found) - PRINCIPAL_SETTINGS,
        }[policy]
        if forbidden:
            raise ConfigError(
                f"The worker's policy {policy} does not allow a connector to override {prefix}{min(forbidden)}"
            )
        return found

    def _producer(
        self, client_id: str, defaults: Mapping[str, str], config: Mapping[str, str], last: Mapping[str, str]
    ) -> library.Producer:
        settings = {
            **defaults,
            "client.id": client_id,
            **self._settings.client("producer"),
            **self.overrides(config, PRODUCER_OVERRIDE),
            **last,
        }
        return library.Producer({**for_library(settings, is_consumer=False), **PRODUCER_QUEUE})


def _eager(assignors: str, task: TaskId) -> str:
    """Return a list of assignors without cooperative ones, which the library mixes with no others.

    Tasks take all of their partitions together, so the others serve them as well.
    """
    wanted = [each.strip() for each in assignors.split(",")]
    kept = [each for each in wanted if not each.endswith(COOPERATIVE)]
    if kept != wanted:
        logger.warning("task %s: %s names a cooperative assignor, which is left out", task, ASSIGNORS)
    return ",".join(kept) or "range"


def transactional_id(group_id: str, task: TaskId) -> str:
    """Return the name by which a later run of a task fences an earlier one, on any worker."""
    return f"{group_id}-{task}"


def sink_group(connector: str) -> str:
    return f"connect-{connector}"
