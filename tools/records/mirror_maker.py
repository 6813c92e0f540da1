"""kafka-mirror-maker: copies the records of topics to another cluster, continuously.

Owns the options of Kafka's first MirrorMaker and what they become. Must not know how records are copied
(`tools.records.mirror_streams`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from tools.base.command_line import CommandLine, StopRequest, UsageError, run_tool, warn
from tools.base.plug_ins import load_plug_in
from tools.base.topic_patterns import topic_pattern
from tools.client import client_library as library
from tools.client.client_settings import library_settings, load_settings
from tools.client.first_connection import require_right_listener
from tools.records.mirror_streams import MessageHandler, Mirror, RebalanceListener, TopicFilter

EVERYTHING: Final = "*"
PRODUCER_DEFAULTS: Mapping[str, str] = {
    "acks": "all",
    "retries": str(2**31 - 1),
    "delivery.timeout.ms": "0",  # the library's "without end"
    "max.in.flight.requests.per.connection": "1",
}
"""What loses and reorders nothing, unless the file says otherwise."""
ENDLESS_TIMEOUT_MS: Final = str(2**31 - 1)
"""How Java's producer writes a timeout without end."""
METADATA_AGE_MS: Final = "300000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-mirror-maker",
        "Copies the records of topics from one cluster to another, until it is stopped.",
        [
            "--consumer.config source.properties --producer.config target.properties --include 'orders|payments.*'",
            "--consumer.config source.properties --producer.config target.properties --include '.*' --num.streams 4",
        ],
    )
    line.add_option(
        "--consumer.config",
        value="CONFIG_FILE",
        repeatable=True,
        help_text="Settings of the consumers of the source. Several files are several groups.",
    )
    line.add_option("--producer.config", value="CONFIG_FILE", help_text="Settings of the producer of the target.")
    line.add_option(
        "--num.streams",
        value="NUMBER_OF_THREADS",
        parse=int,
        default=1,
        help_text="How many consumers each group has here (default: 1).",
    )
    line.add_option(
        "--include", value="REGEX", help_text="The topics to copy: a comma means 'or', a lone * everything."
    )
    line.add_option("--whitelist", value="REGEX", help_text="DEPRECATED: the old name of --include, which wins.")
    line.add_option("--blacklist", value="REGEX", help_text="Topics not to copy, also if they are included.")
    line.add_option(
        "--offset.commit.interval.ms",
        value="MS",
        parse=int,
        default=60_000,
        help_text="How often positions are committed (default: 60000).",
    )
    line.add_option(
        "--abort.on.send.failure",
        value="TRUE_OR_FALSE",
        default="true",
        help_text="Whether a record that cannot be sent ends the tool (default: true).",
    )
    line.add_option(
        "--message.handler",
        value="MODULE:CLASS",
        help_text="A Python class that turns each record into those to send.",
    )
    line.add_option("--message.handler.args", value="TEXT", help_text="Argument of the message handler's constructor.")
    line.add_option(
        "--consumer.rebalance.listener", value="MODULE:CLASS", help_text="The rebalance listener of the consumers."
    )
    line.add_option(
        "--rebalance.listener.args", value="TEXT", help_text="Argument of the rebalance listener's constructor."
    )
    line.add_flag("--new.consumer", "DEPRECATED, without effect: this is the only consumer.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--consumer.config", "--producer.config")
    line.require_one_of(options, "--abort.on.send.failure", ("true", "false"))
    if options.num_streams < 1:
        raise UsageError(f"Cannot parse argument '{options.num_streams}' of option num.streams: expected 1 or more")
    if options.whitelist is not None and options.include is None:
        warn("--whitelist is deprecated; use --include")
    consumers = [load_settings(path, ()) for path in options.consumer_config]
    for path, settings in zip(options.consumer_config, consumers, strict=True):
        _require(settings, path, "bootstrap.servers", "group.id")
    producer = load_settings(options.producer_config, ())
    _require(producer, options.producer_config, "bootstrap.servers")
    topics = _topics(options, consumers)
    for settings in consumers:
        require_right_listener(settings, "--consumer.config")
    require_right_listener(producer, "--producer.config")
    try:
        mirror = Mirror(
            _producer_settings(producer),
            topics=topics,
            commit_interval_s=options.offset_commit_interval_ms / 1000,
            aborts_on_failure=options.abort_on_send_failure == "true",
            handler=_handler(options),
            listener=_listener(options),
        )
        for settings in consumers:
            refresh_s = int(settings.get("metadata.max.age.ms", METADATA_AGE_MS)) / 1000
            for number in range(options.num_streams):
                mirror.add_stream(_consumer_settings(settings, number), refresh_s=refresh_s)
    except library.KafkaException as error:
        print(f"Failed to construct the clients: {error.args[0].str()}", file=sys.stderr)
        return 1
    with StopRequest(mirror.stop):
        mirror.run(_show if sys.stderr.isatty() else lambda copied: None)
    if mirror.dropped:
        print(f"{mirror.dropped} records could not be sent and are lost", file=sys.stderr)
    if mirror.failure is not None:
        print(f"Mirror maker has stopped: {mirror.failure}", file=sys.stderr)
        return 1
    return 0


def _topics(options: argparse.Namespace, consumers: Sequence[Mapping[str, str]]) -> TopicFilter:
    included = options.whitelist if options.include is None else options.include
    if included is None and options.blacklist is None:
        raise UsageError("include list must be specified")
    return TopicFilter(
        _pattern(EVERYTHING if included is None else included),
        None if options.blacklist is None else _pattern(options.blacklist),
        any(settings.get("exclude.internal.topics", "true").lower() == "false" for settings in consumers),
    )


def _pattern(text: str) -> re.Pattern[str]:
    return topic_pattern(".*" if text.strip("\"' ") == EVERYTHING else text)


def _require(settings: Mapping[str, str], path: str, *names: str) -> None:
    for name in names:
        if not settings.get(name):
            raise UsageError(f"{path} has no {name}")


def _producer_settings(given: Mapping[str, str]) -> dict[str, Any]:
    settings = {**PRODUCER_DEFAULTS, **given}
    if settings["delivery.timeout.ms"] == ENDLESS_TIMEOUT_MS:
        settings["delivery.timeout.ms"] = PRODUCER_DEFAULTS["delivery.timeout.ms"]
    # The partitioner that selects the same partition for a key as Java's producer.
    return {**library_settings(settings, is_consumer=False), "partitioner": "murmur2_random"}


def _consumer_settings(given: Mapping[str, str], number: int) -> dict[str, Any]:
    settings = {"client.id": f"{given['group.id']}-{number}", **given, "enable.auto.commit": "false"}
    # Without this, the library pauses for a second whenever it has read far enough ahead.
    return {**library_settings(settings, is_consumer=True), "fetch.queue.backoff.ms": 10}


def _handler(options: argparse.Namespace) -> MessageHandler | None:
    found = _plug_in(options.message_handler, options.message_handler_args, "message handler")
    return cast(MessageHandler | None, found)


def _listener(options: argparse.Namespace) -> RebalanceListener | None:
    found = _plug_in(options.consumer_rebalance_listener, options.rebalance_listener_args, "rebalance listener")
    return cast(RebalanceListener | None, found)


def _plug_in(name: str | None, argument: str | None, what: str) -> object:
    """Return an instance of a class that is named on the command line, None without a name. Raises UsageError."""
    if name is None:
        return None
    factory: Callable[..., Any] = load_plug_in(name, {}, what)
    try:
        return factory() if argument is None else factory(argument)
    except Exception as error:
        raise UsageError(f"Cannot create the {what} {name}: {error}") from error


def _show(copied: int) -> None:
    print(f"\r{copied} records copied", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
