"""kafka-console-consumer: prints the records of topics."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import Any, BinaryIO

from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, StopRequest, UsageError, run_tool
from tools.base.topic_patterns import topic_expression, topic_pattern
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings, parse_assignments
from tools.client.first_connection import require_served
from tools.records.deserializers import DeserializationError
from tools.records.message_formatters import (
    FORMATTERS_HELP,
    PROPERTIES_HELP,
    ConsumedRecord,
    MessageFormatter,
    TimestampType,
    message_formatter,
)
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_brokers_of_zookeeper

logger = logging.getLogger("org.apache.kafka.tools.consumer.ConsoleConsumer")

BROKER_TIMEOUT_S = 60.0
POLL_TIMEOUT_S = 0.1
BATCH_COUNT_MAX = 500

_OFFSETS = ("earliest", "latest")
_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-console-consumer",
        "Reads records of topics and prints them.",
        [
            "--bootstrap-server localhost:9092 --topic orders --from-beginning --max-messages 10",
            "--bootstrap-server localhost:9092 --topic orders --property print.key=true --property print.offset=true",
            "--bootstrap-server localhost:9092 --topic orders --formatter JsonMessageFormatter --from-beginning",
            "--bootstrap-server localhost:9092 --topic __consumer_offsets --formatter OffsetsMessageFormatter",
        ],
    )
    line.add_option(*BOOTSTRAP_SERVER, value="servers", help_text="REQUIRED: brokers, as host:port,host:port.")
    add_zookeeper_option(line)
    line.add_option("--topic", value="topic", help_text="REQUIRED, or --include: the topic to read.")
    line.add_option("--include", "--whitelist", value="regex", help_text="The topics to read.")
    line.add_option("--blacklist", value="regex", help_text="The topics not to read.")
    line.add_option("--partition", value="partition", parse=int, help_text="The partition to read, from its end.")
    line.add_option("--offset", value="offset", help_text="Where to begin in it: a number, earliest or latest.")
    line.add_option("--group", value="group", help_text="The consumer group to join.")
    line.add_flag("--from-beginning", "Begin with the earliest record, where the group has no offset.")
    line.add_option("--max-messages", value="count", parse=int, help_text="End after so many records.")
    line.add_option("--timeout-ms", value="ms", parse=int, help_text="End when no record comes for so long.")
    line.add_option("--isolation-level", value="level", default="read_uncommitted", help_text="Or read_committed.")
    line.add_flag("--skip-message-on-error", "Skip a record that cannot be printed instead of ending.")
    line.add_option("--consumer-property", value="key=value", repeatable=True, help_text="A setting of the consumer.")
    line.add_option("--consumer.config", value="file", help_text="Settings of the consumer.")
    line.add_option("--formatter", value="class", default="DefaultMessageFormatter", help_text=FORMATTERS_HELP)
    line.add_option("--formatter-config", value="file", help_text="Settings of the formatter.")
    line.add_option("--property", value="key=value", repeatable=True, help_text=PROPERTIES_HELP)
    line.add_option("--key-deserializer", value="class", help_text="Makes text of keys.")
    line.add_option("--value-deserializer", value="class", help_text="Makes text of values.")
    line.add_flag("--enable-systest-events", "Accepted; no events are printed.")
    line.add_flag("--new-consumer", "Accepted.")
    return line


def _check(line: CommandLine, options: argparse.Namespace) -> None:
    topics = [option for option in (options.topic, options.include, options.blacklist) if option is not None]
    if len(topics) != 1:
        raise UsageError("Exactly one of --include/--topic is required.")
    line.require(options, "--bootstrap-server")
    line.require_one_of(options, "--isolation-level", _ISOLATION_LEVELS)
    if options.partition is not None and options.topic is None:
        raise UsageError("The topic is required when partition is specified.")
    if options.offset is not None:
        if options.partition is None:
            raise UsageError("The partition is required when offset is specified.")
        if options.from_beginning:
            raise UsageError("Options from-beginning and offset cannot be specified together.")
        if options.offset.lower() not in _OFFSETS and not options.offset.isdecimal():
            raise UsageError(
                f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', "
                "or a non-negative long."
            )
    if options.group is not None and options.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")


def consumer_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the consumer's settings under Java names: options win over properties, properties over the file."""
    settings = load_settings(options.consumer_config, options.consumer_property)
    settings["bootstrap.servers"] = ",".join(map(str, parse_bootstrap(options.bootstrap_server)))
    settings["isolation.level"] = options.isolation_level
    settings.setdefault("client.id", "console-consumer")
    settings.setdefault("allow.auto.create.topics", "true")
    given = {group for group in (options.group, settings.get("group.id")) if group is not None}
    if len(given) > 1:
        raise UsageError(
            "The group ids provided in different places do not match. Detected group ids: " + ", ".join(sorted(given))
        )
    if given:
        (settings["group.id"],) = given
    else:
        # A temporary group commits no offsets.
        settings["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        settings.setdefault("enable.auto.commit", "false")
    reset = settings.get("auto.offset.reset")
    if options.from_beginning and reset not in (None, "earliest"):
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    settings.setdefault("auto.offset.reset", "earliest" if options.from_beginning else "latest")
    return settings


def formatter_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the formatter's settings: properties win over the file, dedicated options over both."""
    of_options = {"key.deserializer": options.key_deserializer, "value.deserializer": options.value_deserializer}
    return {
        **load_settings(options.formatter_config, ()),
        **parse_assignments(options.property),
        **{key: name for key, name in of_options.items() if name is not None},
    }


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    use_brokers_of_zookeeper(line, options)
    _check(line, options)
    settings = consumer_settings(options)
    formatter = message_formatter(options.formatter, formatter_settings(options))
    try:
        consumer = library.Consumer(
            {**library_settings(settings, is_consumer=True), "enable.auto.offset.store": False}, logger=logger
        )
    except library.KafkaException as error:
        raise UsageError(error.args[0].str()) from error
    # Before the library reports every single failed connection.
    require_served(settings, "--consumer.config")
    count = 0
    try:
        with StopRequest() as stop:
            _subscribe(consumer, options, settings["bootstrap.servers"])
            with closing(_records(consumer, options, sys.stdout.buffer, stop)) as records:
                for record in records:
                    count += print_record(
                        record, formatter, sys.stdout.buffer, skips_errors=options.skip_message_on_error
                    )
    except (library.KafkaException, DeserializationError) as error:
        reason = error.args[0].str() if isinstance(error, library.KafkaException) else str(error)
        logger.error("Error processing message, terminating consumer process: %s", reason)
        return 1
    finally:
        consumer.close()
        print(f"Processed a total of {count} messages", file=sys.stderr)
    return 0


def _subscribe(consumer: Any, options: argparse.Namespace, bootstrap: str) -> None:
    """Raises KafkaException if no broker responds."""
    try:
        metadata = consumer.list_topics(timeout=BROKER_TIMEOUT_S)
    except library.KafkaException as error:
        reason = f"No broker of {bootstrap} responded within {BROKER_TIMEOUT_S:.0f} s: {error.args[0].str()}"
        raise library.KafkaException(library.KafkaError(error.args[0].code(), reason)) from error
    if options.topic is not None and options.topic not in metadata.topics:
        logger.warning("Topic %s does not exist yet", options.topic)
        # A Metadata request for one topic creates it, if the broker allows this.
        consumer.list_topics(options.topic, timeout=BROKER_TIMEOUT_S)
    if options.partition is not None:
        text = (options.offset or "latest").lower()
        special = {"earliest": library.OFFSET_BEGINNING, "latest": library.OFFSET_END}
        offset = special[text] if text in special else int(text)
        if options.from_beginning:
            offset = library.OFFSET_BEGINNING
        consumer.assign([library.TopicPartition(options.topic, options.partition, offset)])
    elif options.topic is not None:
        consumer.subscribe([options.topic])
    elif options.include is not None:
        consumer.subscribe([f"^({topic_expression(options.include)})$"])
    else:
        excluded = topic_pattern(options.blacklist)
        consumer.subscribe([topic for topic in metadata.topics if not excluded.fullmatch(topic)])


def _records(
    consumer: Any, options: argparse.Namespace, output: BinaryIO, stop: StopRequest
) -> Generator[ConsumedRecord, None, None]:
    """Yield records until `--max-messages`, until none arrives within the timeout, or until a signal.

    Flushes the output whenever no record is waiting. Only what was printed then is committed, also if the caller ends
    in the middle of a batch.
    """
    unknown_topic = (
        library.KafkaError._UNKNOWN_TOPIC,
        library.KafkaError.UNKNOWN_TOPIC_OR_PART,
        library.KafkaError.LEADER_NOT_AVAILABLE,
    )
    no_record = (
        library.KafkaError._PARTITION_EOF,
        library.KafkaError._TRANSPORT,
        library.KafkaError._ALL_BROKERS_DOWN,
    )
    left = options.max_messages if options.max_messages is not None and options.max_messages >= 0 else None
    deadline_s = deadline_of(options.timeout_ms)
    warned = False
    printed = _Printed(consumer, output)
    try:
        while not stop.is_made and (left is None or left > 0):
            count_max = BATCH_COUNT_MAX if left is None else min(left, BATCH_COUNT_MAX)
            messages = consumer.consume(count_max, POLL_TIMEOUT_S)
            for message in messages:
                error = message.error()
                if error is None:
                    left = None if left is None else left - 1
                    yield consumed_record(message)
                    printed.add(message)
                elif error.code() in unknown_topic:
                    if not warned:
                        logger.warning("Topic %s does not exist yet: %s", message.topic(), error.name())
                    warned = True
                elif error.code() not in no_record:
                    raise library.KafkaException(error)
            printed.flush()
            if messages:
                deadline_s = deadline_of(options.timeout_ms)
            elif time.monotonic() > deadline_s:
                logger.error("Error processing message, terminating consumer process: ")
                print("org.apache.kafka.common.errors.TimeoutException", file=sys.stderr)
                return
    finally:
        with suppress(OSError):  # a closed pipe has not got the rest
            printed.flush()


class _Printed:
    """What was printed: only that is committed."""

    def __init__(self, consumer: Any, output: BinaryIO) -> None:
        self._consumer = consumer
        self._output = output
        self._last: dict[tuple[str, int], Any] = {}

    def add(self, message: Any) -> None:
        self._last[message.topic(), message.partition()] = message

    def flush(self) -> None:
        """Flush the output, and let the library commit the offsets behind it. Raises OSError."""
        self._output.flush()
        for message in self._last.values():
            with suppress(library.KafkaException):  # the group has given the partition to another member
                self._consumer.store_offsets(message=message)
        self._last.clear()


def deadline_of(timeout_ms: int | None) -> float:
    """Return when a timeout ends by `time.monotonic`; infinity for None or a negative one."""
    return float("inf") if timeout_ms is None or timeout_ms < 0 else time.monotonic() + timeout_ms / 1000


@cache
def _timestamp_types() -> Mapping[int, TimestampType]:
    return {
        library.TIMESTAMP_CREATE_TIME: TimestampType.CREATE_TIME,
        library.TIMESTAMP_LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
    }


def consumed_record(message: Any) -> ConsumedRecord:
    """Return a message of the client library as formatters expect it."""
    timestamp_type, timestamp_ms = message.timestamp()
    return ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        _timestamp_types().get(timestamp_type, TimestampType.NONE),
        timestamp_ms,
        message.key(),
        message.value(),
        message.headers() or (),
        message.delivery_count(),
        message.leader_epoch(),
    )


def print_record(record: ConsumedRecord, formatter: MessageFormatter, output: BinaryIO, *, skips_errors: bool) -> int:
    """Print a record; return how many were printed, 1 or 0. Raises DeserializationError without `skips_errors`."""
    try:
        output.write(formatter.format(record))
    except DeserializationError as error:
        if not skips_errors:
            raise
        logger.error("Error processing message, skipping this message: %s", error)
        return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
