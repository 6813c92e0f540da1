"""kafka-topics: creates, lists, describes, alters and deletes topics."""

import argparse
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING
from uuid import UUID

from controller.machine.assignment import assign_replicas
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import parse_id
from protocol.internal_topics import INTERNAL_TOPICS
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
from protocol.messages.metadata import MetadataResponseTopic
from tools.admin.configuration.entities import TOPICS, Entity
from tools.admin.configuration.resources import InvalidConfigs, alter_resource
from tools.admin.topic_descriptions import PARTITION_FILTERS, describe_topics
from tools.base.command_line import CommandLine, UsageError, is_given, run_tool
from tools.base.java_names import exception_text
from tools.base.topic_patterns import topic_pattern
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client
from tools.log_output.log_files import HAS_LINES
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_zookeeper

if TYPE_CHECKING:
    from tools.zookeeper.znode_trees import Tree

logger = logging.getLogger("org.apache.kafka.tools.TopicCommand")

_FROM_BROKER = -1
_REPLICATION_FACTOR_MAX = 32767
_TOPICS, _DELETED_TOPICS = "/brokers/topics", "/admin/delete_topics"
_KEYS_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the messages "
    "will be affected"
)
_ALTER_CONFIG_WARNING = (
    "WARNING: Altering topic configuration from this script has been deprecated and may be removed in future releases."
    "\n         Going forward, please use kafka-configs.sh for this functionality"
)
_COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both."
)


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
"""Options that only some actions allow."""


class CommandError(Exception):
    """The command failed; the text gives the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-topics",
        "This tool helps to create, delete, describe, or change a topic.",
        [
            "--bootstrap-server localhost:9092 --list",
            "--bootstrap-server localhost:9092 --create --topic orders --partitions 3",
            "--bootstrap-server localhost:9092 --describe --topic orders",
        ],
    )
    add_admin_options(line)
    add_zookeeper_option(line)
    line.add_flag("--list", "List all available topics.")
    line.add_flag("--create", "Create a new topic.")
    line.add_flag("--delete", "Delete a topic.")
    line.add_flag("--alter", "Change the number of partitions and the replica assignment.")
    line.add_flag("--describe", "List details for the given topics.")
    line.add_option("--topic", value="topic", help_text="The topic; also a regular expression, except to create.")
    line.add_option("--topic-id", value="topic-id", help_text="The id of the topic to describe.")
    line.add_option("--config", value="name=value", repeatable=True, help_text="A configuration to create with.")
    line.add_option(
        "--delete-config",
        "--deleteConfig",
        value="name",
        repeatable=True,
        help_text="A configuration to remove; with --zookeeper only.",
    )
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
        ("--disable-rack-aware", "With --create: ignore the racks of the brokers."),
        ("--force", "Accepted; there is no prompt."),
    ):
        line.add_flag(name, help_text)
    line.add_option(
        "--partition-size-limit-per-response",
        value="maximum partitions in a response",
        parse=int,
        help_text="Accepted; responses are not paged.",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    action = _check(line, options)
    tree = use_zookeeper(line, options)
    try:
        with admin_client(options) as admin, closing(tree) if tree is not None else nullcontext():
            if tree is None:
                _ACTIONS[action](admin, options)
            else:
                _in_older_form(admin, action, options, tree)
    except KafkaError as error:
        return _failed(error.message, exception_text(error))
    except (CommandError, InvalidConfigs, CallTimedOut) as error:
        return _failed(str(error), f"java.lang.IllegalArgumentException: {error}")
    return 0


def _failed(reason: str, event: str) -> int:
    print(f"Error while executing topic command : {reason}", flush=True)
    logger.error("%s\n", event, extra={HAS_LINES: True})
    return 1


def _check(line: CommandLine, options: argparse.Namespace) -> str:
    """Return the one requested action."""
    given = [action for action in _ACTIONS if is_given(options, action)]
    if len(given) != 1:
        raise UsageError("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    (action,) = given
    if options.zookeeper is None:
        line.require(options, "--bootstrap-server")
    if action == "--describe" and options.topic is not None and options.topic_id is not None:
        options.topic = None  # the id is unique, and wins
    if action in ("--create", "--delete", "--alter"):
        line.require(options, "--topic")
    is_older = options.zookeeper is not None
    if action == "--alter" and options.config and not is_older:
        raise UsageError(
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" (kafka-configs '
            "alters the configs of topics)"
        )
    if action == "--alter" and not (is_older and (options.config or options.delete_config)):
        line.require(options, "--partitions")
    if action == "--create" and is_older and options.replica_assignment is None:
        line.require(options, "--partitions", "--replication-factor")
    for used, allowed in _ALLOWED_ACTIONS.items():
        if action not in allowed and not (is_older and used == "--config" and action == "--alter"):
            line.forbid(options, used, action)
    line.forbid(options, "--replica-assignment", "--replication-factor")
    if options.create:
        line.forbid(options, "--replica-assignment", "--partitions")
    for used in PARTITION_FILTERS:
        line.forbid(options, used, "--topics-with-overrides")
    if options.delete_config and not is_older:
        raise UsageError("--delete-config was removed from this tool; use kafka-configs --delete-config")
    return action


def _create(admin: AdminClient, options: argparse.Namespace) -> None:
    if options.partitions is not None and options.partitions < 1:
        raise CommandError("The partitions must be greater than 0")
    if options.replication_factor is not None and not 1 <= options.replication_factor <= _REPLICATION_FACTOR_MAX:
        raise CommandError(f"The replication factor must be between 1 and {_REPLICATION_FACTOR_MAX} inclusive")
    if "." in options.topic or "_" in options.topic:
        print(_COLLISION_WARNING)
    assignments = [] if options.replica_assignment is None else parse_replica_assignment(options.replica_assignment)
    partitions, replication_factor = options.partitions, options.replication_factor
    if options.disable_rack_aware and not assignments:
        assignments = _without_racks(admin, partitions, replication_factor)
        partitions = replication_factor = None
    topic = CreatableTopic(
        name=options.topic,
        num_partitions=_FROM_BROKER if partitions is None else partitions,
        replication_factor=_FROM_BROKER if replication_factor is None else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=broker_ids)
            for index, broker_ids in enumerate(assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in _configs(options.config)],
    )
    response = admin.call_controller(
        CreateTopicsRequest(topics=[topic]),
        CreateTopicsResponse,
        lambda response: [result.error_code for result in response.topics],
    )
    (result,) = response.topics
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
        return
    raise_for(result.error_code, result.error_message)
    print(f'Created topic "{options.topic}".' if options.zookeeper else f"Created topic {options.topic}.")


def _without_racks(admin: AdminClient, partition_count: int | None, replication_factor: int | None) -> list[list[int]]:
    """Return the replicas of each partition of a new topic, placed as on brokers without racks."""
    if partition_count is None or replication_factor is None:
        raise CommandError("--disable-rack-aware needs --partitions and --replication-factor, or --replica-assignment")
    brokers = [broker.node_id for broker in admin.metadata([]).brokers]
    if replication_factor > len(brokers):
        raise CommandError(f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.")
    start, shift = random.randrange(len(brokers)), random.randrange(len(brokers))
    placed = assign_replicas(dict.fromkeys(brokers), partition_count, replication_factor, start=start, shift=shift)
    return [list(replicas) for replicas in placed.values()]


def _configs(assignments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise CommandError(f"Invalid topic config: expected name=value, found '{assignment}'")
        yield name.strip(), value.strip()


def parse_replica_assignment(text: str) -> list[list[int]]:
    """Return the broker ids by partition of `0:1,1:2`. Raises CommandError."""
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
    if names:
        delete_topics(admin, names)


def delete_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Delete topics by name. Raises KafkaError for the first that could not be deleted."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in names],
        timeout_ms=admin.request_timeout_ms,
    )
    response = admin.call_controller(
        request, DeleteTopicsResponse, lambda response: [result.error_code for result in response.responses]
    )
    for result in response.responses:
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
                # Existing partitions keep their replicas: the assignment begins with theirs.
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments[len(topic.partitions) :]],
            )
            for topic in topics
        ],
        timeout_ms=admin.request_timeout_ms,
        validate_only=False,
    )
    response = admin.call_controller(
        request, CreatePartitionsResponse, lambda response: [result.error_code for result in response.results]
    )
    for result in response.results:
        raise_for(result.error_code, result.error_message)


def _matching(admin: AdminClient, pattern: str | None, *, exclude_internal: bool) -> list[MetadataResponseTopic]:
    """Return the topics that match a regular expression, or all, by name."""
    topics = [topic for topic in admin.metadata().topics if not (exclude_internal and topic.is_internal)]
    if pattern is not None:
        names = topic_pattern(pattern)
        topics = [topic for topic in topics if names.fullmatch(topic.name or "")]
    return sorted(topics, key=lambda topic: topic.name or "")


def _existing(admin: AdminClient, options: argparse.Namespace) -> list[MetadataResponseTopic]:
    """Return the topics of `--topic`. It is an error if none exists, unless `--if-exists` is given."""
    topics = _matching(admin, options.topic, exclude_internal=options.exclude_internal)
    if options.topic and not topics and not options.if_exists:
        raise CommandError(f"Topic 'Optional[{options.topic}]' does not exist as expected")
    return topics


def _describe(admin: AdminClient, options: argparse.Namespace) -> None:
    topics = _with_id(admin, options) if options.topic_id is not None else _existing(admin, options)
    wanted = [name for name in PARTITION_FILTERS if is_given(options, name)]
    for line in describe_topics(admin, topics, only_partitions=wanted, only_overrides=options.topics_with_overrides):
        print(line)


def _with_id(admin: AdminClient, options: argparse.Namespace) -> list[MetadataResponseTopic]:
    try:
        wanted = parse_id(options.topic_id)
    except ValueError:
        raise CommandError(
            f"Invalid topic id '{options.topic_id}'; expected 22 characters as --describe prints them"
        ) from None
    topics = [topic for topic in admin.metadata().topics if topic.topic_id == wanted]
    if not topics and not options.if_exists:
        raise CommandError(f"TopicId '{options.topic_id}' does not exist as expected")
    return topics


def _in_older_form(admin: AdminClient, action: str, options: argparse.Namespace, tree: "Tree") -> None:
    """Perform the action, and print what the tool printed when it used ZooKeeper. Raises what the actions raise."""
    match action:
        case "--list":
            # Brokers do not return topics whose deletion has begun.
            marked = _names_below(tree, _DELETED_TOPICS)
            pattern = None if options.topic is None else topic_pattern(options.topic)
            for name in sorted(_names_below(tree, _TOPICS)):
                is_left_out = options.exclude_internal and name in INTERNAL_TOPICS
                if not is_left_out and (pattern is None or pattern.fullmatch(name)):
                    print(f"{name} - marked for deletion" if name in marked else name)
        case "--describe":
            wanted = [name for name in PARTITION_FILTERS if is_given(options, name)]
            for line in describe_topics(
                admin,
                _existing(admin, options),
                only_partitions=wanted,
                only_overrides=options.topics_with_overrides,
                is_older_form=True,
            ):
                print(line)
        case "--delete":
            names = [topic.name or "" for topic in _existing(admin, options)]
            if names:
                delete_topics(admin, names)
            for name in names:
                print(f"Topic {name} is marked for deletion.")
                print("Note: This will have no impact if delete.topic.enable is not set to true.")
        case "--alter":
            _alter_in_older_form(admin, options)
        case _:
            _ACTIONS[action](admin, options)


def _alter_in_older_form(admin: AdminClient, options: argparse.Namespace) -> None:
    if options.config or options.delete_config:
        print(_ALTER_CONFIG_WARNING)
        for topic in _existing(admin, options):
            added = dict(_configs(options.config))
            alter_resource(admin, Entity(TOPICS, topic.name), added, options.delete_config)
            print(f'Updated config for topic "{topic.name}".')
    if options.partitions is not None:
        print(_KEYS_WARNING)
        _alter(admin, options)
        print("Adding partitions succeeded!")


def _names_below(tree: "Tree", path: str) -> Sequence[str]:
    from tools.zookeeper.znode_trees import TreeError

    try:
        return tree.children(path)
    except TreeError:
        return ()


_ACTIONS: Mapping[str, Callable[[AdminClient, argparse.Namespace], None]] = {
    "--list": _list,
    "--describe": _describe,
    "--create": _create,
    "--delete": _delete,
    "--alter": _alter,
}


if __name__ == "__main__":
    raise SystemExit(main())
