"""Names of topics at the target, and of MirrorMaker 2's own topics (`ReplicationPolicy`, KIP-382, KIP-597, KIP-720).

The default policy calls the copy of `orders` from cluster A `A.orders`, and a copy of that from B `B.A.orders`. The
identity policy keeps names, and so cannot recognize loops; only heartbeats get the alias there, too.

Owns what a name means. Must not know which topics exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from spark_jobs.connect.base.errors import ConfigError
from tools.base.command_line import UsageError
from tools.base.plug_ins import load_plug_in

POLICY_CLASS: Final = "replication.policy.class"
SEPARATOR: Final = "replication.policy.separator"
INTERNAL_SEPARATOR_ENABLED: Final = "replication.policy.internal.topic.separator.enabled"
SOURCE_ALIAS: Final = "source.cluster.alias"

DEFAULT_SEPARATOR: Final = "."
HEARTBEATS: Final = "heartbeats"


class ReplicationPolicy(Protocol):
    """What a plug-in has to know. It is constructed with the settings of the connector."""

    def remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name at the target."""

    def source_of(self, topic: str) -> str | None:
        """Return the alias of the cluster from which a topic was copied; None if it is not a copy."""

    def upstream_topic(self, topic: str) -> str | None:
        """Return the name at the cluster from which a topic was copied; None if it is not a copy."""

    def offset_syncs_topic(self, alias: str) -> str: ...

    def checkpoints_topic(self, alias: str) -> str: ...

    def is_checkpoints_topic(self, topic: str) -> bool: ...

    def is_internal(self, topic: str) -> bool:
        """Whether a topic belongs to Kafka, to workers or to MirrorMaker, and is never mirrored."""


class DefaultReplicationPolicy:
    """Puts the alias of the source and a separator before the name."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._separator = config.get(SEPARATOR, DEFAULT_SEPARATOR)
        # Kafka reads the second setting only beside the first.
        applies_to_internal = config.get(INTERNAL_SEPARATOR_ENABLED, "true").strip().lower() == "true"
        self._internal_separator = self._separator if applies_to_internal else DEFAULT_SEPARATOR
        if not self._separator:
            raise ConfigError(f"Invalid value for configuration {SEPARATOR}: String must be non-empty")

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self._separator}{topic}"

    def source_of(self, topic: str) -> str | None:
        first, separator, rest = topic.partition(self._separator)
        # As Java's split, which drops empty parts at the end: `orders.` is no copy of a topic without a name.
        return first if separator and rest.replace(self._separator, "") else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.source_of(topic)
        return None if source is None else topic[len(source) + len(self._separator) :]

    def offset_syncs_topic(self, alias: str) -> str:
        return self._internal_separator.join(("mm2-offset-syncs", alias, "internal"))

    def checkpoints_topic(self, alias: str) -> str:
        return self._internal_separator.join((alias, "checkpoints", "internal"))

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self.checkpoints_topic(""))

    def is_internal(self, topic: str) -> bool:
        ends = ("-internal", ".internal", f"{self._internal_separator}internal")
        return topic.endswith(ends) or topic.startswith(("__", "."))


class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Keeps names. Every topic counts as a copy, because a name does not say whether it is one."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._source_alias = config.get(SOURCE_ALIAS)

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return super().remote_topic(source_alias, topic) if topic.endswith(HEARTBEATS) else topic

    def source_of(self, topic: str) -> str | None:
        return super().source_of(topic) if topic.endswith(HEARTBEATS) else self._source_alias

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if topic.endswith(HEARTBEATS) else topic


_POLICIES: Mapping[str, type[DefaultReplicationPolicy]] = {
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
}


def replication_policy(config: Mapping[str, str]) -> ReplicationPolicy:
    """Return the policy that the settings name. Raises ConfigError."""
    return _loaded(POLICY_CLASS, config.get(POLICY_CLASS, "DefaultReplicationPolicy"))(config)


def check_policy(name: str, value: str) -> None:
    """Raise ConfigError unless the value of a setting is the Java class name of a policy, or `module:Class`."""
    _loaded(name, value)


def _loaded(name: str, value: str) -> Callable[[Mapping[str, str]], ReplicationPolicy]:
    try:
        return load_plug_in(value, _POLICIES, name)
    except UsageError as error:
        raise ConfigError(str(error)) from error


def original_topic(policy: ReplicationPolicy, topic: str) -> str:
    """Return the name that a topic had before its first copy."""
    while (upstream := policy.upstream_topic(topic)) is not None and upstream != topic:
        topic = upstream
    return topic


def is_heartbeats_topic(policy: ReplicationPolicy, topic: str) -> bool:
    return original_topic(policy, topic) == HEARTBEATS


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Whether a topic has been at a cluster before, so that a copy there would make a loop."""
    while (source := policy.source_of(topic)) is not None:
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        topic = upstream
    return False
