"""Administers one of the two clusters: topics, their settings and ACLs, and groups with their positions.

Owns requests and the texts of their failures. Must not know why something is created, changed or read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from base.topic_partition import TopicPartition
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.mirror.connector_settings import SOURCE, TARGET, ConnectorSettings
from tools.base.command_line import UnreachableError, UsageError
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_security import client_security

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorUtils")

T = TypeVar("T")

TOPIC_RESOURCE: Final = 2
LITERAL: Final = 3
ANY: Final = 1
MAY_EXIST: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Without the permission to create a topic, a client may still use it."""
_CONSUMERS: Final = frozenset({"consumer", ""})
"""Types of groups that commit positions; the empty one is that of a group without members."""
_BATCH_SIZE: Final = 500
"""How many topics one request names."""


class Failure(NamedTuple):
    """Why something was refused."""

    code: ErrorCode
    text: str


class Position(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str


class Acl(NamedTuple):
    """An ACL of one topic, with the numbers of the protocol."""

    topic: str
    principal: str
    host: str
    operation: int
    permission: int


class Cluster:
    """One cluster. Not thread-safe. All methods raise ConnectError, which names the cluster."""

    def __init__(self, alias: str, settings: Mapping[str, str], timeout_ms: int) -> None:
        """`settings` have Java's names; `timeout_ms` limits one request with its retries. Raises ConfigError."""
        self.alias = alias
        self._timeout_ms = timeout_ms
        self._fetches_by_groups = True
        try:
            self._client = AdminClient(
                parse_bootstrap(settings.get("bootstrap.servers", "")),
                client_id=settings.get("client.id", "mirror-admin"),
                timeout_ms=timeout_ms,
                request_timeout_ms=int(settings.get("request.timeout.ms", "30000")),
                security=client_security(settings),
            )
        except (UsageError, ValueError) as error:
            raise ConfigError(f"the settings of cluster {alias} are invalid: {error}") from error

    def close(self) -> None:
        self._client.__exit__()

    def partitions(self) -> dict[str, dict[int, int]]:
        """Return for each topic its partitions with the id of their leader, -1 if they have none."""
        response = self._call("list its topics", self._client.metadata)
        return {
            topic.name: {each.partition_index: each.leader_id for each in topic.partitions}
            for topic in response.topics
            if topic.name is not None and not topic.error_code
        }

    def create_compacted(self, topic: str, replication_factor: int) -> None:
        """Create a topic of one partition that keeps the last record of each key, unless it exists."""
        failure = self.create_topics({topic: (1, {"cleanup.policy": "compact"})}, replication_factor).get(topic)
        if failure is None:
            logger.info("created topic %s at %s", topic, self.alias)
        elif failure.code not in MAY_EXIST:
            raise ConnectError(f"topic {topic} cannot be created at {self.alias}: {failure.text}")

    def create_topics(
        self, topics: Mapping[str, tuple[int, Mapping[str, str | None]]], replication_factor: int
    ) -> dict[str, Failure]:
        """Create topics with a number of partitions and settings; return why some were not created."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
                for name, (count, configs) in topics.items()
            ],
            timeout_ms=self._timeout_ms,
        )
        response = self._send_to_controller(
            "create topics", request, CreateTopicsResponse, lambda found: [each.error_code for each in found.topics]
        )
        return _failures((each.name, each.error_code, each.error_message) for each in response.topics)

    def create_partitions(self, counts: Mapping[str, int]) -> dict[str, Failure]:
        """Give topics more partitions; return why some were not changed."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=self._timeout_ms,
            validate_only=False,
        )
        response = self._send_to_controller(
            "create partitions",
            request,
            CreatePartitionsResponse,
            lambda found: [each.error_code for each in found.results],
        )
        return _failures((each.name, each.error_code, each.error_message) for each in response.results)

    def topic_configs(self, topics: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
        """Return the settings of topics. Those that were deleted, or may not be read, are absent."""
        found = {}
        for batch in _batches(topics):
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
                    for name in batch
                ]
            )
            response = self._send("describe settings of topics", request, DescribeConfigsResponse)
            for result in response.results:
                if result.error_code:
                    text = _text(result.error_code, result.error_message)
                    logger.warning("%s does not describe topic %s: %s", self.alias, result.resource_name, text)
                else:
                    found[result.resource_name] = result.configs
        return found

    def alter_topic_configs(self, changes: Mapping[str, Sequence[AlterableConfig]]) -> dict[str, Failure]:
        """Change settings of topics; return why some were not changed."""
        failures: dict[str, Failure] = {}
        for batch in _batches(list(changes)):
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=list(changes[name]))
                    for name in batch
                ],
                validate_only=False,
            )
            response = self._send("change settings of topics", request, IncrementalAlterConfigsResponse)
            failures.update(
                _failures((each.resource_name, each.error_code, each.error_message) for each in response.responses)
            )
        return failures

    def topic_acls(self) -> set[Acl] | None:
        """Return the ACLs of single topics; None if the cluster has no authorizer."""
        request = DescribeAclsRequest(
            resource_type_filter=TOPIC_RESOURCE,
            resource_name_filter=None,
            pattern_type_filter=LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        response = self._send("describe ACLs", request, DescribeAclsResponse)
        if response.error_code == ErrorCode.SECURITY_DISABLED:
            return None
        if response.error_code:
            text = _text(response.error_code, response.error_message)
            raise ConnectError(f"{self.alias} does not describe ACLs: {text}")
        return {
            Acl(resource.resource_name, each.principal, each.host, each.operation, each.permission_type)
            for resource in response.resources
            if resource.pattern_type == LITERAL
            for each in resource.acls
        }

    def create_acls(self, acls: Sequence[Acl]) -> dict[Acl, Failure]:
        """Create ACLs of topics; return why some were not created."""
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=each.topic,
                    resource_pattern_type=LITERAL,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in acls
            ]
        )
        response = self._send_to_controller(
            "create ACLs", request, CreateAclsResponse, lambda found: [each.error_code for each in found.results]
        )
        results = zip(acls, response.results, strict=True)
        return _failures((acl, result.error_code, result.error_message) for acl, result in results)

    def delete_acls(self, acls: Sequence[Acl]) -> dict[Acl, Failure]:
        """Delete ACLs of topics; return why some were not deleted."""
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=TOPIC_RESOURCE,
                    resource_name_filter=each.topic,
                    pattern_type_filter=LITERAL,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in acls
            ]
        )
        response = self._send_to_controller(
            "delete ACLs", request, DeleteAclsResponse, lambda found: [each.error_code for each in found.filter_results]
        )
        results = zip(acls, response.filter_results, strict=True)
        return _failures((acl, result.error_code, result.error_message) for acl, result in results)

    def groups(self) -> dict[str, str]:
        """Return the groups of consumers with their states, such as `Empty` or `Stable`."""
        found: dict[str, str] = {}
        for broker in self._call("list its brokers", lambda: self._client.metadata([])).brokers:
            response = self._send("list its groups", ListGroupsRequest(), ListGroupsResponse, broker.node_id)
            if response.error_code:
                raise ConnectError(f"{self.alias} does not list its groups: {_text(response.error_code, None)}")
            found |= {each.group_id: each.group_state for each in response.groups if each.protocol_type in _CONSUMERS}
        return found

    def positions(self, group: str) -> dict[TopicPartition, Position]:
        """Return what a group has committed."""
        response = self._positions_response(group)
        if code := _group_code(response):
            raise ConnectError(f"{self.alias} does not return the positions of group {group}: {_text(code, None)}")
        topics = response.groups[0].topics if response.groups else response.topics
        return {
            (topic.name, each.partition_index): Position(each.committed_offset, each.metadata or "")
            for topic in topics
            for each in topic.partitions
            if each.committed_offset >= 0 and not each.error_code
        }

    def commit(self, group: str, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Failure]:
        """Commit positions of a group without members; return why some were refused."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), position in positions.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=position.offset,
                    committed_metadata=position.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
        )
        response = self._call(
            f"commit positions of group {group}",
            lambda: self._client.call_coordinator(
                group,
                request,
                OffsetCommitResponse,
                lambda found: [each.error_code for topic in found.topics for each in topic.partitions],
            ),
        )
        return _failures(
            ((topic.name, each.partition_index), each.error_code, None)
            for topic in response.topics
            for each in topic.partitions
        )

    def _positions_response(self, group: str) -> OffsetFetchResponse:
        """Brokers before 3.0 have another form of the request, for one group only."""

        def fetch(request: OffsetFetchRequest) -> OffsetFetchResponse:
            return self._client.call_coordinator(
                group, request, OffsetFetchResponse, lambda found: [_group_code(found)]
            )

        def fetch_in_known_form() -> OffsetFetchResponse:
            if self._fetches_by_groups:
                try:
                    return fetch(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]))
                except KafkaError as error:
                    if error.code != ErrorCode.UNSUPPORTED_VERSION:
                        raise
                    self._fetches_by_groups = False
            return fetch(OffsetFetchRequest(group_id=group, topics=None))

        return self._call(f"return the positions of group {group}", fetch_in_known_form)

    def _send(self, what: str, request: object, response_type: type[T], broker_id: int | None = None) -> T:
        return self._call(what, lambda: self._client.call(request, response_type, broker_id=broker_id))

    def _send_to_controller(
        self, what: str, request: object, response_type: type[T], codes: Callable[[T], Iterable[int]]
    ) -> T:
        return self._call(what, lambda: self._client.call_controller(request, response_type, codes))

    def _call(self, what: str, call: Callable[[], T]) -> T:
        """Raises ConnectError, which names what the cluster does not do."""
        try:
            return call()
        except (OSError, KafkaError, CallTimedOut, UnreachableError) as error:
            raise ConnectError(f"cluster {self.alias} does not {what}: {error}") from error


def both_clusters(settings: ConnectorSettings) -> tuple[Cluster, Cluster]:
    """Return the source and the target of a connector or task. Raises ConfigError."""
    source, target = (
        Cluster(settings.alias(each), settings.admin(each), settings.admin_timeout_ms) for each in (SOURCE, TARGET)
    )
    return source, target


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _BATCH_SIZE):
        yield names[start : start + _BATCH_SIZE]


def _failures(results: Iterable[tuple[T, int, str | None]]) -> dict[T, Failure]:
    return {item: Failure(ErrorCode(code), _text(code, message)) for item, code, message in results if code}


def _text(code: int, message: str | None) -> str:
    known = ErrorCode(code)
    return f"{known.name}: {message or ERRORS[known].message}"


def _group_code(response: OffsetFetchResponse) -> int:
    return response.groups[0].error_code if response.groups else response.error_code
