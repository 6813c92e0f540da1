"""kafka-producer-perf-test: produces records as fast as it can, or at a given rate, and prints rate and latencies."""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tools.base.command_line import CommandLine, StopRequest, UsageError, WithoutArguments, run_tool
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings
from tools.client.first_connection import require_served
from tools.records.performance import Latencies, Progress, Statistics, metrics_table, run_measured

logger = logging.getLogger("org.apache.kafka.tools.ProducerPerformance")

CLIENT_ID: Final = "perf-producer-client"
DEFAULT_TRANSACTIONAL_ID: Final = "performance-producer-default-transactional-id"
UNLIMITED: Final = -1
WINDOW_S: Final = 5.0
BATCH_COUNT: Final = 500
"""How many records are passed to the library at a time."""
WAITING_MAX: Final = 100_000
"""How many records may wait in the library."""
POLL_S: Final = 0.05
FLUSH_TIMEOUT_S: Final = 120.0
TRANSACTION_TIMEOUT_S: Final = 60.0
RANDOM_SIZE: Final = 1 << 20

Payloads = Callable[[int, int], list[dict[str, Any]]]
"""Returns messages for the client library, by the number of the first and their count."""


class ProducerRun:
    """One run of the tool.

    Args:
        settings: of the client library.
        payloads: the records.
        record_count: how many to send.
        throughput: how many a second, approximately; -1 for no limit.
        transaction_ms: how long a transaction lasts; 0 for none.
        report: called with each line.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        payloads: Payloads,
        *,
        record_count: int,
        throughput: int,
        transaction_ms: int,
        report: Callable[[str], None],
    ) -> None:
        self.failed_count = 0
        self.failure: library.KafkaError | None = None
        """The first error of a record."""
        self._producer = library.Producer(dict(settings), logger=logger)
        self._topic = topic
        self._payloads = payloads
        self._record_count = record_count
        self._throughput = throughput
        self._transaction_ms = transaction_ms
        self._report = report
        self._latencies_s: list[float] = []
        self._size = 0
        self._progress = Progress(record_count)
        self.latencies: Latencies

    def run(self, stop: StopRequest) -> None:
        """Send the records, wait for their results and report. Raises KafkaException."""
        producer = self._producer
        if self._transaction_ms:
            producer.init_transactions(TRANSACTION_TIMEOUT_S)
        started_s = time.monotonic()
        self.latencies = Latencies(self._record_count, started_s)
        sent = 0
        transaction_began_s: float | None = None
        while sent < self._record_count and not stop.is_made:
            count = min(BATCH_COUNT, self._record_count - sent, self._allowed(sent, time.monotonic() - started_s))
            if count:
                if self._transaction_ms and transaction_began_s is None:
                    producer.begin_transaction()
                    transaction_began_s = time.monotonic()
                self._send(self._payloads(sent, count))
                sent += count
            self._serve(0 if count else POLL_S)
            while len(producer) > WAITING_MAX:
                self._serve(POLL_S)
            if (
                transaction_began_s is not None
                and time.monotonic() - transaction_began_s >= self._transaction_ms / 1000
            ):
                producer.commit_transaction(TRANSACTION_TIMEOUT_S)
                transaction_began_s = None
        if transaction_began_s is not None:
            producer.commit_transaction(TRANSACTION_TIMEOUT_S)
        deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
        while len(producer) and time.monotonic() < deadline_s:
            self._serve(POLL_S)
        self._serve(0)
        self._progress.clear()
        self._report(self.latencies.total_line(time.monotonic()))

    def poll(self, timeout_s: float) -> None:
        """Let the library report its statistics."""
        self._producer.poll(timeout_s)

    def _allowed(self, sent: int, seconds: float) -> int:
        """Return how many further records the throughput allows now."""
        if self._throughput == UNLIMITED:
            return BATCH_COUNT
        return max(0, int(seconds * self._throughput) + 1 - sent)

    def _send(self, messages: list[dict[str, Any]]) -> None:
        """Pass messages to the library, and wait while its queue is full. Raises KafkaException."""
        while messages:
            self._producer.produce_batch(self._topic, messages, on_delivery=self._delivered)
            # The library marks the messages that it has not taken.
            messages = [message for message in messages if "_error" in message]
            for error in [message.pop("_error") for message in messages]:
                if error.code() != library.KafkaError._QUEUE_FULL:
                    raise library.KafkaException(error)
            if messages:
                self._serve(POLL_S)

    def _delivered(self, error: library.KafkaError | None, message: library.Message) -> None:
        if error is None:
            self._latencies_s.append(message.latency() or 0.0)
            self._size += len(message)
        else:
            self.failed_count += 1
            self.failure = self.failure or error

    def _serve(self, timeout_s: float) -> None:
        """Process results, and report at the end of a window."""
        self._producer.poll(timeout_s)
        self.latencies.add([round(1000 * latency_s) for latency_s in self._latencies_s], self._size)
        self._latencies_s.clear()
        self._size = 0
        self._progress.show(self.latencies.count)
        now_s = time.monotonic()
        if self.latencies.window_seconds(now_s) >= WINDOW_S:
            self._progress.clear()
            self._report(self.latencies.window_line(now_s))


def random_payloads(size: int) -> Payloads:
    """Return records of random capital letters."""
    letters = bytes(random.Random(0).choices(range(ord("A"), ord("Z") + 1), k=RANDOM_SIZE + size))

    def payloads(first: int, count: int) -> list[dict[str, Any]]:
        return [
            {"value": letters[at : at + size]} for at in (n * 127 % RANDOM_SIZE for n in range(first, first + count))
        ]

    return payloads


def file_payloads(path: str, delimiter: str) -> Payloads:
    """Return records that are drawn from the parts of a file, and print how many there are. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from None
    parts = [part for part in data.split(delimiter.encode().decode("unicode_escape").encode()) if part]
    if not parts:
        raise UsageError(f"Payload file does not exist or empty: {path}")
    print(f"Reading payloads from: {os.path.abspath(path)}\nNumber of messages read: {len(parts)}")
    rng = random.Random(0)
    return lambda first, count: [{"value": part} for part in rng.choices(parts, k=count)]


def numbered_payloads(first: int, count: int) -> list[dict[str, Any]]:
    """Return the numbers of the records as text."""
    return [{"value": b"%d" % number} for number in range(first, first + count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-producer-perf-test",
        "This tool is used to verify the producer performance.",
        [
            "--topic orders --num-records 1000000 --record-size 100 --throughput -1 --bootstrap-server localhost:9092",
            "--topic orders --num-records 9000 --payload-file rows --throughput 500 --producer.config my.properties",
        ],
        without_arguments=WithoutArguments.HELP,
    )
    line.add_option("--topic", value="TOPIC", help_text="REQUIRED: produce messages to this topic.")
    line.add_option("--num-records", value="COUNT", parse=int, help_text="REQUIRED: how many messages to produce.")
    line.add_option(
        "--throughput",
        value="COUNT",
        parse=int,
        help_text="REQUIRED: the approximate limit of messages per second; -1 for none.",
    )
    line.add_option(
        "--record-size", value="BYTES", parse=int, help_text="The size of each message; or a payload option."
    )
    line.add_option(
        "--payload-file", value="FILE", help_text="A UTF-8 file whose parts are the messages, in any order."
    )
    line.add_option(
        "--payload-delimiter",
        value="TEXT",
        default="\\n",
        help_text="What separates the parts of the file (default: \\n).",
    )
    line.add_flag("--payload-monotonic", "The messages are the numbers 0, 1, 2, ... as text.")
    line.add_option(
        "--producer-props",
        value="KEY=VALUE",
        takes_several=True,
        default=[],
        help_text="Settings of the producer, such as bootstrap.servers; they win over --producer.config.",
    )
    line.add_option("--producer.config", value="FILE", help_text="A properties file of the producer.")
    line.add_option(
        "--bootstrap-server", "--bootstrap-servers", "--broker-list", value="servers", help_text="The brokers."
    )
    line.add_flag("--print-metrics", "Print the client's metrics at the end.")
    line.add_option(
        "--transactional-id",
        value="ID",
        default=DEFAULT_TRANSACTIONAL_ID,
        help_text=f"The id of transactions, if they have a duration (default: {DEFAULT_TRANSACTIONAL_ID}).",
    )
    line.add_option(
        "--transaction-duration-ms",
        value="MS",
        parse=int,
        default=0,
        help_text="Commit a transaction after so long (default: 0, no transactions).",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--topic", "--num-records", "--throughput")
    payloads = _payloads(options)
    if options.num_records <= 0:
        raise UsageError(f"--num-records should be greater than zero, found {options.num_records}")
    if options.throughput != UNLIMITED and options.throughput <= 0:
        raise UsageError(f"--throughput should be greater than zero, or -1 for no limit, found {options.throughput}")
    if options.transaction_duration_ms < 0:
        raise UsageError(f"--transaction-duration-ms should not be negative, found {options.transaction_duration_ms}")
    settings = _settings(options)
    # Before the library reports every single failed connection.
    require_served(settings, "--producer.config")
    statistics = Statistics()
    own_settings = library_settings(settings, is_consumer=False)
    try:
        run = ProducerRun(
            {**own_settings, **(statistics.settings() if options.print_metrics else {})},
            options.topic,
            payloads,
            record_count=options.num_records,
            throughput=options.throughput,
            transaction_ms=options.transaction_duration_ms,
            report=lambda text: print(text, flush=True),
        )
    except library.KafkaException as error:
        raise UsageError(error.args[0].str()) from None
    if not run_measured(run.run):
        return 1
    if options.print_metrics:
        print(metrics_table(statistics.wait(run.poll), "producer", settings["client.id"]))
    if run.failure is not None:
        print(f"{run.failed_count} records were not acknowledged: {run.failure.str()}", file=sys.stderr)
        return 1
    return 0


def _payloads(options: argparse.Namespace) -> Payloads:
    """Return the records that the options describe. Raises UsageError."""
    given = [options.record_size is not None, options.payload_file is not None, options.payload_monotonic]
    if sum(given) != 1:
        raise UsageError("Exactly one of --record-size, --payload-file and --payload-monotonic must be specified.")
    if options.payload_monotonic:
        return numbered_payloads
    if options.payload_file is not None:
        return file_payloads(options.payload_file, options.payload_delimiter)
    if options.record_size < 0:
        raise UsageError(f"--record-size should not be negative, found {options.record_size}")
    return random_payloads(options.record_size)


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the producer's settings under Java names, with Java's defaults where the library's differ."""
    if not options.producer_props and options.producer_config is None and options.bootstrap_server is None:
        raise UsageError("Either --producer-props or --producer.config must be specified.")
    settings = load_settings(options.producer_config, options.producer_props)
    if options.bootstrap_server is not None:
        settings["bootstrap.servers"] = ",".join(map(str, parse_bootstrap(options.bootstrap_server)))
    if not settings.get("bootstrap.servers"):
        raise UsageError("bootstrap.servers is missing, expected --producer-props bootstrap.servers=host:port")
    settings.setdefault("client.id", CLIENT_ID)
    if options.transaction_duration_ms:
        settings["transactional.id"] = options.transactional_id
    elif settings.get("acks", "all") in ("all", "-1"):
        settings.setdefault("enable.idempotence", "true")
    return settings


if __name__ == "__main__":
    raise SystemExit(main())
