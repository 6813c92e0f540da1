"""Reads and changes the offsets of connectors (KIP-875): of sources in the store, of sinks in their consumer groups.

Owns the shapes of the REST interface for offsets, and the rule that only a STOPPED connector's may be changed. The
methods wait for brokers: call them in a thread of their own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from base.topic_partition import TopicPartition as Partition
from protocol.errors import ErrorCode
from protocol.errors import KafkaError as RefusalError
from spark_jobs.connect.base.api import SinkConnector, SourceConnector
from spark_jobs.connect.base.connector_settings import CONNECTOR_CLASS, CONSUMER_OVERRIDE
from spark_jobs.connect.base.errors import ConfigError, ConnectError, NotFoundError
from spark_jobs.connect.base.states import TargetState
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.worker.clients import Clients, sink_group
from spark_jobs.connect.worker.settings import with_prefix
from tools.base.command_line import UnreachableError, UsageError
from tools.client.admin_client import AdminClient as CoordinatorClient
from tools.client.admin_client import CallTimedOut
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_security import client_security
from tools.client.group_offsets import delete_offsets

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"

_NOTHING_TO_FORGET: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})

_CHECKED: Final = "The offsets for this connector have been {} successfully"
_UNCHECKED: Final = (
    "The Connect framework-managed offsets for this connector have been {} successfully. However, if this connector "
    "manages offsets externally, they will need to be manually {} in the system that the connector uses."
)


class Change(NamedTuple):
    """One entry of a request: a source partition, and its offset, None to forget it."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


class OffsetChanges:
    """The offsets of the connectors of one herder."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._clients = Clients(herder.settings)

    def offsets(self, name: str) -> dict[str, Any]:
        """Return the offsets of a connector. Raises NotFoundError and ConnectError."""
        config = self._config(name)
        if self._herder.plugins.is_source(config[CONNECTOR_CLASS]):
            self._herder.offsets.refresh()
            found = [
                {"partition": partition, "offset": offset} for partition, offset in self._herder.offsets.all_of(name)
            ]
        else:
            committed = self._committed(name, config)
            found = [
                {"partition": {TOPIC: topic, PARTITION: partition}, "offset": {OFFSET: offset}}
                for (topic, partition), offset in sorted(committed.items())
            ]
        return {"offsets": found}

    def alter(self, name: str, changes: Sequence[Change]) -> str:
        """Change offsets; return a sentence for the user.

        Raises NotFoundError, ConfigError and ConnectError, and NotLeaderError on another worker than the leader.
        """
        config = self._stopped_config(name)
        if not changes:
            raise ConfigError("Partitions / offsets need to be provided for an alter offsets request")
        connector = self._herder.plugins.connector(config[CONNECTOR_CLASS])()
        if isinstance(connector, SourceConnector):
            is_checked = connector.alter_offsets(config, [tuple(each) for each in changes])  # type: ignore[misc]
            self._store(name, changes)
        else:
            assert isinstance(connector, SinkConnector)
            wanted = _sink_changes(changes)
            is_checked = connector.alter_offsets(config, wanted)
            self._commit(name, config, wanted)
        return _sentence(is_checked, "altered")

    def reset(self, name: str) -> str:
        """Forget all offsets; return a sentence for the user. Raises as `alter` does."""
        config = self._stopped_config(name)
        connector = self._herder.plugins.connector(config[CONNECTOR_CLASS])()
        if isinstance(connector, SourceConnector):
            self._herder.offsets.refresh()
            changes = [Change(partition, None) for partition, _ in self._herder.offsets.all_of(name)]
            is_checked = connector.alter_offsets(config, [tuple(each) for each in changes])  # type: ignore[misc]
            self._store(name, changes)
        else:
            assert isinstance(connector, SinkConnector)
            is_checked = connector.alter_offsets(config, dict.fromkeys(self._committed(name, config)))
            self._delete_group(name, config)
        return _sentence(is_checked, "reset")

    def _config(self, name: str) -> Mapping[str, str]:
        config = self._herder.configs.state.connectors.get(name)
        if config is None:
            raise NotFoundError(f"Connector {name} not found")
        return self._herder.settings.providers.resolved(config)

    def _stopped_config(self, name: str) -> Mapping[str, str]:
        config = self._config(name)
        state = self._herder.configs.state
        if state.target(name) is not TargetState.STOPPED or state.tasks.get(name):
            raise ConfigError(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                "the specified connector by issuing a 'PUT' request to the '/connectors/" + name + "/stop' endpoint"
            )
        self._wait_for_tasks(name)
        return config

    def _wait_for_tasks(self, name: str) -> None:
        """Wait until the tasks of a stopped connector have stored their last offsets, as long as they may take.

        The states of tasks of a worker that was killed stay.
        """
        deadline_s = time.monotonic() + self._herder.settings["task.shutdown.graceful.timeout.ms"] / 1000
        while self._herder.states.tasks(name) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)

    def _store(self, name: str, changes: Sequence[Change]) -> None:
        """Store offsets. A task that goes on unseen could commit its own over them, so it is fenced before."""
        if changes and self._herder.settings.exactly_once:
            self._herder.fence(name)
        if changes and not self._herder.offsets.store(name, changes, TIMEOUT_S):
            raise ConnectError(f"the offsets of {name} could not be stored")

    def _admin(self, config: Mapping[str, str]) -> AdminClient:
        """Return a client. Keep it until its response has arrived: a client that is garbage drops its requests."""
        return AdminClient(self._clients.admin_settings(config))

    def _group(self, name: str, config: Mapping[str, str]) -> str:
        return with_prefix(config, CONSUMER_OVERRIDE).get("group.id") or sink_group(name)

    def _committed(self, name: str, config: Mapping[str, str]) -> dict[Partition, int]:
        request = ConsumerGroupTopicPartitions(self._group(name, config))
        admin = self._admin(config)
        result = self._waited(admin.list_consumer_group_offsets([request]), name)
        return {(each.topic, each.partition): each.offset for each in result.topic_partitions or ()}

    def _commit(self, name: str, config: Mapping[str, str], wanted: Mapping[Partition, int | None]) -> None:
        kept = {each: offset for each, offset in wanted.items() if offset is not None}
        self._forget(name, config, [each for each, offset in wanted.items() if offset is None])
        if kept:
            partitions = [TopicPartition(*each, offset) for each, offset in kept.items()]
            request = ConsumerGroupTopicPartitions(self._group(name, config), partitions)
            admin = self._admin(config)
            self._waited(admin.alter_consumer_group_offsets([request]), name)

    def _forget(self, name: str, config: Mapping[str, str], partitions: Sequence[Partition]) -> None:
        """Delete offsets of a sink's group; those that it does not have are no error."""
        if not partitions:
            return
        settings = self._clients.java_admin_settings(config)
        try:
            with CoordinatorClient(
                parse_bootstrap(settings["bootstrap.servers"]),
                timeout_ms=int(TIMEOUT_S * 1000),
                security=client_security(settings),
            ) as client:
                error, results = delete_offsets(client, self._group(name, config), partitions)
        except (RefusalError, CallTimedOut, UnreachableError, UsageError) as failure:
            raise ConnectError(f"the offsets of {name} cannot be reached: {failure}") from failure
        if failures := {error, *results.values()} - _NOTHING_TO_FORGET:
            codes = ", ".join(sorted(each.name for each in failures))
            raise ConnectError(f"the offsets of {name} are not deleted: {codes}")

    def _delete_group(self, name: str, config: Mapping[str, str]) -> None:
        admin = self._admin(config)
        try:
            self._waited(admin.delete_consumer_groups([self._group(name, config)]), name)
        except ConnectError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def _waited(self, futures: Mapping[str, Any], name: str) -> Any:
        """Return the one result. Raises ConnectError."""
        (future,) = futures.values()
        try:
            return future.result(TIMEOUT_S)
        except KafkaException as error:
            raise ConnectError(f"the offsets of {name} cannot be reached: {error.args[0].str()}") from error


def parse_changes(body: Any) -> list[Change]:
    """Return the entries of a request's body. Raises ConfigError."""
    entries = body.get("offsets") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise ConfigError('expected {"offsets": [{"partition": {..}, "offset": {..}}]}')
    changes = []
    for each in entries:
        if not isinstance(each, dict) or not isinstance(each.get("partition"), dict):
            raise ConfigError(f"expected a partition and an offset, each a JSON object, found {each!r:.200}")
        offset = each.get("offset")
        if offset is not None and not isinstance(offset, dict):
            raise ConfigError(f"expected an offset that is a JSON object or null, found {offset!r:.200}")
        changes.append(Change(each["partition"], offset))
    return changes


def _sink_changes(changes: Sequence[Change]) -> dict[Partition, int | None]:
    found: dict[Partition, int | None] = {}
    for partition, offset in changes:
        try:
            key = (str(partition[TOPIC]), int(partition[PARTITION]))
            value = None if offset is None else int(offset[OFFSET])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"The partition of a sink connector has the keys '{TOPIC}' and '{PARTITION}', the offset '{OFFSET}': "
                f"found {dict(partition)} and {offset}"
            ) from error
        if not 0 <= key[1] < 1 << 31 or (value is not None and not 0 <= value < 1 << 63):
            raise ConfigError(
                f"Partitions have 31 bits and offsets 63, and are not negative: found {dict(partition)} and {offset}"
            )
        found[key] = value
    return found


def _sentence(is_checked: bool, done: str) -> str:
    return _CHECKED.format(done) if is_checked else _UNCHECKED.format(done, done)
