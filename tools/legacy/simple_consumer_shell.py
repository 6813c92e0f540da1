"""kafka.tools.SimpleConsumerShell: prints the records of a partition, as kafka-console-consumer --partition does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, StopRequest, run_tool, warn
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, parse_assignments
from tools.client.first_connection import require_served
from tools.records.console_consumer import consumed_record, print_record
from tools.records.deserializers import DeserializationError
from tools.records.message_formatters import MessageFormatter, message_formatter

EARLIEST, LATEST, LEADER = -2, -1, -1
METADATA_TIMEOUT_S: Final = 10.0
POLL_TIMEOUT_S: Final = 0.1
_SPECIAL: Final[Mapping[int, int]] = {EARLIEST: OFFSET_BEGINNING, LATEST: OFFSET_END}


class ShellError(Exception):
    """The partition cannot be read; the text is one line for stderr."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("SimpleConsumerShell", "A low-level tool for fetching data directly from a particular replica.")
    line.add_option(*reversed(BOOTSTRAP_SERVER), value="hostname:port", help_text="REQUIRED: The brokers.")
    line.add_option("--topic", value="topic", help_text="REQUIRED: The topic to consume from.")
    line.add_option("--partition", value="partition", parse=int, default=0, help_text="The partition; 0 by default.")
    line.add_option("--replica", value="id", parse=int, default=LEADER, help_text="-1, which means the leader.")
    line.add_option(
        "--offset", value="offset", parse=int, default=EARLIEST, help_text="-2, from the beginning; -1: from the end."
    )
    line.add_option("--clientId", value="id", default="SimpleConsumerShell", help_text="The id of this client.")
    line.add_option("--fetchsize", value="bytes", default="1048576", help_text="The size of each fetch request.")
    line.add_option("--formatter", value="class", default="DefaultMessageFormatter", help_text="Prints the records.")
    line.add_option("--property", value="key=value", repeatable=True, help_text="A setting of the formatter.")
    line.add_flag("--print-offsets", "Print the offset after each record, before it.")
    line.add_option("--max-wait-ms", value="ms", default="1000", help_text="How long a fetch request waits.")
    line.add_option("--max-messages", value="count", parse=int, help_text="The number of messages to consume.")
    line.add_flag("--skip-message-on-error", "Skip a record that cannot be printed.")
    line.add_flag("--no-wait-at-logend", "Stop at the end of the log.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--broker-list", "--topic")
    warn("SimpleConsumerShell is deprecated. Use kafka-console-consumer --partition --offset instead.")
    formatter = message_formatter(options.formatter, parse_assignments(options.property))
    settings = {
        "bootstrap.servers": ",".join(map(str, parse_bootstrap(options.broker_list))),
        "client.id": options.clientId,
        "group.id": options.clientId,
        "enable.auto.commit": "false",
        "max.partition.fetch.bytes": options.fetchsize,
        "fetch.max.wait.ms": options.max_wait_ms,
    }
    require_served(settings, "kafka-console-consumer --consumer.config")
    consumer = Consumer({**library_settings(settings, is_consumer=True), "enable.partition.eof": True})
    try:
        _assign(consumer, options)
        with StopRequest() as stop:
            _print_all(consumer, options, formatter, stop)
    except ShellError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except (KafkaException, DeserializationError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        print(f"Error: {reason}", file=sys.stderr)
        return 1
    finally:
        consumer.close()
    return 0


def _assign(consumer: Any, options: argparse.Namespace) -> None:
    """Raises ShellError for what does not exist, and KafkaException."""
    topic, partition, offset = options.topic, options.partition, options.offset
    if options.replica != LEADER:
        raise ShellError(
            f"--replica {options.replica}: only the leader is read; kafka-replica-verification compares replicas"
        )
    if offset < EARLIEST:
        raise ShellError(f"Invalid starting offset: {offset}")
    found = consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise ShellError(f"no valid topic metadata for topic: {topic}: {found.error.str()}")
    if partition not in found.partitions:
        raise ShellError(f"partition {partition} does not exist for topic {topic}")
    consumer.assign([TopicPartition(topic, partition, _SPECIAL.get(offset, offset))])


def _print_all(consumer: Any, options: argparse.Namespace, formatter: MessageFormatter, stop: StopRequest) -> None:
    """Print records until there are enough, until the end if this is asked for, or until a signal."""
    count = 0
    output = sys.stdout.buffer
    while not stop.is_made and (options.max_messages is None or count < options.max_messages):
        message = consumer.poll(POLL_TIMEOUT_S)
        if message is None:
            output.flush()
            continue
        error = message.error()
        if error is None:
            if options.print_offsets:
                output.write(b"next offset = %d\n" % (message.offset() + 1))
            count += print_record(
                consumed_record(message), formatter, output, skips_errors=options.skip_message_on_error
            )
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        elif options.no_wait_at_logend:
            where = f"({options.topic}, {options.partition}) at offset {message.offset()}"
            output.write(f"Terminating. Reached the end of partition {where}\n".encode())
            return


if __name__ == "__main__":
    raise SystemExit(main())
