"""kafka-consumer-perf-test: consumes records as fast as it can, and prints the rate as comma-separated lines."""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, StopRequest, UsageError, run_tool
from tools.base.java_dates import time_format
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings
from tools.client.first_connection import require_served
from tools.records.performance import MIB, Progress, Statistics, metrics_table, run_measured

logger = logging.getLogger("org.apache.kafka.tools.ConsumerPerformance")

CLIENT_ID: Final = "perf-consumer-client"
DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
BATCH_COUNT_MAX: Final = 10_000
POLL_S: Final = 0.1
COLUMNS: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


class Consumed:
    """What was consumed up to a moment, and the time that rebalances took. Times are in seconds."""

    def __init__(self, started_s: float) -> None:
        self.count = self.size = 0
        self.rebalance_s = 0.0
        self._joins_since_s: float | None = started_s

    def joined(self, now_s: float) -> None:
        """Partitions were assigned."""
        if self._joins_since_s is not None:
            self.rebalance_s += now_s - self._joins_since_s
            self._joins_since_s = None

    def left(self, now_s: float) -> None:
        """Partitions were revoked: a rebalance begins."""
        self._joins_since_s = now_s


def figures(size: int, count: int, seconds: float, rebalance_s: float) -> str:
    """Return the columns about `size` bytes in `count` records that were consumed in `seconds`."""
    size_mib = size / MIB
    elapsed_ms = max(1, round(seconds * 1000))
    rebalance_ms = round(rebalance_s * 1000)
    fetch_ms = elapsed_ms - rebalance_ms
    fetch_s = fetch_ms / 1000 if fetch_ms > 0 else float("inf")
    return (
        f"{size_mib:.4f}, {size_mib * 1000 / elapsed_ms:.4f}, {count}, {count * 1000 / elapsed_ms:.4f}, "
        f"{rebalance_ms}, {fetch_ms}, {size_mib / fetch_s:.4f}, {count / fetch_s:.4f}"
    )


class ConsumerRun:
    """One run of the tool.

    Args:
        settings: of the client library.
        count_max: how many records to consume.
        timeout_ms: the run ends if no record arrives for so long.
        interval_ms: between two detailed lines; None for no such lines.
        report: called with each line.
        date_of: returns the text of a time in seconds since 1970.
        before_close: called with the consumer's `poll` when all is consumed.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        count_max: int,
        timeout_ms: int,
        interval_ms: int | None,
        report: Callable[[str], None],
        date_of: Callable[[float], str],
        before_close: Callable[[Callable[[float], object]], object] = lambda _: None,
    ) -> None:
        self._consumer = library.Consumer(dict(settings), logger=logger)
        self._topic = topic
        self._count_max = count_max
        self._timeout_s = timeout_ms / 1000
        self._interval_s = None if interval_ms is None else interval_ms / 1000
        self._report = report
        self._date_of = date_of
        self._before_close = before_close

    def run(self, stop: StopRequest) -> bool:
        """Consume and report; return whether all records arrived. Raises KafkaException."""
        began, started_s = time.time(), time.monotonic()
        consumed = Consumed(started_s)
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda *_: consumed.joined(time.monotonic()),
            on_revoke=lambda *_: consumed.left(time.monotonic()),
        )
        try:
            is_complete = self._consume(consumed, started_s, stop)
            ended, seconds = time.time(), time.monotonic() - started_s
            if not is_complete and not stop.is_made:
                self._report(
                    "WARNING: Exiting before consuming the expected number of messages: timeout "
                    f"({round(self._timeout_s * 1000)} ms) exceeded. You can use the --timeout option to increase the "
                    "timeout."
                )
            self._before_close(self._consumer.poll)
        finally:
            self._consumer.close()
        if self._interval_s is None:
            columns = figures(consumed.size, consumed.count, seconds, consumed.rebalance_s)
            self._report(f"{self._date_of(began)}, {self._date_of(ended)}, {columns}")
        return is_complete

    def _consume(self, consumed: Consumed, started_s: float, stop: StopRequest) -> bool:
        no_failure = (
            library.KafkaError._PARTITION_EOF,
            library.KafkaError._TRANSPORT,
            library.KafkaError._ALL_BROKERS_DOWN,
            library.KafkaError._MAX_POLL_EXCEEDED,
        )
        progress = Progress(self._count_max)
        arrived_s = window_s = started_s
        window_count = window_size = 0
        window_rebalance_s = 0.0
        while consumed.count < self._count_max and not stop.is_made:
            messages = self._consumer.consume(min(BATCH_COUNT_MAX, self._count_max - consumed.count), POLL_S)
            now_s = time.monotonic()
            for message in messages:
                error = message.error()
                if error is None:
                    consumed.count += 1
                    consumed.size += len(message.value() or b"") + len(message.key() or b"")
                    arrived_s = now_s
                elif error.code() not in no_failure:
                    raise library.KafkaException(error)
            if now_s - arrived_s > self._timeout_s:
                break
            # As in Kafka, only records end an interval: the first one has the time of the rebalance as well.
            has_records = arrived_s == now_s
            if has_records and self._interval_s is not None and now_s - window_s >= self._interval_s:
                columns = figures(
                    consumed.size - window_size,
                    consumed.count - window_count,
                    now_s - window_s,
                    consumed.rebalance_s - window_rebalance_s,
                ).split(", ")
                # The sizes are those of the whole run, the rates those of the window.
                columns[0], columns[2] = f"{consumed.size / MIB:.4f}", str(consumed.count)
                progress.clear()
                self._report(", ".join((self._date_of(time.time()), "0", *columns)))
                window_s, window_count, window_size = now_s, consumed.count, consumed.size
                window_rebalance_s = consumed.rebalance_s
            progress.show(consumed.count)
        progress.clear()
        return consumed.count >= self._count_max


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-consumer-perf-test",
        "This tool is used to verify the consumer performance.",
        ["--bootstrap-server localhost:9092 --topic orders --messages 1000000"],
    )
    line.add_option(*BOOTSTRAP_SERVER, value="servers", help_text="REQUIRED: brokers, as host:port,host:port.")
    line.add_option("--topic", value="topic", help_text="REQUIRED: the topic to consume from.")
    line.add_option("--messages", value="count", parse=int, help_text="REQUIRED: how many messages to consume.")
    line.add_option("--group", value="gid", help_text="The consumer group (default: perf-consumer-NUMBER).")
    line.add_option(
        "--fetch-size",
        value="size",
        parse=int,
        default=MIB,
        help_text="Bytes to fetch of a partition (default: 1048576).",
    )
    line.add_flag("--from-latest", "Begin with the latest message if the group has no offset.")
    line.add_option(
        "--socket-buffer-size",
        value="size",
        parse=int,
        default=2 * MIB,
        help_text="The size of the receive buffer in bytes (default: 2097152).",
    )
    line.add_option("--consumer.config", value="file", help_text="Settings of the consumer.")
    line.add_option(
        "--timeout",
        value="ms",
        parse=int,
        default=10_000,
        help_text="End when no message comes for so long (default: 10000).",
    )
    line.add_option(
        "--reporting-interval",
        value="ms",
        parse=int,
        default=5000,
        help_text="The interval of detailed lines (default: 5000).",
    )
    line.add_flag("--show-detailed-stats", "Print a line per interval instead of one line at the end.")
    line.add_flag("--print-metrics", "Print the client's metrics at the end.")
    line.add_flag("--hide-header", "Do not print the names of the columns.")
    line.add_option(
        "--date-format", value="format", default=DATE_FORMAT, help_text=f"The form of times (default: {DATE_FORMAT})."
    )
    line.add_option("--threads", value="count", parse=int, help_text="DEPRECATED and ignored.")
    line.add_option("--num-fetch-threads", value="count", parse=int, help_text="DEPRECATED and ignored.")
    line.add_option("--zookeeper", value="urls", help_text="DEPRECATED and ignored.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server", "--topic", "--messages")
    for name in ("messages", "fetch_size", "socket_buffer_size", "timeout", "reporting_interval"):
        if getattr(options, name) <= 0:
            raise UsageError(f"--{name.replace('_', '-')} should be greater than 0, found {getattr(options, name)}")
    if options.threads is not None or options.num_fetch_threads is not None:
        print("WARNING: option [threads] and [num-fetch-threads] have been deprecated and will be ignored by the test")
    date_of = time_format(options.date_format)
    settings = {
        "client.id": CLIENT_ID,
        "check.crcs": "false",
        **load_settings(options.consumer_config, ()),
        "bootstrap.servers": ",".join(map(str, parse_bootstrap(options.bootstrap_server))),
        "group.id": options.group or f"perf-consumer-{random.randrange(100_000)}",
        "receive.buffer.bytes": str(options.socket_buffer_size),
        "max.partition.fetch.bytes": str(options.fetch_size),
        "auto.offset.reset": "latest" if options.from_latest else "earliest",
    }
    require_served(settings, "--consumer.config")
    statistics = Statistics()
    try:
        run = ConsumerRun(
            {
                **library_settings(settings, is_consumer=True),
                **(statistics.settings() if options.print_metrics else {}),
            },
            options.topic,
            count_max=options.messages,
            timeout_ms=options.timeout,
            interval_ms=options.reporting_interval if options.show_detailed_stats else None,
            report=lambda text: print(text, flush=True),
            date_of=date_of,
            **({"before_close": statistics.wait} if options.print_metrics else {}),
        )
    except library.KafkaException as error:
        raise UsageError(error.args[0].str()) from None
    if not options.hide_header:
        print(("time, threadId, " if options.show_detailed_stats else "start.time, end.time, ") + COLUMNS, flush=True)
    if not run_measured(run.run):
        return 1
    if options.print_metrics:
        print(metrics_table(statistics.last, "consumer", settings["client.id"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
