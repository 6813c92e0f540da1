"""Settings of the three connectors, and what follows from them: clients, topics and filters.

Settings of clients come in four layers; the last one wins, here for consumers of the source:

    source.cluster.bootstrap.servers    the cluster's address and security
    consumer.fetch.min.bytes            all consumers
    source.consumer.fetch.min.bytes     consumers of the source
    enable.auto.commit=false            what the connector needs

Owns names, defaults and checks. Must not know connectors, or what clients do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    one_of,
)
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.mirror import policies
from spark_jobs.connect.mirror.filters import NameFilter, patterns
from tools.base.command_line import UsageError
from tools.client.client_settings import library_settings

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorConnectorConfig")

SOURCE: Final = "source"
TARGET: Final = "target"

ENABLED: Final = "enabled"
TARGET_ALIAS: Final = "target.cluster.alias"
ADMIN_TIMEOUT_MS: Final = "admin.timeout.ms"
POLL_TIMEOUT_MS: Final = "consumer.poll.timeout.ms"
TOPICS: Final = "topics"
TOPICS_EXCLUDED: Final = "topics.exclude"
GROUPS: Final = "groups"
GROUPS_EXCLUDED: Final = "groups.exclude"
CONFIGS_EXCLUDED: Final = "config.properties.exclude"
DEFAULTS_FROM: Final = "use.defaults.from"
REPLICATION_FACTOR: Final = "replication.factor"
SYNCS_LOCATION: Final = "offset-syncs.topic.location"
SYNCS_REPLICATION: Final = "offset-syncs.topic.replication.factor"
CHECKPOINTS_REPLICATION: Final = "checkpoints.topic.replication.factor"
HEARTBEATS_REPLICATION: Final = "heartbeats.topic.replication.factor"
EMITS_SYNCS: Final = "emit.offset-syncs.enabled"
OFFSET_LAG_MAX: Final = "offset.lag.max"
REFRESH_TOPICS: Final = "refresh.topics"
REFRESH_GROUPS: Final = "refresh.groups"
SYNC_CONFIGS: Final = "sync.topic.configs"
SYNC_ACLS: Final = "sync.topic.acls"
SYNC_GROUPS: Final = "sync.group.offsets"
EMIT_CHECKPOINTS: Final = "emit.checkpoints"
EMIT_HEARTBEATS: Final = "emit.heartbeats"

TASK_PARTITIONS: Final = "task.assigned.partitions"
TASK_GROUPS: Final = "task.assigned.groups"
TASK_INDEX: Final = "task.index"

OLD_NAMES: Mapping[str, str] = {
    "topics.blacklist": TOPICS_EXCLUDED,
    "groups.blacklist": GROUPS_EXCLUDED,
    "config.properties.blacklist": CONFIGS_EXCLUDED,
}
"""Deprecated names, which count only without the new ones."""

_NEVER_MIRRORED: Final = [
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
]
_TEN_MINUTES_S: Final = 600


def _switch(name: str, default: bool, doc: str) -> Setting:
    return Setting(name, Kind.BOOLEAN, default, Importance.LOW, doc)


def _interval(name: str, default_s: int, doc: str, *, is_enabled: bool = True) -> tuple[Setting, Setting]:
    """Return the two settings of something that is repeated."""
    interval = Setting(
        f"{name}.interval.seconds", Kind.LONG, default_s, Importance.LOW, f"How often: {doc}", at_least(0)
    )
    return _switch(f"{name}.enabled", is_enabled, f"Whether to: {doc}"), interval


def _names(name: str, default: list[str] | None, doc: str) -> Setting:
    doc = f"{doc} Names or regular expressions, separated by commas."
    return Setting(name, Kind.LIST, default, Importance.HIGH, doc, patterns)


def _replication(name: str, topic: str) -> Setting:
    # -1 is the default of the cluster (KIP-464).
    doc = f"The replication factor of the topic of {topic}; -1 is the default of the cluster."
    return Setting(name, Kind.SHORT, 3, Importance.LOW, doc, at_least(-1))


def _built_in(name: str, class_name: str) -> Setting:
    """Return a setting whose plug-ins Java has and Python does not: any other class would silently not be used."""
    check = one_of(class_name, class_name.rpartition(".")[2])
    return Setting(name, Kind.CLASS, class_name, Importance.LOW, "Only the built-in class is available.", check)


_TOPIC_FILTER: Final = (
    _names(TOPICS, [".*"], "The topics to mirror."),
    _names(TOPICS_EXCLUDED, [r".*[\-\.]internal", r".*\.replica", "__.*"], "Topics not to mirror, even if included."),
    _names("topics.blacklist", None, f"Deprecated: {TOPICS_EXCLUDED}."),
    _built_in("topic.filter.class", "org.apache.kafka.connect.mirror.DefaultTopicFilter"),
)
_LOCATION: Final = Setting(
    SYNCS_LOCATION, Kind.STRING, SOURCE, Importance.LOW, "The cluster that has the topic of offset syncs.",
    one_of(SOURCE, TARGET),
)  # fmt: skip
_EMITS_SYNCS: Final = _switch(
    EMITS_SYNCS, True, "Whether to write pairs of offsets, without which no position of a group can be translated."
)
_POLL_TIMEOUT: Final = Setting(
    POLL_TIMEOUT_MS, Kind.LONG, 1000, Importance.LOW, "How long to wait for records, in milliseconds.", at_least(0)
)

BASE: Final = Definition(
    [
        _switch(ENABLED, True, "Whether to mirror from the source to the target."),
        Setting(policies.SOURCE_ALIAS, Kind.STRING, REQUIRED, Importance.HIGH, "The alias of the source."),
        Setting(TARGET_ALIAS, Kind.STRING, "target", Importance.HIGH, "The alias of the target."),
        Setting(
            ADMIN_TIMEOUT_MS, Kind.LONG, 60_000, Importance.LOW,
            "How long administration may take, in milliseconds.", at_least(1),
        ),
        Setting(
            policies.POLICY_CLASS, Kind.CLASS, "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
            Importance.LOW, "The names of topics at the target: a Java class name, or module:Class of a plug-in.",
            policies.check_policy,
        ),
        Setting(
            policies.SEPARATOR, Kind.STRING, policies.DEFAULT_SEPARATOR, Importance.LOW,
            "What separates the alias of the source and the name of the topic.",
        ),
        _switch(
            policies.INTERNAL_SEPARATOR_ENABLED, True,
            "Whether the separator is also that of MirrorMaker's own topics; else it is a dot.",
        ),
        _built_in("forwarding.admin.class", "org.apache.kafka.clients.admin.ForwardingAdmin"),
    ]
)  # fmt: skip
SOURCE_DEFINITION: Final = BASE + Definition(
    [
        *_TOPIC_FILTER,
        _names(CONFIGS_EXCLUDED, _NEVER_MIRRORED, "Settings of topics that the target keeps."),
        _names("config.properties.blacklist", None, f"Deprecated: {CONFIGS_EXCLUDED}."),
        _built_in("config.property.filter.class", "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter"),
        Setting(
            DEFAULTS_FROM, Kind.STRING, TARGET, Importance.MEDIUM,
            "The cluster whose defaults are those of settings that a topic does not set.", one_of(SOURCE, TARGET),
        ),
        Setting(
            "use.incremental.alter.configs", Kind.STRING, "requested", Importance.LOW,
            "Settings of topics are always changed by IncrementalAlterConfigs, which the target has to support.",
            one_of("requested", "required"),
        ),
        _POLL_TIMEOUT,
        *_interval(REFRESH_TOPICS, _TEN_MINUTES_S, "look for new topics and partitions."),
        *_interval(SYNC_CONFIGS, _TEN_MINUTES_S, "give topics at the target the settings of those at the source."),
        *_interval(SYNC_ACLS, _TEN_MINUTES_S, "give topics at the target the ACLs of those at the source."),
        Setting(
            REPLICATION_FACTOR, Kind.INT, 2, Importance.LOW,
            "The replication factor of new topics at the target; -1 is the default of the cluster.", at_least(-1),
        ),
        _replication(SYNCS_REPLICATION, "offset syncs"),
        Setting(
            OFFSET_LAG_MAX, Kind.LONG, 100, Importance.LOW,
            "By how many records a translated position may be too early.", at_least(0),
        ),
        _LOCATION,
        _EMITS_SYNCS,
    ]
)  # fmt: skip
CHECKPOINT_DEFINITION: Final = BASE + Definition(
    [
        *_TOPIC_FILTER,
        _names(GROUPS, [".*"], "The groups whose positions are mirrored."),
        _names(GROUPS_EXCLUDED, ["console-consumer-.*", "connect-.*", "__.*"], "Groups left out, even if included."),
        _names("groups.blacklist", None, f"Deprecated: {GROUPS_EXCLUDED}."),
        _built_in("group.filter.class", "org.apache.kafka.connect.mirror.DefaultGroupFilter"),
        _POLL_TIMEOUT,
        *_interval(REFRESH_GROUPS, _TEN_MINUTES_S, "look for new groups."),
        *_interval(EMIT_CHECKPOINTS, 60, "write the translated positions of groups to the target."),
        *_interval(SYNC_GROUPS, 60, "commit them at the target for groups without members there.", is_enabled=False),
        _replication(CHECKPOINTS_REPLICATION, "checkpoints"),
        _LOCATION,
        _EMITS_SYNCS,
    ]
)
HEARTBEAT_DEFINITION: Final = BASE + Definition(
    [
        *_interval(EMIT_HEARTBEATS, 1, "send signs of life to the target."),
        _replication(HEARTBEATS_REPLICATION, "heartbeats"),
    ]
)

_CONSUMER_DEFAULTS: Mapping[str, str] = {"auto.offset.reset": "earliest", "isolation.level": "read_uncommitted"}
"""Those of Java's clients; the library's default is read_committed."""
_PRODUCER_DEFAULTS: Mapping[str, str] = {"max.in.flight.requests.per.connection": "1"}
"""One request at a time keeps the order of pairs: one that is late would look like offsets that went back."""


class ConnectorSettings:
    """The parsed settings of one connector or task."""

    def __init__(self, definition: Definition, config: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self.config = _under_new_names(config)
        self._values = definition.parse(self.config)
        self.name = self.config.get("name", "mirror")
        self.source_alias: str = self._values[policies.SOURCE_ALIAS]
        self.target_alias: str = self._values[TARGET_ALIAS]
        self.policy = policies.replication_policy(self.config)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def alias(self, cluster: str) -> str:
        """Return the alias of SOURCE or TARGET."""
        return self.source_alias if cluster == SOURCE else self.target_alias

    def interval_s(self, name: str) -> float | None:
        """Return the interval of something that is repeated; None if it is not enabled."""
        return float(self[f"{name}.interval.seconds"]) if self[f"{name}.enabled"] else None

    @property
    def admin_timeout_ms(self) -> int:
        return int(self[ADMIN_TIMEOUT_MS])

    @cached_property
    def topic_filter(self) -> NameFilter:
        return NameFilter(self[TOPICS], self[TOPICS_EXCLUDED])

    @cached_property
    def group_filter(self) -> NameFilter:
        return NameFilter(self[GROUPS], self[GROUPS_EXCLUDED])

    @cached_property
    def config_filter(self) -> NameFilter:
        return NameFilter([".*"], self[CONFIGS_EXCLUDED])

    @property
    def offset_syncs_topic(self) -> str:
        """The topic is at the source, with the alias of the target in its name, or the other way round."""
        return self.policy.offset_syncs_topic(self.alias(TARGET if self[SYNCS_LOCATION] == SOURCE else SOURCE))

    @property
    def checkpoints_topic(self) -> str:
        return self.policy.checkpoints_topic(self.source_alias)

    def admin(self, cluster: str) -> dict[str, str]:
        """Return settings of Java's names for administration. Raises ConfigError."""
        return self._client(cluster, "admin.")

    def consumer(self, cluster: str, role: str) -> dict[str, Any]:
        """Return the library's settings of a consumer. Raises ConfigError."""
        given = {**_CONSUMER_DEFAULTS, **self._client(cluster, "consumer."), "enable.auto.commit": "false"}
        given = {key: value for key, value in given.items() if key != "poll.timeout.ms"}  # the connector's own setting
        # The library wants a group, which a consumer with a manual assignment never joins.
        given.setdefault("group.id", self._client_id(role))
        return {**self._library(given, role, is_consumer=True), "enable.auto.offset.store": False}

    def producer(self, cluster: str, role: str) -> dict[str, Any]:
        """Return the library's settings of a producer. Raises ConfigError."""
        return self._library({**_PRODUCER_DEFAULTS, **self._client(cluster, "producer.")}, role, is_consumer=False)

    def _client(self, cluster: str, kind: str) -> dict[str, str]:
        of_cluster = entries_with_prefix(self.config, f"{cluster}.cluster.")
        found = {
            **{key: value for key, value in of_cluster.items() if is_of_cluster(key)},
            **entries_with_prefix(self.config, kind),
            **entries_with_prefix(self.config, f"{cluster}.{kind}"),
        }
        if not found.get("bootstrap.servers", "").strip():
            raise ConfigError(f"{self.name} has no {cluster}.cluster.bootstrap.servers: expected host:port")
        return found

    def _client_id(self, role: str) -> str:
        index = f"-{self.config[TASK_INDEX]}" if TASK_INDEX in self.config else ""
        return f"{self.source_alias}->{self.target_alias}|{self.name}{index}|{role}"

    def _library(self, given: Mapping[str, str], role: str, *, is_consumer: bool) -> dict[str, Any]:
        own = self._client_id(role)
        client_id = f"{given['client.id']}|{own}" if "client.id" in given else own
        try:
            result = library_settings({**given, "client.id": client_id}, is_consumer=is_consumer)
        except UsageError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        return result


def is_of_cluster(key: str) -> bool:
    """Whether all clients of a cluster share a setting: its address and its security."""
    return key in ("bootstrap.servers", "security.protocol") or key.startswith(("sasl.", "ssl."))


def entries_with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings that begin with a prefix, without it."""
    return {key[len(prefix) :]: value for key, value in settings.items() if key.startswith(prefix) and key != prefix}


def _under_new_names(config: Mapping[str, str]) -> dict[str, str]:
    renamed = dict(config)
    for old, new in OLD_NAMES.items():
        if old in renamed:
            logger.warning("%s is deprecated; use %s", old, new)
            renamed.setdefault(new, renamed.pop(old))
    return renamed
