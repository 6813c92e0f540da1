"""kafka-leader-election: has the preferred, or any, replica of partitions elected as their leader."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tools.base.command_line import CommandLine, UsageError, is_given, run_tool
from tools.base.java_names import exception_text, hash_map_order, topic_partition_hash
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_client_options, admin_client
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_brokers_of_zookeeper

_ELECTION_TYPES: Final[Mapping[str, int]] = {"preferred": 0, "unclean": 1}
_PARTITION_OPTIONS: Final = ("--topic", "--all-topic-partitions", "--path-to-json-file")


class ElectionError(Exception):
    """The command failed; the text is one line for stderr."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a partition's election failed."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-leader-election",
        "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
        "preferred replicas and unclean replicas.",
    )
    add_client_options(line, "--admin.config")
    add_zookeeper_option(line)
    line.add_option(
        "--election-type",
        value="election",
        help_text="REQUIRED: preferred: the first replica leads, if it is in sync. unclean: for partitions without a "
        "leader, a replica that is not in sync may lead, and records are lost.",
    )
    line.add_option("--topic", value="topic name", help_text="The topic of --partition.")
    line.add_option("--partition", value="partition id", parse=int, help_text="The partition of --topic.")
    line.add_flag("--all-topic-partitions", "All partitions that need such an election.")
    line.add_option(
        "--path-to-json-file",
        value="Path to JSON file",
        help_text='The partitions, as {"partitions": [{"topic": "foo", "partition": 1}]}.',
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    use_brokers_of_zookeeper(line, options)
    line.require(options, "--bootstrap-server", "--election-type")
    if options.election_type.lower() not in _ELECTION_TYPES:
        raise UsageError(
            f"Cannot parse argument '{options.election_type}' of option election-type: expected preferred or unclean"
        )
    election = options.election_type.lower()
    try:
        partitions = _partitions(options)
        with admin_client(options) as admin:
            results = elect_leaders(admin, election, partitions)
        return _report(election.upper(), results)
    except ElectionError as error:
        print(error, file=sys.stderr)
    except KafkaError as error:
        print(error.message, file=sys.stderr)
    except CallTimedOut as error:
        print(error, file=sys.stderr)
    return 1


def _partitions(options: argparse.Namespace) -> list[TopicPartition] | None:
    """Return the partitions of the options, None for all. Raises ElectionError."""
    given = [name for name in _PARTITION_OPTIONS if is_given(options, name)]
    if len(given) != 1:
        names = ", ".join(name.lstrip("-") for name in _PARTITION_OPTIONS)
        raise ElectionError(f"One and only one of the following options is required: {names}")
    has_partition = options.partition is not None
    if options.topic is not None and not has_partition:
        raise ElectionError("Missing required option(s): partition")
    if options.topic is None and has_partition:
        raise ElectionError("Option partition is only allowed if topic is used")
    if options.topic is not None:
        return [(options.topic, options.partition)]
    return None if options.all_topic_partitions else partitions_of_file(options.path_to_json_file)


def partitions_of_file(path: str) -> list[TopicPartition]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        partitions = [(entry["topic"], entry["partition"]) for entry in content["partitions"]]
    except OSError as error:
        raise ElectionError(f"Cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ElectionError(
            f'{path} is invalid, expected {{"partitions": [{{"topic": "foo", "partition": 1}}]}}: {error}'
        ) from None
    repeated = sorted({partition for partition in partitions if partitions.count(partition) > 1})
    if repeated:
        raise ElectionError(f"Replica election data contains duplicate partitions: [{_names(repeated)}]")
    if not partitions:
        raise ElectionError("Replica election data is empty")
    return partitions


def elect_leaders(
    admin: AdminClient, election: str, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders of all, or the given, partitions; `election` is preferred or unclean.

    Return the error of each partition, None for none. Raises KafkaError for an error of the whole request.
    """
    asked: list[TopicPartitions] | None = None
    if partitions is not None:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        asked = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    request = ElectLeadersRequest(
        election_type=_ELECTION_TYPES[election], topic_partitions=asked, timeout_ms=admin.request_timeout_ms
    )
    response = admin.call_controller(
        request,
        ElectLeadersResponse,
        lambda response: [
            response.error_code,
            *(result.error_code for topic in response.replica_election_results for result in topic.partition_result),
        ],
    )
    raise_for(response.error_code)
    return {
        (topic.topic, result.partition_id): KafkaError(ErrorCode(result.error_code), result.error_message)
        if result.error_code
        else None
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def _report(election: str, results: Mapping[TopicPartition, KafkaError | None]) -> int:
    """Print the results by kind, and return the exit status. Raises ElectionError."""
    elected = [partition for partition, error in results.items() if error is None]
    failed = {partition: error for partition, error in results.items() if error is not None}
    not_needed = [partition for partition, error in failed.items() if error.code == ErrorCode.ELECTION_NOT_NEEDED]
    if elected:
        print(f"Successfully completed leader election ({election}) for partitions {_names(elected)}")
    if not_needed:
        print(f"Valid replica already elected for partitions {_names(not_needed)}")
    rest = {partition: error for partition, error in failed.items() if partition not in not_needed}
    for (topic, index), error in rest.items():
        print(f"Error completing leader election ({election}) for partition: {topic}-{index}: {exception_text(error)}")
    if rest:
        raise ElectionError(f"{len(rest)} replica(s) could not be elected")
    return 0


def _names(partitions: Sequence[TopicPartition]) -> str:
    in_order = hash_map_order(partitions, hash_code=topic_partition_hash)
    return ", ".join(f"{topic}-{index}" for topic, index in in_order)


if __name__ == "__main__":
    raise SystemExit(main())
