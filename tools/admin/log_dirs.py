"""kafka-log-dirs: prints the contents of brokers' log directories as JSON."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.base.java_names import exception_name, hash_map_order, json_text, topic_partition_hash
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client

_VERSION: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-log-dirs", "This tool helps to query log directory usage on the specified brokers.")
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_flag("--describe", "Describe the specified log directories on the specified brokers.")
    line.add_option(
        "--topic-list", value="Topic list", default="", help_text='The topics, as in "topic1,topic2"; all without it.'
    )
    line.add_option(
        "--broker-list",
        value="Broker list",
        default="",
        help_text='The ids of the brokers, as in "0,1"; all without it.',
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server")
    if not options.describe:
        raise UsageError('Missing required argument "[describe]"')
    wanted = _broker_ids(options.broker_list)
    topics = frozenset(topic for topic in options.topic_list.split(",") if topic)
    try:
        with admin_client(options) as admin:
            existing = sorted(broker.node_id for broker in admin.metadata([]).brokers)
            if missing := [broker_id for broker_id in wanted if broker_id not in existing]:
                return _failed(
                    f"ERROR: The given brokers do not exist from --broker-list: {_joined(missing)}. "
                    f"Current existent brokers: {_joined(existing)}"
                )
            broker_ids = wanted or existing
            print("Querying brokers for log directories information", flush=True)
            log_dirs = {broker_id: log_dirs_of(admin, broker_id) for broker_id in broker_ids}
    except KafkaError as error:
        return _failed(error.message)
    except CallTimedOut as error:
        return _failed(str(error))
    print(f"Received log directory information from brokers {_joined(broker_ids)}")
    print(json_text(_description(log_dirs, topics)))
    return 0


def _failed(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 1


def _joined(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))


def _broker_ids(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",") if part})
    except ValueError:
        raise UsageError(f"Cannot parse argument '{text}' of option broker-list: expected ids as in 0,1,2") from None


def log_dirs_of(admin: AdminClient, broker_id: int) -> Mapping[str, DescribeLogDirsResult]:
    """Return the directories of one broker with all their partitions. Raises KafkaError."""
    request = DescribeLogDirsRequest(topics=None)
    response = admin.call(request, DescribeLogDirsResponse, broker_id=broker_id)
    raise_for(response.error_code)
    return {result.log_dir: result for result in response.results}


def _description(
    log_dirs: Mapping[int, Mapping[str, DescribeLogDirsResult]], topics: frozenset[str]
) -> dict[str, object]:
    brokers = [
        {"broker": broker_id, "logDirs": [_log_dir(results[path], topics) for path in hash_map_order(results)]}
        for broker_id, results in log_dirs.items()
    ]
    return {"brokers": brokers, "version": _VERSION}


def _log_dir(result: DescribeLogDirsResult, topics: frozenset[str]) -> dict[str, object]:
    """Return one directory with its partitions of the topics, or with all partitions without topics.

    Kafka's tool filters a map of all partitions, whose order remains.
    """
    partitions = {
        (topic.name, partition.partition_index): partition for topic in result.topics for partition in topic.partitions
    }
    described = [
        {
            "partition": f"{name}-{index}",
            "size": partitions[name, index].partition_size,
            "offsetLag": partitions[name, index].offset_lag,
            "isFuture": partitions[name, index].is_future_key,
        }
        for name, index in hash_map_order(partitions, hash_code=topic_partition_hash)
        if not topics or name in topics
    ]
    code = ErrorCode(result.error_code)
    return {"partitions": described, "error": exception_name(code) if code else None, "logDir": result.log_dir}


if __name__ == "__main__":
    raise SystemExit(main())
