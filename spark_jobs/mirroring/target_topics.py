"""The topics at the target: made like those at the source, and kept so.

A missing topic is made with the source's number of partitions; one with fewer gets more. With `sync_configs`, the
settings that were changed at the source are set at the target as well, and removed there when they are removed at the
source. Settings that would keep the target from storing the records as they are stay its own. A warning names the
topics whose records the target deletes earlier than the source.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
)

from spark_jobs.mirroring.naming import TopicNames
from spark_jobs.skeleton.topics import TopicSpec, create_topics

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 30
_NAMED_MAX = 5  # topics in one warning
_NOT_MIRRORED = frozenset(
    {
        # They name replicas of their own cluster, or depend on their number.
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        # The target must store the source's timestamps, however old.
        "message.timestamp.type",
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    }
)


class TargetTopics:
    """Compares the topics of two clusters. It connects for each comparison: a kept client would reconnect for ever."""

    def __init__(
        self,
        source: Mapping[str, str],
        target: Mapping[str, str],
        names: TopicNames,
        *,
        replication_factor: int,
        sync_configs: bool,
    ) -> None:
        """`source` and `target` are settings of librdkafka's clients."""
        self._source = source
        self._target = target
        self._names = names
        self._replication_factor = replication_factor
        self._sync_configs = sync_configs
        self.source_partitions: dict[str, int] = {}  # as of the last comparison
        self._of_known_retention: set[str] = set()

    def sync(self) -> dict[str, int]:
        """Make the target's topics like the source's; return their numbers of partitions by name at the target."""
        source, target = AdminClient(dict(self._source)), AdminClient(dict(self._target))
        present = self.source_partitions = _partitions(source)
        there = _partitions(target)
        wanted = {self._names.target(topic): topic for topic in present if self._names.includes(topic)}
        configs = _changed_configs(source, wanted.values()) if self._sync_configs else {}
        self._create({name: topic for name, topic in wanted.items() if name not in there}, configs)
        for name, topic in wanted.items():
            if there.get(name, present[topic]) < present[topic]:
                target.create_partitions([NewPartitions(name, present[topic])])[name].result(_TIMEOUT_S)
                _LOG.info("%s has %d partitions now, like the source", name, present[topic])
        if self._sync_configs:
            _alter(target, {name: configs.get(topic, {}) for name, topic in wanted.items() if name in there})
        new = {name: topic for name, topic in wanted.items() if name not in self._of_known_retention}
        of_source, of_target = _retention_ms(source, new.values()), _retention_ms(target, new)
        _warn_of_retention(of_source, of_target, new)
        self._of_known_retention.update(name for name in of_target if new[name] in of_source)
        return {name: max(there.get(name, 0), present[topic]) for name, topic in wanted.items()}

    def _create(self, missing: Mapping[str, str], configs: Mapping[str, Mapping[str, str]]) -> None:
        if missing:
            specs = [
                TopicSpec(name, self.source_partitions[topic], self._replication_factor, configs.get(topic, {}))
                for name, topic in missing.items()
            ]
            create_topics(self._target, specs)
            for name, topic in missing.items():
                _LOG.info("%s was made, like %s at the source", name, topic)


def warn_unless_compacted(target: Mapping[str, str], topic: str) -> None:
    """Log that a topic of the mirror itself, which somebody else made, grows without end: it has a value for each key.

    Nothing is logged if this client may not read its settings.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with suppress(KafkaException):
        admin = AdminClient(dict(target))
        policy = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)["cleanup.policy"].value
        if "compact" not in policy:
            _LOG.warning("%s grows without end: it has cleanup.policy=%s, expected compact", topic, policy)


def _warn_of_retention(
    of_source: Mapping[str, float], of_target: Mapping[str, float], topics: Mapping[str, str]
) -> None:
    """Log in one line which target topics (keys of `topics`) keep records for a shorter time than their source."""
    shorter = [
        f"{name} ({of_target[name]:.0f}, {'-1' if math.isinf(of_source[topic]) else of_source[topic]} at the source)"
        for name, topic in sorted(topics.items())
        if name in of_target and topic in of_source and of_target[name] < of_source[topic]
    ]
    if shorter:
        more = f" and {len(shorter) - _NAMED_MAX} more topics" if len(shorter) > _NAMED_MAX else ""
        _LOG.warning(
            "the target deletes records earlier than the source, the oldest soon after they are copied: "
            "retention.ms is shorter for %s%s. --sync-configs copies the settings of topics, not those of brokers",
            ", ".join(shorter[:_NAMED_MAX]), more,
        )  # fmt: skip


def _retention_ms(admin: AdminClient, topics: Iterable[str]) -> dict[str, float]:
    """Return how long each topic keeps its records, infinity for ever.

    Topics whose settings this client may not read are absent: a mirror without `sync_configs` needs no permission to.
    So are topics that the broker does not know yet: another one may respond than the one that made them.
    """
    found = {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for resource, future in (admin.describe_configs(resources) if resources else {}).items():
        try:
            config = future.result(_TIMEOUT_S)
        except KafkaException:
            continue
        retention_ms = int(config["retention.ms"].value)
        deletes = "delete" in config["cleanup.policy"].value and retention_ms >= 0
        found[resource.name] = retention_ms if deletes else math.inf
    return found


def _alter(target: AdminClient, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Set the settings that differ; a setting that only the target has is removed."""
    present = _changed_configs(target, wanted)
    resources = []
    for topic, config in wanted.items():
        own = present.get(topic, {})
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
            if own.get(key) != value
        ]
        entries += [
            ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in own if key not in config
        ]
        if entries:
            resources.append(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries))
    if resources:
        for resource, future in target.incremental_alter_configs(resources).items():
            future.result(_TIMEOUT_S)
            _LOG.info("settings of %s were changed, like at the source", resource.name)


def _changed_configs(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the settings of each topic that differ from the broker's defaults."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not resources:
        return {}
    futures = admin.describe_configs(resources)
    return {
        resource.name: {
            key: entry.value
            for key, entry in future.result(_TIMEOUT_S).items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and key not in _NOT_MIRRORED
        }
        for resource, future in futures.items()
    }


def _partitions(admin: AdminClient) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=_TIMEOUT_S).topics.items()}
