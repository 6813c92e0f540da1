"""kafka-console-share-consumer: prints the records that a share group delivers, and acknowledges them (KIP-932)."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, StopRequest, UsageError, run_tool
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import load_settings
from tools.client.first_connection import require_served
from tools.records.console_consumer import POLL_TIMEOUT_S, consumed_record, deadline_of, formatter_settings
from tools.records.deserializers import DeserializationError
from tools.records.message_formatters import FORMATTERS_HELP, PROPERTIES_HELP, MessageFormatter, message_formatter
from tools.records.share_consumers import EXPLICIT, new_share_consumer, poll

logger = logging.getLogger("org.apache.kafka.tools.consumer.ConsoleShareConsumer")

DEFAULT_NAME: Final = "console-share-consumer"
"""The group and the client id of a consumer that is given none."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-console-share-consumer",
        "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
        [
            "--bootstrap-server localhost:9092 --topic orders --group workers --max-messages 10",
            "--bootstrap-server localhost:9092 --topic orders --group workers --property print.delivery=true --release",
        ],
    )
    line.add_option(*BOOTSTRAP_SERVER_ONLY, value="servers", help_text="REQUIRED: brokers, as host:port,host:port.")
    line.add_option("--topic", value="topic", help_text="REQUIRED: the topic to read.")
    line.add_option("--group", value="share group id", help_text=f"The share group (default: {DEFAULT_NAME}).")
    line.add_option("--max-messages", value="count", parse=int, help_text="End after so many records.")
    line.add_option("--timeout-ms", value="ms", parse=int, help_text="End when no record comes for so long.")
    line.add_flag("--reject", "Reject the records after printing them, instead of accepting them.")
    line.add_flag("--release", "Release the records after printing them, so that the group delivers them again.")
    line.add_flag("--reject-message-on-error", "Reject a record that cannot be printed instead of ending.")
    line.add_option(
        "--consumer-property",
        "--command-property",
        value="key=value",
        repeatable=True,
        help_text="A setting of the consumer.",
    )
    line.add_option(
        "--consumer-config",
        "--consumer.config",
        "--command-config",
        value="file",
        help_text="Settings of the consumer.",
    )
    line.add_option("--formatter", value="class", default="DefaultMessageFormatter", help_text=FORMATTERS_HELP)
    line.add_option("--formatter-config", value="file", help_text="Settings of the formatter.")
    line.add_option(
        "--property",
        "--formatter-property",
        value="key=value",
        repeatable=True,
        help_text=PROPERTIES_HELP,
    )
    line.add_option("--key-deserializer", value="class", help_text="Makes text of keys.")
    line.add_option("--value-deserializer", value="class", help_text="Makes text of values.")
    line.add_flag("--enable-systest-events", "Print a line when the consumer has ended.")
    return line


def consumer_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the consumer's settings under Java names. Raises UsageError for several group ids."""
    settings = load_settings(options.consumer_config, options.consumer_property)
    settings["bootstrap.servers"] = ",".join(map(str, parse_bootstrap(options.bootstrap_server)))
    settings.setdefault("client.id", DEFAULT_NAME)
    given = {group for group in (options.group, settings.get("group.id")) if group is not None}
    if len(given) > 1:
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer-config') do not match. Detected group ids: {', '.join(f'{name!r}' for name in sorted(given))}"
        )
    return {**settings, "group.id": given.pop() if given else DEFAULT_NAME, **EXPLICIT}


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.topic is None:
        raise UsageError("--topic is a required argument")
    line.require(options, "--bootstrap-server")
    if options.reject and options.release:
        raise UsageError("At most one of --reject and --release may be specified.")
    settings = consumer_settings(options)
    formatter = message_formatter(options.formatter, formatter_settings(options))
    require_served(settings, "--consumer-config")
    consumer = new_share_consumer(settings, logger)
    types = library.AcknowledgeType
    acknowledgement = types.REJECT if options.reject else types.RELEASE if options.release else types.ACCEPT
    count = 0
    try:
        with StopRequest() as stop:
            consumer.subscribe([options.topic])
            for message in _messages(consumer, options, sys.stdout.buffer, stop):
                count += 1
                is_printed = _print(message, formatter, sys.stdout.buffer, rejects=options.reject_message_on_error)
                consumer.acknowledge(message, acknowledgement if is_printed else types.REJECT)
    except (library.KafkaException, library.IllegalStateException, DeserializationError) as error:
        reason = error.args[0].str() if isinstance(error, library.KafkaException) else str(error)
        logger.error("Error processing message, terminating consumer process: %s", reason)
        return 1
    finally:
        consumer.close()  # sends the last acknowledgements, and releases the records without one
        print(f"Processed a total of {count} messages", file=sys.stderr)
        if options.enable_systest_events:
            print("shutdown_complete")
    return 0


def _messages(consumer: Any, options: argparse.Namespace, output: BinaryIO, stop: StopRequest) -> Iterator[Any]:
    """Yield messages until `--max-messages`, until none arrives within the timeout, or until a signal.

    The output is flushed before the next poll, which sends the acknowledgements of what was printed.
    """
    left = options.max_messages if options.max_messages is not None and options.max_messages >= 0 else None
    deadline_s = deadline_of(options.timeout_ms)
    while not stop.is_made and left != 0:
        messages = poll(consumer, POLL_TIMEOUT_S)
        if left is not None:
            messages = messages[:left]
            left -= len(messages)
        yield from messages
        output.flush()
        if messages:
            deadline_s = deadline_of(options.timeout_ms)
        elif time.monotonic() > deadline_s:
            logger.error("Error processing message, terminating consumer process: ")
            print("org.apache.kafka.common.errors.TimeoutException", file=sys.stderr)
            return


def _print(message: Any, formatter: MessageFormatter, output: BinaryIO, *, rejects: bool) -> bool:
    """Print a message; return whether it was printed. Raises DeserializationError without `rejects`."""
    try:
        output.write(formatter.format(consumed_record(message)))
    except DeserializationError as error:
        if not rejects:
            raise
        logger.error("Error processing message, rejecting this message: %s", error)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
