"""Keeps the topics at the target like those at the source: partitions, settings and ACLs.

Settings of the target that differ from the source are changed. ACLs are created under the topic's name at the target,
without permission to write, because only the mirror writes there. An ACL that was copied and is then removed at the
source is removed at the target too; others at the target stay.

Owns what is compared and changed. Must not know when.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from base.topic_partition import TopicPartition, partition_name
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsResourceResult
from protocol.messages.incremental_alter_configs import AlterableConfig
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.mirror import policies
from spark_jobs.connect.mirror.acls import mirrored_operation
from spark_jobs.connect.mirror.cluster import Acl, Cluster
from spark_jobs.connect.mirror.connector_settings import (
    DEFAULTS_FROM,
    REPLICATION_FACTOR,
    SOURCE,
    ConnectorSettings,
)

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorSourceConnector")

_SET, _DELETE = 0, 1
_OF_TOPIC, _STATIC, _DEFAULT = 1, 4, 5
"""Where the value of a setting comes from."""
_NO_LEADER: Final = -1


class TargetTopics:
    """Compares two clusters. Not thread-safe, but `partitions` may be read by other threads."""

    def __init__(self, settings: ConnectorSettings, source: Cluster, target: Cluster) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self.partitions: Sequence[TopicPartition] = ()
        """Those at the source that are mirrored, as of the last `refresh`, in order."""
        self._leaderless: frozenset[TopicPartition] = frozenset()
        self._copied_acls: set[Acl] = set()
        self._has_authorizer = True

    def refresh(self) -> bool:
        """Create and grow topics; return whether other partitions are mirrored than before. Raises ConnectError."""
        at_source = {name: found for name, found in self._source.partitions().items() if self.is_mirrored(name)}
        self._report_leaderless(at_source)
        at_target = self._target.partitions()
        wanted = {self._remote(name): name for name in at_source}
        self._create({remote: name for remote, name in wanted.items() if remote not in at_target}, at_source)
        self._grow(
            {
                remote: len(at_source[name])
                for remote, name in wanted.items()
                if remote in at_target and len(at_target[remote]) < len(at_source[name])
            }
        )
        partitions = sorted((name, index) for name, found in at_source.items() for index in found)
        if partitions == self.partitions:
            return False
        added, removed = set(partitions).difference(self.partitions), set(self.partitions).difference(partitions)
        logger.info(
            "%s->%s: %d partitions are mirrored, %d of them new; %d are gone",
            self._source.alias, self._target.alias, len(partitions), len(added), len(removed),
        )  # fmt: skip
        self.partitions = partitions
        return True

    def is_mirrored(self, topic: str) -> bool:
        """Whether a topic of the source is mirrored: heartbeats always are."""
        policy = self._settings.policy
        if policy.is_internal(topic) or policies.is_cycle(policy, topic, self._target.alias):
            return False
        return self._settings.topic_filter.accepts(topic) or policies.is_heartbeats_topic(policy, topic)

    def sync_configs(self) -> None:
        """Change settings of topics at the target that differ. Raises ConnectError."""
        names = {self._remote(name): name for name in dict.fromkeys(name for name, _ in self.partitions)}
        at_source = self._source.topic_configs(list(names.values()))
        present = self._target.partitions()
        at_target = self._target.topic_configs([remote for remote in names if remote in present])
        changes = {
            remote: found
            for remote, name in names.items()
            if remote in at_target
            and name in at_source
            and (found := self._config_changes(at_source[name], at_target[remote]))
        }
        if not changes:
            return
        failures = self._target.alter_topic_configs(changes)
        for remote in changes:
            if remote in failures:
                logger.warning("the settings of %s are not changed: %s", remote, failures[remote].text)
            else:
                logger.info("the settings of %s were changed, like at the source", remote)

    def sync_acls(self) -> None:
        """Create ACLs that the target lacks, and remove those that the source has no more. Raises ConnectError."""
        at_source = self._source.topic_acls()
        if at_source is None:
            if self._has_authorizer:
                logger.info(
                    "%s has no authorizer, so no ACLs are copied: consider sync.topic.acls.enabled=false",
                    self._source.alias,
                )
            self._has_authorizer = False
            return
        self._has_authorizer = True
        wanted = self._wanted_acls(at_source)
        at_target = self._target.topic_acls()
        if at_target is None:
            raise ConnectError(f"{self._target.alias} has no authorizer: set sync.topic.acls.enabled=false")
        self._create_acls(sorted(wanted - at_target))
        self._delete_acls(sorted((self._copied_acls - wanted) & at_target))
        # What was not removed stays known, and is tried again.
        self._copied_acls = wanted | ((self._copied_acls - wanted) & at_target)

    def _remote(self, topic: str) -> str:
        return self._settings.policy.remote_topic(self._source.alias, topic)

    def _create(self, missing: Mapping[str, str], at_source: Mapping[str, Mapping[int, int]]) -> None:
        """Create topics at the target; `missing` has their names there and at the source."""
        if not missing:
            return
        configs = self._source.topic_configs(list(missing.values()))
        wanted = {
            remote: (len(at_source[name]), self._new_config(configs.get(name, ()))) for remote, name in missing.items()
        }
        failures = self._target.create_topics(wanted, self._settings[REPLICATION_FACTOR])
        for remote, (count, _) in wanted.items():
            failure = failures.get(remote)
            if failure is None:
                logger.info("created topic %s with %d partitions", remote, count)
            elif failure.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("topic %s cannot be created: %s", remote, failure.text)

    def _grow(self, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        failures = self._target.create_partitions(counts)
        for remote, count in counts.items():
            failure = failures.get(remote)
            if failure is None:
                logger.info("topic %s has %d partitions now, like the source", remote, count)
            elif failure.code != ErrorCode.INVALID_PARTITIONS:  # it has them already
                logger.warning("topic %s gets no more partitions: %s", remote, failure.text)

    def _new_config(self, at_source: Iterable[DescribeConfigsResourceResult]) -> dict[str, str | None]:
        return {each.name: each.value for each in self._mirrored(at_source) if self._is_set(each)}

    def _config_changes(
        self, at_source: Iterable[DescribeConfigsResourceResult], at_target: Iterable[DescribeConfigsResourceResult]
    ) -> list[AlterableConfig]:
        present = {each.name: each for each in at_target}
        changes = []
        for each in self._mirrored(at_source):
            own = present.get(each.name)
            is_overridden = own is not None and own.config_source == _OF_TOPIC
            if not self._is_set(each):
                if is_overridden:
                    changes.append(AlterableConfig(name=each.name, config_operation=_DELETE, value=None))
            elif not is_overridden or (own is not None and own.value != each.value):
                changes.append(AlterableConfig(name=each.name, config_operation=_SET, value=each.value))
        return changes

    def _mirrored(self, at_source: Iterable[DescribeConfigsResourceResult]) -> Iterable[DescribeConfigsResourceResult]:
        """Yield the settings that are compared: not those of the source's brokers, and no secrets."""
        for each in at_source:
            is_own = each.read_only or each.is_sensitive or each.config_source == _STATIC
            if not is_own and self._settings.config_filter.accepts(each.name):
                yield each

    def _is_set(self, each: DescribeConfigsResourceResult) -> bool:
        """Whether the target gets a value; else its own default holds."""
        return not (each.is_default or each.config_source == _DEFAULT) or self._settings[DEFAULTS_FROM] == SOURCE

    def _wanted_acls(self, at_source: Iterable[Acl]) -> set[Acl]:
        wanted = set()
        for acl in at_source:
            operation = mirrored_operation(acl.operation, acl.permission)
            if operation is not None and self.is_mirrored(acl.topic):
                wanted.add(acl._replace(topic=self._remote(acl.topic), operation=operation))
        return wanted

    def _create_acls(self, acls: Sequence[Acl]) -> None:
        failures = self._target.create_acls(acls) if acls else {}
        for acl in acls:
            if acl in failures:
                logger.warning("topic %s gets no ACL of %s: %s", acl.topic, acl.principal, failures[acl].text)
            else:
                logger.info("topic %s has an ACL of %s now, like the source", acl.topic, acl.principal)

    def _delete_acls(self, acls: Sequence[Acl]) -> None:
        failures = self._target.delete_acls(acls) if acls else {}
        for acl in acls:
            if acl in failures:
                logger.warning("topic %s keeps an ACL of %s: %s", acl.topic, acl.principal, failures[acl].text)
            else:
                logger.info("topic %s has lost an ACL of %s, like the source", acl.topic, acl.principal)

    def _report_leaderless(self, at_source: Mapping[str, Mapping[int, int]]) -> None:
        """Log partitions without a leader, each once until it has one."""
        found = frozenset(
            (name, index)
            for name, partitions in at_source.items()
            for index, leader in partitions.items()
            if leader == _NO_LEADER
        )
        for partition in sorted(found - self._leaderless):
            logger.warning(
                "%s has no leader at %s: it is mirrored when it has one", partition_name(partition), self._source.alias
            )
        self._leaderless = found
