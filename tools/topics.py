"""kafka-topics: creates, lists, describes, alters and deletes topics."""

import argparse
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tools.admin_client import AdminClient, CallTimedOut, TopicPartition, raise_for
from tools.admin_options import add_admin_options, admin_client
from tools.command_line import CommandLine, UsageError, run_tool
from tools.java_names import exception_text, hash_map_order
from tools.topic_ids import parse_topic_id, topic_id_text

logger = logging.getLogger("org.apache.kafka.tools.TopicCommand")

ACTIONS = ("--list", "--describe", "--create", "--delete", "--alter")
PARTITION_FILTERS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)

_TOPIC_RESOURCE = 2
_FROM_BROKER = -1
_REPLICATION_FACTOR_MAX = 32767
_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both."
)


class CommandError(Exception):
    """The command cannot be done; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-topics", "This tool helps to create, delete, describe, or change a topic.")
    add_admin_options(line)
    line.add_flag("--list", "List all available topics.")
    line.add_flag("--create", "Create a new topic.")
    line.add_flag("--delete", "Delete a topic.")
    line.add_flag("--alter", "Change the number of partitions and the replica assignment.")
    line.add_flag("--describe", "List details for the given topics.")
    line.add_option("--topic", value="topic", help_text="The topic; also a regular expression, except to create.")
    line.add_option("--topic-id", value="topic-id", help_text="The id of the topic to describe.")
    line.add_option("--config", value="name=value", repeatable=True, help_text="A configuration to create with.")
    line.add_option("--delete-config", "--deleteConfig", value="name", repeatable=True, help_text="Not supported.")
    line.add_option("--partitions", value="# of partitions", parse=int, help_text="The number of partitions.")
    line.add_option(
        "--replication-factor", value="replication factor", parse=int, help_text="Replicas of each partition."
    )
    line.add_option(
        "--replica-assignment",
        value="0:1,1:2",
        help_text="Brokers of each partition by hand.",
    )
    for name, help_text in (
        ("--under-replicated-partitions", "Describe only partitions with a replica that is not in sync."),
        ("--unavailable-partitions", "Describe only partitions whose leader is not available."),
        ("--under-min-isr-partitions", "Describe only partitions with too few in-sync replicas."),
        ("--at-min-isr-partitions", "Describe only partitions with just enough in-sync replicas."),
        ("--topics-with-overrides", "Describe only topics with configurations of their own."),
        ("--if-exists", "Change, delete or describe only if the topic exists."),
        ("--if-not-exists", "Create only if the topic does not exist."),
        ("--exclude-internal", "List or describe without internal topics."),
        ("--disable-rack-aware", "Accepted; the broker assigns replicas."),
        ("--force", "Accepted; nothing is asked."),
    ):
        line.add_flag(name, help_text)
    line.add_option(
        "--partition-size-limit-per-response",
        value="maximum partitions in a response",
        parse=int,
        help_text="Accepted; answers are not paged.",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    _check(line, options)
    try:
        with admin_client(options) as admin:
            if options.list:
                _list(admin, options)
            elif options.describe:
                _describe(admin, options)
            elif options.create:
                _create(admin, options)
            elif options.delete:
                _delete(admin, options)
            else:
                _alter(admin, options)
    except KafkaError as error:
        return _failed(error.message, exception_text(error))
    except (CommandError, CallTimedOut) as error:
        return _failed(str(error), f"java.lang.IllegalArgumentException: {error}")
    return 0


def _failed(reason: str, event: str) -> int:
    print(f"Error while executing topic command : {reason}", flush=True)
    logger.error("%s\n", event)
    return 1


def _check(line: CommandLine, options: argparse.Namespace) -> None:
    given = [action for action in ACTIONS if getattr(options, action.lstrip("-"))]
    if len(given) != 1:
        raise UsageError("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    (action,) = given
    line.require(options, "--bootstrap-server")
    if action == "--describe" and options.topic is not None and options.topic_id is not None:
        options.topic = None  # the id is exact, and wins
    if action in ("--create", "--delete", "--alter"):
        line.require(options, "--topic")
    if action == "--alter":
        line.require(options, "--partitions")
    for used, allowed in _ALLOWED_ACTIONS.items():
        if action not in allowed:
            line.forbid(options, used, action)
    line.forbid(options, "--replica-assignment", "--replication-factor")
    if options.create:
        line.forbid(options, "--replica-assignment", "--partitions")
    for used in PARTITION_FILTERS:
        line.forbid(options, used, "--topics-with-overrides", *(other for other in PARTITION_FILTERS if other != used))
    if options.delete_config:
        raise UsageError("--delete-config was removed from this tool; use kafka-configs --delete-config")


_ALLOWED_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "--topic-id": ("--describe",),
    "--config": ("--create",),
    "--partitions": ("--create", "--alter"),
    "--replication-factor": ("--create",),
    "--replica-assignment": ("--create", "--alter"),
    "--if-exists": ("--alter", "--delete", "--describe"),
    "--if-not-exists": ("--create",),
    "--exclude-internal": ("--list", "--describe"),
    "--topics-with-overrides": ("--describe",),
    **dict.fromkeys(PARTITION_FILTERS, ("--describe",)),
}


def _create(admin: AdminClient, options: argparse.Namespace) -> None:
    if options.partitions is not None and options.partitions < 1:
        raise CommandError("The partitions must be greater than 0")
    if options.replication_factor is not None and not 1 <= options.replication_factor <= _REPLICATION_FACTOR_MAX:
        raise CommandError(f"The replication factor must be between 1 and {_REPLICATION_FACTOR_MAX} inclusive")
    if "." in options.topic or "_" in options.topic:
        print(_COLLISION_WARNING)
    assignments = [] if options.replica_assignment is None else parse_replica_assignment(options.replica_assignment)
    topic = CreatableTopic(
        name=options.topic,
        num_partitions=_FROM_BROKER if options.partitions is None else options.partitions,
        replication_factor=_FROM_BROKER if options.replication_factor is None else options.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=broker_ids)
            for index, broker_ids in enumerate(assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in _configs(options.config)],
    )
    answer = admin.call_controller(
        CreateTopicsRequest(topics=[topic]),
        CreateTopicsResponse,
        lambda response: [result.error_code for result in response.topics],
    )
    (result,) = answer.topics
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
        return
    raise_for(result.error_code, result.error_message)
    print(f"Created topic {options.topic}.")


def _configs(assignments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise CommandError(f"Invalid topic config: expected name=value, found '{assignment}'")
        yield name.strip(), value.strip()


def parse_replica_assignment(text: str) -> list[list[int]]:
    """Broker ids by partition, of `0:1,1:2`. Raises CommandError."""
    try:
        assignments = [[int(broker_id) for broker_id in brokers.split(":")] for brokers in text.split(",")]
    except ValueError:
        raise CommandError(f"Invalid replica assignment '{text}'; expected broker ids as in 0:1,1:2") from None
    for index, broker_ids in enumerate(assignments):
        if duplicates := sorted({broker_id for broker_id in broker_ids if broker_ids.count(broker_id) > 1}):
            named = ", ".join(map(str, duplicates))
            raise CommandError(f"Partition replica lists may not contain duplicate entries: {named}")
        if len(broker_ids) != len(assignments[0]):
            raise CommandError(f"Partition {index} has different replication factor: {broker_ids}")
    return assignments


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    for topic in _matching(admin, options.topic, exclude_internal=options.exclude_internal):
        print(topic.name)


def _delete(admin: AdminClient, options: argparse.Namespace) -> None:
    topics = _existing(admin, options)
    names = [topic.name or "" for topic in topics]
    if not names:
        return
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in names],
        timeout_ms=admin.request_timeout_ms,
    )
    answer = admin.call_controller(
        request, DeleteTopicsResponse, lambda response: [result.error_code for result in response.responses]
    )
    for result in answer.responses:
        raise_for(result.error_code, result.error_message)


def _alter(admin: AdminClient, options: argparse.Namespace) -> None:
    topics = _existing(admin, options)
    if not topics:
        return
    assignments = None if options.replica_assignment is None else parse_replica_assignment(options.replica_assignment)
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=topic.name or "",
                count=options.partitions,
                # Partitions that exist keep their replicas: the assignment begins with theirs.
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments[len(topic.partitions) :]],
            )
            for topic in topics
        ],
        timeout_ms=admin.request_timeout_ms,
        validate_only=False,
    )
    answer = admin.call_controller(
        request, CreatePartitionsResponse, lambda response: [result.error_code for result in response.results]
    )
    for result in answer.results:
        raise_for(result.error_code, result.error_message)


def _matching(admin: AdminClient, pattern: str | None, *, exclude_internal: bool) -> list[MetadataResponseTopic]:
    """The topics that a regular expression names, or all, by name."""
    topics = [topic for topic in admin.metadata().topics if not (exclude_internal and topic.is_internal)]
    if pattern is not None:
        expression = re.compile(pattern.replace(",", "|").replace(" ", "").strip("\"'"))
        topics = [topic for topic in topics if expression.fullmatch(topic.name or "")]
    return sorted(topics, key=lambda topic: topic.name or "")


def _existing(admin: AdminClient, options: argparse.Namespace) -> list[MetadataResponseTopic]:
    """The topics of `--topic`. None at all is an error, unless `--if-exists` says otherwise."""
    topics = _matching(admin, options.topic, exclude_internal=options.exclude_internal)
    if options.topic and not topics and not options.if_exists:
        raise CommandError(f"Topic 'Optional[{options.topic}]' does not exist as expected")
    return topics


class Reassignment(NamedTuple):
    """Where a partition is moving."""

    adding_replicas: list[int]
    removing_replicas: list[int]


def _describe(admin: AdminClient, options: argparse.Namespace) -> None:
    if options.topic_id is not None:
        topics = _by_id(admin, options)
    else:
        topics = {topic.name or "": topic for topic in _existing(admin, options)}
    configs = _topic_configs(admin, list(topics))
    reassignments = _reassignments(admin)
    live_brokers = {broker.node_id for broker in admin.metadata([]).brokers}
    only_matching_partitions = any(_is_set(options, name) for name in PARTITION_FILTERS)
    for name in hash_map_order(topics, capacity=len(topics)):
        topic = topics[name]
        overrides = [config for config in configs[name] if not _is_default(config)]
        min_insync_replicas = next(
            int(config.value or 1) for config in configs[name] if config.name == _MIN_INSYNC_REPLICAS
        )
        partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
        if not only_matching_partitions and (overrides or not options.topics_with_overrides):
            first = reassignments.get((name, partitions[0].partition_index)) if partitions else None
            print(_header(topic, partitions, overrides, first))
        for partition in [] if options.topics_with_overrides else partitions:
            reassignment = reassignments.get((name, partition.partition_index))
            if _is_wanted(options, partition, reassignment, min_insync_replicas, live_brokers):
                print(_row(name, partition, reassignment))


def _by_id(admin: AdminClient, options: argparse.Namespace) -> dict[str, MetadataResponseTopic]:
    wanted = parse_topic_id(options.topic_id)
    if wanted is None:
        raise CommandError(f"Invalid topic id '{options.topic_id}'; expected 22 characters as --describe prints them")
    topics = {topic.name or "": topic for topic in admin.metadata().topics if topic.topic_id == wanted}
    if not topics and not options.if_exists:
        raise CommandError(f"TopicId 'Optional[{options.topic_id}]' does not exist as expected")
    return topics


def _topic_configs(admin: AdminClient, names: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in names
    ]
    if not resources:
        return {}
    answer = admin.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    for result in answer.results:
        raise_for(result.error_code, result.error_message)
    return {result.resource_name: _in_java_order(result.configs) for result in answer.results}


def _in_java_order(configs: Sequence[DescribeConfigsResourceResult]) -> list[DescribeConfigsResourceResult]:
    by_name = {config.name: config for config in configs}
    return [by_name[name] for name in hash_map_order(by_name)]


def _reassignments(admin: AdminClient) -> dict[TopicPartition, Reassignment]:
    """Partitions that are being moved; a broker that cannot move any has none."""
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=admin.request_timeout_ms)
    try:
        answer = admin.call_controller(
            request, ListPartitionReassignmentsResponse, lambda response: [response.error_code]
        )
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    raise_for(answer.error_code, answer.error_message)
    return {
        (topic.name, partition.partition_index): Reassignment(partition.adding_replicas, partition.removing_replicas)
        for topic in answer.topics
        for partition in topic.partitions
    }


def _is_default(config: DescribeConfigsResourceResult) -> bool:
    default_config = 5
    return config.is_default or config.config_source == default_config


def _is_set(options: argparse.Namespace, name: str) -> bool:
    return bool(getattr(options, name.lstrip("-").replace("-", "_")))


def _is_wanted(
    options: argparse.Namespace,
    partition: MetadataResponsePartition,
    reassignment: Reassignment | None,
    min_insync_replicas: int,
    live_brokers: set[int],
) -> bool:
    isr_count = len(partition.isr_nodes)
    if options.under_replicated_partitions:
        return _replication_factor(partition, reassignment) > isr_count
    if options.unavailable_partitions:
        return partition.leader_id not in live_brokers
    if options.under_min_isr_partitions:
        return partition.leader_id < 0 or isr_count < min_insync_replicas
    if options.at_min_isr_partitions:
        return isr_count == min_insync_replicas
    return True


def _replication_factor(partition: MetadataResponsePartition, reassignment: Reassignment | None) -> int:
    """Replicas that a partition has when no move is under way."""
    return len(partition.replica_nodes) - (len(reassignment.adding_replicas) if reassignment else 0)


def _header(
    topic: MetadataResponseTopic,
    partitions: Sequence[MetadataResponsePartition],
    overrides: Sequence[DescribeConfigsResourceResult],
    reassignment: Reassignment | None,
) -> str:
    replication_factor = _replication_factor(partitions[0], reassignment) if partitions else 0
    columns = (
        f"Topic: {topic.name}",
        f"TopicId: {topic_id_text(topic.topic_id)}",
        f"PartitionCount: {len(partitions)}",
        f"ReplicationFactor: {replication_factor}",
        f"Configs: {','.join(f'{config.name}={config.value}' for config in overrides)}",
    )
    return "\t".join(columns)


def _row(name: str, partition: MetadataResponsePartition, reassignment: Reassignment | None) -> str:
    columns = [
        f"\tTopic: {name}",
        f"Partition: {partition.partition_index}",
        f"Leader: {partition.leader_id if partition.leader_id >= 0 else 'none'}",
        f"Replicas: {_ids(partition.replica_nodes)}",
        f"Isr: {_ids(partition.isr_nodes)}",
    ]
    if reassignment is not None:
        columns.append(f"Adding Replicas: {_ids(reassignment.adding_replicas)}")
        columns.append(f"Removing Replicas: {_ids(reassignment.removing_replicas)}")
    # Kafka's ZooKeeper mode does not know eligible leader replicas.
    columns += ["Elr: N/A", "LastKnownElr: N/A"]
    return "\t".join(columns)


def _ids(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))


if __name__ == "__main__":
    raise SystemExit(main())
