"""kafka-reassign-partitions: moves replicas between brokers, and between the log directories of a broker."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition, partition_name
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from tools.admin.configuration.entities import BROKERS, TOPICS
from tools.admin.configuration.resources import RESOURCE_TYPES
from tools.admin.log_dir_moves import begin_moves, move_states
from tools.admin.plan_maker import Cluster, balance, decommission, raise_replication_factor
from tools.admin.planned_moves import BATCH_SIZE, plan_lines, read_cluster, sizes_of, warning_about
from tools.admin.reassignment_plans import (
    InvalidPlanError,
    Move,
    Plan,
    Replica,
    Replicas,
    format_plan,
    joined,
    moves,
    moving_brokers,
    parse_broker_ids,
    parse_plan,
    parse_topics,
    propose,
    require_executable,
    throttled_replicas,
)
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, is_given, run_tool
from tools.base.java_names import exception_text
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_brokers_of_zookeeper

NO_THROTTLE: Final = -1
MOVE_TIMEOUT_MS: Final = 10_000
_SET, _DELETE = 0, 1
_BROKER_THROTTLES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LOG_DIR_THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_TOPIC_THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_MUST_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
_IS_ONGOING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)


class ReassignmentError(Exception):
    """The action failed; the text is printed as it is."""


class _Action(NamedTuple):
    run: Callable[[AdminClient, argparse.Namespace], None]
    required: Sequence[str]
    permitted: Sequence[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status. As in Kafka, errors are printed on stdout."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-reassign-partitions", "This tool helps to move topic partitions between replicas and log directories."
    )
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    add_zookeeper_option(line)
    line.add_flag("--generate", "Print a placement of topics on brokers, and the current one. Changes nothing.")
    line.add_flag("--execute", "Begin the reassignment that --reassignment-json-file describes.")
    line.add_flag("--verify", "Print the progress of a reassignment; remove its throttles when it is complete.")
    line.add_flag("--cancel", "Cancel an active reassignment.")
    line.add_flag("--list", "List all active reassignments.")
    line.add_option(
        "--reassignment-json-file",
        value="manual assignment json file path",
        help_text='The plan, as {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2,3], "log_dirs": '
        '["dir1","any","any"]}], "version":1}. "log_dirs" may be omitted; "any" stands for any directory.',
    )
    line.add_option(
        "--topics-to-move-json-file",
        value="topics to reassign json file path",
        help_text='With --generate: the topics, as {"topics": [{"topic": "foo"},{"topic": "foo1"}], "version":1}.',
    )
    line.add_option(
        "--broker-list", value="brokerlist", help_text='With --generate: the brokers to place on, as in "0,1,2".'
    )
    line.add_option(
        "--decommission",
        value="brokerlist",
        help_text='Print a plan that leaves no replica on these brokers, as in "3,4". Changes nothing. Not in Kafka.',
    )
    line.add_flag(
        "--balance",
        "Print a plan that spreads replicas over racks, and replicas, bytes and leaders over all brokers, with the "
        "least movement. Changes nothing. Not in Kafka.",
    )
    line.add_option(
        "--raise-replication-factor",
        value="factor",
        parse=int,
        help_text="Print a plan that gives each partition at least so many replicas. Changes nothing. Not in Kafka.",
    )
    line.add_option(
        "--batch-size",
        value="partitions",
        parse=int,
        default=BATCH_SIZE,
        help_text="With a plan that this tool makes: how many partitions move at once. Not in Kafka.",
    )
    line.add_flag(
        "--disable-rack-aware", "With --generate and the plans of this tool: ignore the racks of the brokers."
    )
    line.add_option(
        "--throttle",
        value="throttle",
        parse=int,
        default=NO_THROTTLE,
        help_text="With --execute: the limit of the movement of partitions between brokers in bytes per second; "
        "-1 for none.",
    )
    line.add_option(
        "--replica-alter-log-dirs-throttle",
        value="replicaAlterLogDirsThrottle",
        parse=int,
        default=NO_THROTTLE,
        help_text="With --execute: the limit of the movement between directories of a broker in bytes per second; "
        "-1 for none.",
    )
    line.add_flag("--additional", "With --execute: add to, or change the throttle of, an active reassignment.")
    line.add_flag("--preserve-throttles", "With --verify and --cancel: keep the throttles.")
    line.add_option(
        "--timeout",
        value="timeout",
        parse=int,
        default=MOVE_TIMEOUT_MS,
        help_text="How many milliseconds to wait for moves between directories to begin.",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    given = [name for name in _ACTIONS if is_given(options, name)]
    if len(given) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(_ACTIONS_OF_KAFKA)}")
    use_brokers_of_zookeeper(line, options)
    if not options.bootstrap_server:
        raise UsageError("Please specify --bootstrap-server")
    name = given[0]
    action = _ACTIONS[name]
    line.require(options, *action.required)
    for option, default in _OPTIONS_OF_ACTIONS.items():
        is_allowed = option in action.required or option in action.permitted
        if not is_allowed and getattr(options, option.lstrip("-").replace("-", "_")) != default:
            raise UsageError(f'Option "[{option.lstrip("-")}]" can\'t be used with action "[{name.lstrip("-")}]"')
    try:
        with admin_client(options) as admin:
            action.run(admin, options)
    except ReassignmentError as error:
        print(error)
        return 1
    except (InvalidPlanError, CallTimedOut, TimeoutError) as error:
        print(f"Error: {error}")
        return 1
    except KafkaError as error:
        print(f"Error: {exception_text(error)}")
        return 1
    return 0


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidPlanError(f"Unable to read file {path}: {reason}") from None


def _generate(admin: AdminClient, options: argparse.Namespace) -> None:
    brokers = parse_broker_ids(options.broker_list)
    topics = parse_topics(_content(options.topics_to_move_json_file))
    current = _replicas_of_topics(admin, topics)
    racks = {
        broker.node_id: None if options.disable_rack_aware else broker.rack
        for broker in admin.metadata([]).brokers
        if broker.node_id in brokers
    }
    random = Random()
    start, shift = random.randrange(max(len(racks), 1)), random.randrange(max(len(racks), 1))
    proposed = propose(current, racks, start=start, shift=shift)
    print(f"Current partition replica assignment\n{format_plan(current)}\n")
    print(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")


def _execute(admin: AdminClient, options: argparse.Namespace) -> None:
    plan = parse_plan(_content(options.reassignment_json_file))
    require_executable(plan)
    ongoing = _ongoing(admin)
    if ongoing and not options.additional:
        raise ReassignmentError(_IS_ONGOING)
    if options.throttle == 0:
        raise ReassignmentError("A throttle of 0 would stop the move; expected bytes per second, or -1 for none.")
    _require_known_brokers(admin, plan)
    current = _replicas_of_partitions(admin, plan.replicas)
    print(
        f"Current partition replica assignment\n\n{format_plan(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    _warn_if_large(admin, plan, current)
    if options.throttle >= 0 or options.replica_alter_log_dirs_throttle >= 0:
        print(_MUST_VERIFY)
        _throttle(admin, plan, ongoing, current, options)
    if failed := _alter(admin, plan.replicas):
        lines = [f"{partition_name(partition)}: {failed[partition]}" for partition in sorted(failed)]
        raise ReassignmentError("\n".join(("Error reassigning partition(s):", *lines)))
    if options.zookeeper is not None:
        print(f"Successfully started reassignment of partitions {_older_plan(plan.replicas)}")
    else:
        print(f"Successfully started partition reassignment{_plural(plan.replicas)} for {joined(plan.replicas)}")
    _move(admin, plan.log_dirs, options.timeout)


def _verify(admin: AdminClient, options: argparse.Namespace) -> None:
    plan = parse_plan(_content(options.reassignment_json_file))
    ongoing = _ongoing(admin)
    current = _known_replicas(admin, [name for name in plan.replicas if name not in ongoing])
    print("Status of partition reassignment:")
    for partition in sorted(plan.replicas):
        name, wanted = partition_name(partition), list(plan.replicas[partition])
        if options.zookeeper is not None:
            is_complete = current.get(partition, []) == wanted
            print(_older_status(partition, is_ongoing=partition in ongoing, is_complete=is_complete))
        elif partition in ongoing:
            print(f"Reassignment of partition {name} is still in progress.")
        elif current.get(partition, []) == wanted:
            print(f"Reassignment of partition {name} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {name}, but replica set is "
                f"{_ids(current.get(partition, []))} rather than {_ids(wanted)}."
            )
    states = move_states(admin, plan.log_dirs)
    print("\n".join(map(str, states)))
    # Throttles are those of brokers: of other plans that still run, too.
    is_over = not ongoing and all(state.is_done for state in states)
    if is_over and not options.preserve_throttles:
        _clear_throttles(admin, plan.replicas)


def _older_plan(replicas: Replicas) -> str:
    """Return a plan as Kafka 0.9 printed it: without log directories."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas[topic, index])} for topic, index in replicas
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _older_status(partition: TopicPartition, *, is_ongoing: bool, is_complete: bool) -> str:
    """Return the status of a partition as Kafka 0.9 printed it."""
    topic, index = partition
    status = "is still in progress" if is_ongoing else "completed successfully" if is_complete else "failed"
    return f"Reassignment of partition [{topic},{index}] {status}"


def _cancel(admin: AdminClient, options: argparse.Namespace) -> None:
    plan = parse_plan(_content(options.reassignment_json_file))
    active = [partition for partition in _ongoing(admin) if partition in plan.replicas]
    if active:
        if failed := _alter(admin, dict.fromkeys(active)):
            lines = [f"{partition_name(partition)}: {failed[partition]}" for partition in sorted(failed)]
            raise ReassignmentError(
                "\n".join((f"Error cancelling partition reassignment{_plural(failed)} for:", *lines))
            )
        print(f"Successfully cancelled partition reassignment{_plural(active)} for: {joined(active)}")
    else:
        print("None of the specified partition reassignments are active.")
    moving = {
        state.replica: state.current
        for state in move_states(admin, plan.log_dirs)
        if state.future is not None and state.current is not None
    }
    if moving:
        _move(admin, moving, options.timeout)
    else:
        # Kafka 3.9 prints no line break here.
        print("None of the specified partition moves are active.")
    if not options.preserve_throttles:
        _clear_throttles(admin, plan.replicas)


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    ongoing = _ongoing(admin)
    if not ongoing:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, found in sorted(ongoing.items()):
        adding = f" adding: {_ids(found.adding_replicas)}." if found.adding_replicas else ""
        removing = f" removing: {_ids(found.removing_replicas)}." if found.removing_replicas else ""
        print(f"{partition_name(partition)}: replicas: {_ids(found.replicas)}.{adding}{removing}")


def _print_plan(admin: AdminClient, options: argparse.Namespace, make: Callable[[Cluster], Replicas]) -> None:
    if options.batch_size < 1:
        raise InvalidPlanError(f"Invalid batch size {options.batch_size}: expected at least 1 partition")
    targets = {
        partition: [replica for replica in found.replicas if replica not in found.removing_replicas]
        for partition, found in _ongoing(admin).items()
    }
    cluster = read_cluster(admin, targets, uses_racks=not options.disable_rack_aware)
    for line in plan_lines(cluster, make(cluster), options.batch_size):
        print(line)


def _decommission(admin: AdminClient, options: argparse.Namespace) -> None:
    leaving = parse_broker_ids(options.decommission)

    def make(cluster: Cluster) -> Replicas:
        used = {broker_id for replicas in cluster.replicas.values() for broker_id in replicas}
        for broker_id in leaving:
            if broker_id not in cluster.racks and broker_id not in used:
                raise InvalidPlanError(f"Unknown broker id {broker_id}")
        return decommission(cluster, leaving)

    _print_plan(admin, options, make)


def _balance(admin: AdminClient, options: argparse.Namespace) -> None:
    _print_plan(admin, options, balance)


def _raise_replication_factor(admin: AdminClient, options: argparse.Namespace) -> None:
    factor = options.raise_replication_factor
    if factor < 1:
        raise InvalidPlanError(f"Invalid replication factor {factor}: expected at least 1")
    _print_plan(admin, options, lambda cluster: raise_replication_factor(cluster, factor))


def _warn_if_large(admin: AdminClient, plan: Plan, current: Replicas) -> None:
    """Print a warning on stderr if the plan copies much at once. The sizes are asked for only if it copies anything."""
    if any(set(replicas) - set(current[partition]) for partition, replicas in plan.replicas.items()):
        brokers = {broker.node_id: broker.rack for broker in admin.metadata([]).brokers}
        try:
            sizes = sizes_of(admin, brokers)
        except KafkaError:
            sizes = {}  # not permitted: the number of partitions counts alone
        if (warning := warning_about(Cluster(brokers, current, sizes), plan.replicas)) is not None:
            print(warning, file=sys.stderr)


_PLAN_FILE: Final = "--reassignment-json-file"
_ACTIONS_OF_KAFKA: Final = ("--generate", "--execute", "--verify", "--cancel", "--list")
_ACTIONS: Mapping[str, _Action] = {
    "--generate": _Action(_generate, ("--topics-to-move-json-file", "--broker-list"), ("--disable-rack-aware",)),
    "--execute": _Action(
        _execute, (_PLAN_FILE,), ("--additional", "--throttle", "--replica-alter-log-dirs-throttle", "--timeout")
    ),
    "--verify": _Action(_verify, (_PLAN_FILE,), ("--preserve-throttles",)),
    "--cancel": _Action(_cancel, (_PLAN_FILE,), ("--preserve-throttles", "--timeout")),
    "--list": _Action(_list, (), ()),
    "--decommission": _Action(_decommission, ("--decommission",), ("--disable-rack-aware", "--batch-size")),
    "--balance": _Action(_balance, (), ("--disable-rack-aware", "--batch-size")),
    "--raise-replication-factor": _Action(
        _raise_replication_factor, ("--raise-replication-factor",), ("--disable-rack-aware", "--batch-size")
    ),
}
# The options that some actions do not allow, with the values that stand for not given.
_OPTIONS_OF_ACTIONS: Mapping[str, object] = {
    _PLAN_FILE: None,
    "--topics-to-move-json-file": None,
    "--broker-list": None,
    "--disable-rack-aware": False,
    "--batch-size": BATCH_SIZE,
    "--throttle": NO_THROTTLE,
    "--replica-alter-log-dirs-throttle": NO_THROTTLE,
    "--additional": False,
    "--preserve-throttles": False,
    "--timeout": MOVE_TIMEOUT_MS,
}


def _ongoing(admin: AdminClient) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Return all active reassignments."""
    response = admin.call_controller(
        ListPartitionReassignmentsRequest(timeout_ms=admin.request_timeout_ms),
        ListPartitionReassignmentsResponse,
        lambda response: [response.error_code],
    )
    raise_for(response.error_code, response.error_message)
    return {
        (topic.name, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }


def _alter(admin: AdminClient, targets: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, str]:
    """Begin, or for None cancel, the reassignment of partitions; return the errors of those that fail."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in targets.items():
        asked = ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        topics.setdefault(topic, []).append(asked)
    response = admin.call_controller(
        AlterPartitionReassignmentsRequest(
            timeout_ms=admin.request_timeout_ms,
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        ),
        AlterPartitionReassignmentsResponse,
        lambda response: [response.error_code],
    )
    raise_for(response.error_code, response.error_message)
    return {
        (topic.name, result.partition_index): result.error_message or KafkaError(ErrorCode(result.error_code)).message
        for topic in response.responses
        for result in topic.partitions
        if result.error_code
    }


def _move(admin: AdminClient, log_dirs: Mapping[Replica, str], timeout_ms: int) -> None:
    try:
        for begun in begin_moves(admin, log_dirs, timeout_ms):
            print(f"Successfully started log directory move{_plural(begun)} for: {','.join(map(str, begun))}")
    except TimeoutError as error:
        raise ReassignmentError(str(error)) from None


def _require_known_brokers(admin: AdminClient, plan: Plan) -> None:
    known = {broker.node_id for broker in admin.metadata([]).brokers}
    for broker_id in (broker_id for replicas in plan.replicas.values() for broker_id in replicas):
        if broker_id not in known:
            raise InvalidPlanError(f"Unknown broker id {broker_id}")


def _replicas_of_topics(admin: AdminClient, topics: Sequence[str]) -> dict[TopicPartition, Sequence[int]]:
    """Return the replicas of all partitions of topics. Raises KafkaError for a missing topic."""
    found: dict[TopicPartition, Sequence[int]] = {}
    for topic in admin.metadata(topics).topics if topics else ():
        if topic.error_code:
            raise _not_found(f"Topic {topic.name} not found.")
        name = topic.name or ""
        found |= {(name, partition.partition_index): partition.replica_nodes for partition in topic.partitions}
    return found


def _known_replicas(admin: AdminClient, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Sequence[int]]:
    """Return the replicas of those partitions that exist. A partition that is being moved has old and new ones."""
    topics = sorted({topic for topic, _ in partitions})
    return {
        (topic.name or "", partition.partition_index): partition.replica_nodes
        for topic in (admin.metadata(topics).topics if topics else ())
        for partition in topic.partitions
        if (topic.name, partition.partition_index) in partitions
    }


def _replicas_of_partitions(admin: AdminClient, wanted: Replicas) -> dict[TopicPartition, Sequence[int]]:
    """Return the replicas of partitions. Raises KafkaError for a missing one."""
    all_partitions = _replicas_of_topics(admin, sorted({topic for topic, _ in wanted}))
    for partition in sorted(wanted):
        if partition not in all_partitions:
            raise _not_found(f"Unable to find partition: {partition_name(partition)}")
    return {partition: all_partitions[partition] for partition in wanted}


def _not_found(text: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _throttle(
    admin: AdminClient,
    plan: Plan,
    ongoing: Mapping[TopicPartition, OngoingPartitionReassignment],
    current: Replicas,
    options: argparse.Namespace,
) -> None:
    if options.throttle >= 0:
        active = {
            partition: Move(
                frozenset(found.replicas) - frozenset(found.adding_replicas), frozenset(found.adding_replicas)
            )
            for partition, found in ongoing.items()
        }
        found = moves(active, plan.replicas, current)
        for topic, replicas in throttled_replicas(found).items():
            _change_configs(admin, TOPICS, topic, dict(zip(_TOPIC_THROTTLES, replicas, strict=True)))
        for broker_id in moving_brokers(found):
            _change_configs(admin, BROKERS, str(broker_id), dict.fromkeys(_BROKER_THROTTLES, str(options.throttle)))
        print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    if options.replica_alter_log_dirs_throttle >= 0:
        rate = options.replica_alter_log_dirs_throttle
        for broker_id in sorted({replica.broker_id for replica in plan.log_dirs}):
            _change_configs(admin, BROKERS, str(broker_id), {_LOG_DIR_THROTTLE: str(rate)})
        print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def _clear_throttles(admin: AdminClient, partitions: Replicas) -> None:
    """Remove all throttles: which brokers an earlier execution throttled is not known."""
    brokers = {broker.node_id for broker in admin.metadata([]).brokers}
    brokers.update(broker_id for replicas in partitions.values() for broker_id in replicas)
    print(f"Clearing broker-level throttles on broker{_plural(brokers)} {_ids(sorted(brokers))}")
    for broker_id in sorted(brokers):
        _change_configs(admin, BROKERS, str(broker_id), dict.fromkeys((*_BROKER_THROTTLES, _LOG_DIR_THROTTLE)))
    topics = sorted({topic for topic, _ in partitions})
    print(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    for topic in topics:
        _change_configs(admin, TOPICS, topic, dict.fromkeys(_TOPIC_THROTTLES))


def _change_configs(admin: AdminClient, kind: str, name: str, values: Mapping[str, str | None]) -> None:
    """Set, or for None delete, configurations of one topic or broker."""
    resource = AlterConfigsResource(
        resource_type=RESOURCE_TYPES[kind],
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value or "")
            for key, value in values.items()
        ],
    )
    response = admin.call(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        IncrementalAlterConfigsResponse,
        broker_id=int(name) if kind == BROKERS else None,
    )
    for result in response.responses:
        raise_for(result.error_code, result.error_message)


def _plural(items: Iterable[object]) -> str:
    return "" if len(list(items)) == 1 else "s"


def _ids(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
