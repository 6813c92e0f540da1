"""kafka-console-producer: sends the lines of its input as records of a topic."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BufferedIOBase
from typing import Any, cast

from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, UsageError, run_tool
from tools.base.line_reader import LineError, LineReader, LineRecord
from tools.base.plug_ins import load_plug_in
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings, parse_assignments
from tools.client.first_connection import require_served

logger = logging.getLogger("org.apache.kafka.tools.ConsoleProducer")

LINE_READERS: Mapping[str, Callable[..., LineReader]] = {"LineMessageReader": LineReader}

CHUNK_SIZE = 65_536
_LINE_END = re.compile(rb"\r\n|\r|\n")

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ALL_REPLICAS = ("-1", "all")
_ACKS = ("all", "-1", "0", "1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-console-producer",
        "Sends the lines of its input as records of a topic.",
        [
            "--bootstrap-server localhost:9092 --topic orders",
            "--bootstrap-server localhost:9092 --topic orders --property parse.key=true --property key.separator=:",
        ],
    )
    line.add_option("--topic", value="topic", help_text="The topic to send to.")
    line.add_option(*BOOTSTRAP_SERVER, value="servers", help_text="Brokers, as host:port,host:port.")
    line.add_flag("--sync", "Wait for every record before the next is read.")
    line.add_option(
        "--compression-codec",
        value="compression-codec",
        value_is_optional=True,
        value_if_absent="gzip",
        help_text="none, gzip, snappy, lz4 or zstd; gzip when no name is given.",
    )
    for name, value, default, help_text in _NUMBERS:
        line.add_option(name, value=value, parse=int, help_text=f"{help_text} (default: {default})")
    line.add_option("--request-required-acks", value="acks", help_text="Acknowledgements (default: -1)")
    line.add_option("--line-reader", value="class", default="LineMessageReader", help_text="Reads lines.")
    line.add_option("--property", value="key=value", repeatable=True, help_text="A setting of the line reader.")
    line.add_option("--reader-config", value="file", help_text="Settings of the line reader.")
    line.add_option("--producer-property", value="key=value", repeatable=True, help_text="A setting of the producer.")
    line.add_option("--producer.config", value="file", help_text="Settings of the producer.")
    line.add_option("--key-serializer", value="class", help_text="Accepted; bytes are sent as they are.")
    line.add_option("--value-serializer", value="class", help_text="Accepted; bytes are sent as they are.")
    line.add_flag("--old-producer", "Accepted.")
    line.add_flag("--new-producer", "Accepted.")
    return line


_NUMBERS: tuple[tuple[str, str, int, str], ...] = (
    (
        "--batch-size",
        "size",
        16384,
        "Bytes gathered for a partition.",
    ),
    (
        "--max-partition-memory-bytes",
        "size",
        16384,
        "The same; beats batch-size.",
    ),
    ("--message-send-max-retries", "retries", 3, "Repetitions of a request that failed."),
    ("--retry-backoff-ms", "ms", 100, "Pause before a repetition."),
    ("--timeout", "timeout_ms", 1000, "Time to gather a batch."),
    ("--request-timeout-ms", "request timeout ms", 1500, "Time for the acknowledgement of a request."),
    ("--metadata-expiry-ms", "metadata expiration interval", 300000, "Time after which metadata is read again."),
    ("--max-block-ms", "max block on send", 60000, "Time to wait for brokers."),
    ("--max-memory-bytes", "total memory in bytes", 33554432, "Memory for records that wait to be sent."),
    ("--socket-buffer-size", "size", 102400, "Send buffer of the socket."),
)

_MERGED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("acks", ("request_required_acks",), "-1"),
    ("linger.ms", ("timeout",), "1000"),
    ("request.timeout.ms", ("request_timeout_ms",), "1500"),
    ("retries", ("message_send_max_retries",), "3"),
    ("retry.backoff.ms", ("retry_backoff_ms",), "100"),
    ("send.buffer.bytes", ("socket_buffer_size",), "102400"),
    ("buffer.memory", ("max_memory_bytes",), "33554432"),
    ("batch.size", ("max_partition_memory_bytes", "batch_size"), "16384"),
    ("metadata.max.age.ms", ("metadata_expiry_ms",), "300000"),
    ("max.block.ms", ("max_block_ms",), "60000"),
    ("delivery.timeout.ms", (), "120000"),
    ("compression.type", ("compression_codec",), "none"),
    ("client.id", (), "console-producer"),
)
"""Setting, its options (the first given one wins), and its default if no file sets it."""


def producer_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the producer's settings under Java names: options win over properties, properties over the file.

    Raises UsageError.
    """
    settings = load_settings(options.producer_config, options.producer_property)
    settings["bootstrap.servers"] = ",".join(map(str, parse_bootstrap(options.bootstrap_server)))
    for key, names, default in _MERGED:
        given = [str(value) for name in names if (value := getattr(options, name)) is not None]
        if given:
            settings[key] = given[0]
        else:
            settings.setdefault(key, default)
    if settings["acks"] not in _ACKS:
        raise UsageError(
            f"Invalid value {settings['acks']} for configuration acks: String must be one of: {', '.join(_ACKS)}"
        )
    # As in Java: a producer with acks=all is idempotent by default.
    settings.setdefault("enable.idempotence", str(settings["acks"] in _ALL_REPLICAS).lower())
    return settings


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--topic", "--bootstrap-server")
    line.require_one_of(options, "--compression-codec", _CODECS)
    settings = producer_settings(options)
    reader_properties = {**load_settings(options.reader_config, ()), **parse_assignments(options.property)}
    reader = load_plug_in(options.line_reader, LINE_READERS, "line reader")(reader_properties)
    require_served(settings, "--producer.config")
    try:
        producer = library.Producer(
            # The partitioner that selects the same partition for a key as Java's producer.
            {**library_settings(settings, is_consumer=False), "partitioner": "murmur2_random"},
            logger=logger,
        )
        producer.list_topics(options.topic, timeout=int(settings["max.block.ms"]) / 1000)
    except library.KafkaException as error:
        logger.error("Cannot send to %s at %s: %s", options.topic, settings["bootstrap.servers"], error.args[0].str())
        return 1
    try:
        send_lines(producer, options.topic, reader, cast(BufferedIOBase, sys.stdin.buffer), is_synchronous=options.sync)
    except LineError as error:
        logger.error("%s", error)
        return 1
    finally:
        producer.flush()
    return 0


def send_lines(producer: Any, topic: str, reader: LineReader, lines: BufferedIOBase, *, is_synchronous: bool) -> None:
    """Send one record per line. Logs a record that cannot be delivered; raises LineError for an invalid line."""
    for line in _prompted(lines):
        record = reader.read(line)
        _send(producer, topic, record)
        if is_synchronous:
            producer.flush()
        else:
            producer.poll(0)


def _send(producer: Any, topic: str, record: LineRecord) -> None:
    while True:
        try:
            producer.produce(topic, record.value, record.key, headers=record.headers, on_delivery=_log_failure)
        except BufferError:
            producer.poll(0.1)
        except library.KafkaException as error:
            _log_send_error(topic, error.args[0].str())
            return
        else:
            return


def _log_failure(error: Any, message: library.Message) -> None:
    if error is not None:
        _log_send_error(message.topic(), error.str())


def _log_send_error(topic: str | None, reason: str) -> None:
    logger.error("Error when sending message to topic %s: %s", topic, reason)


def split_lines(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield lines as soon as they end, without their ends: LF, CR or CR LF, as in Java."""
    pieces: list[bytes] = []
    ends_in_cr = False
    while chunk := stream.read1(CHUNK_SIZE):
        first, *rest = _LINE_END.split(chunk.removeprefix(b"\n") if ends_in_cr else chunk)
        ends_in_cr = chunk.endswith(b"\r")
        pieces.append(first)
        if rest:
            yield b"".join(pieces)
            yield from rest[:-1]
            pieces = rest[-1:]
    if last := b"".join(pieces):
        yield last


def _prompted(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield lines; prompts on a terminal."""
    prompt = ">" if stream.isatty() else ""
    print(prompt, end="", flush=True)
    for line in split_lines(stream):
        yield line
        print(prompt, end="", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
