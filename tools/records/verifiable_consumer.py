"""kafka-verifiable-consumer: consumes records, and prints what it was assigned, has consumed and has committed.

`VerifiableConsumer` does the same inside another program.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, StopRequest, WithoutArguments, run_tool
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings
from tools.client.first_connection import require_right_listener
from tools.records.verifiable_events import Emit, printing

ENDLESS: Final = -1
POLL_S: Final = 0.1
RECORDS_PER_POLL: Final = 500


class VerifiableConsumer:
    """Consumes one topic as a member of a group, and reports to `emit`, in the thread of `run`.

    Args:
        settings: of the client library.
        messages_max: how many; -1 for no limit.
        is_verbose: report each record too.
        commits: commit after each poll, synchronously.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        emit: Emit,
        *,
        messages_max: int = ENDLESS,
        is_verbose: bool = False,
        commits: bool = True,
    ) -> None:
        self.consumed = 0
        self._consumer = library.Consumer(dict(settings))
        self._topic = topic
        self._emit = emit
        self._messages_max = messages_max
        self._is_verbose = is_verbose
        self._commits = commits
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """Let `run` end after its current poll. Callable from any thread and from a signal handler."""
        self._is_stopped.set()

    def run(self) -> None:
        """Consume until the limit or a stop, then leave the group."""
        self._emit("startup_complete", {})
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not self._is_stopped.is_set() and self.consumed != self._messages_max:
                wanted = RECORDS_PER_POLL
                if self._messages_max != ENDLESS:
                    wanted = min(wanted, self._messages_max - self.consumed)
                messages = [it for it in self._consumer.consume(wanted, POLL_S) if it.error() is None]
                if messages:
                    self._report(messages)
                    if self._commits:
                        self._commit(messages)
        finally:
            self._consumer.close()
            self._emit("shutdown_complete", {})

    def _report(self, messages: Sequence[library.Message]) -> None:
        self.consumed += len(messages)
        offsets: dict[int, list[int]] = {}
        for message in messages:
            offsets.setdefault(_partition(message), []).append(_offset(message))
            if self._is_verbose:
                self._emit(
                    "record_data",
                    {
                        "key": _text(message.key()),
                        "value": _text(message.value()),
                        "topic": message.topic(),
                        "partition": message.partition(),
                        "offset": message.offset(),
                    },
                )
        partitions = [
            {
                "topic": self._topic,
                "partition": partition,
                "count": len(found),
                "minOffset": min(found),
                "maxOffset": max(found),
            }
            for partition, found in offsets.items()
        ]
        self._emit("records_consumed", {"count": len(messages), "partitions": partitions})

    def _commit(self, messages: Sequence[library.Message]) -> None:
        positions = {_partition(message): _offset(message) + 1 for message in messages}
        offsets = [library.TopicPartition(self._topic, partition, offset) for partition, offset in positions.items()]
        result: dict[str, object] = {
            "offsets": [
                {"topic": self._topic, "partition": partition, "offset": offset}
                for partition, offset in positions.items()
            ],
            "success": True,
        }
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except library.KafkaException as error:
            failure: library.KafkaError = error.args[0]
            result |= {"success": False, "error": failure.str()}
        self._emit("offsets_committed", result)

    def _assigned(self, consumer: library.Consumer, partitions: Iterable[library.TopicPartition]) -> None:
        self._emit("partitions_assigned", {"partitions": _named(partitions)})

    def _revoked(self, consumer: library.Consumer, partitions: Iterable[library.TopicPartition]) -> None:
        self._emit("partitions_revoked", {"partitions": _named(partitions)})


def _named(partitions: Iterable[library.TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]


def _partition(message: library.Message) -> int:
    partition: int | None = message.partition()
    assert partition is not None
    return partition


def _offset(message: library.Message) -> int:
    offset: int | None = message.offset()
    assert offset is not None
    return offset


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-verifiable-consumer",
        "This tool consumes messages from a specific topic and emits consumer events (e.g. group rebalances, received "
        "messages, and offsets committed) as JSON objects to STDOUT.",
        without_arguments=WithoutArguments.HELP,
    )
    line.add_option("--topic", value="TOPIC", help_text="REQUIRED: The topic to consume.")
    line.add_option(*BOOTSTRAP_SERVER, value="HOST1:PORT1[,HOST2:PORT2]", help_text="REQUIRED: The brokers.")
    line.add_option("--group-id", value="GROUP_ID", help_text="REQUIRED: The consumer group.")
    line.add_option("--group-instance-id", value="GROUP_INSTANCE_ID", help_text="The id of a static member.")
    line.add_option(
        "--max-messages",
        value="MAX-MESSAGES",
        parse=int,
        default=ENDLESS,
        help_text="How many messages to consume; -1 until the tool is stopped (default: -1).",
    )
    line.add_option(
        "--session-timeout",
        value="TIMEOUT_MS",
        parse=int,
        default=30_000,
        help_text="The session timeout in milliseconds (default: 30000).",
    )
    line.add_flag("--verbose", "Print each record.")
    line.add_flag("--enable-autocommit", "Commit periodically and not after each poll.")
    line.add_option(
        "--reset-policy",
        value="RESETPOLICY",
        default="earliest",
        help_text="Where to begin without a committed offset: earliest, latest or none (default: earliest).",
    )
    line.add_option(
        "--assignment-strategy",
        value="ASSIGNMENTSTRATEGY",
        default="org.apache.kafka.clients.consumer.RangeAssignor",
        help_text="The assignor, as a Java class or the client library's name (default: RangeAssignor).",
    )
    line.add_option(
        "--group-protocol",
        value="GROUP_PROTOCOL",
        default="classic",
        help_text="The group protocol: classic or consumer (default: classic).",
    )
    line.add_option(
        "--group-remote-assignor", value="GROUP_REMOTE_ASSIGNOR", help_text="The assignor of the consumer protocol."
    )
    line.add_option("--consumer.config", value="CONFIG_FILE", help_text="A properties file of the consumer.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--topic", "--bootstrap-server", "--group-id")
    line.require_one_of(options, "--reset-policy", ("earliest", "latest", "none"))
    settings = {
        **load_settings(options.consumer_config, ()),
        "bootstrap.servers": ",".join(map(str, parse_bootstrap(options.bootstrap_server))),
        "group.id": options.group_id,
        "group.protocol": options.group_protocol.lower(),
        "enable.auto.commit": str(options.enable_autocommit).lower(),
        "auto.offset.reset": options.reset_policy,
    }
    if settings["group.protocol"] == "classic":
        settings["session.timeout.ms"] = str(options.session_timeout)
        settings["partition.assignment.strategy"] = options.assignment_strategy
    elif options.group_remote_assignor is not None:
        settings["group.remote.assignor"] = options.group_remote_assignor
    if options.group_instance_id is not None:
        settings["group.instance.id"] = options.group_instance_id
    require_right_listener(settings, "--consumer.config")
    try:
        consumer = VerifiableConsumer(
            library_settings(settings, is_consumer=True),
            options.topic,
            printing(),
            messages_max=options.max_messages,
            is_verbose=options.verbose,
            commits=not options.enable_autocommit,
        )
    except library.KafkaException as error:
        print(f"Failed to construct kafka consumer: {error.args[0].str()}", file=sys.stderr)
        return 1
    with StopRequest(consumer.stop):
        consumer.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
