"""kafka-share-consumer-perf-test: members of a share group consume as fast as they can, and the rate is printed."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, StopRequest, UsageError, run_tool
from tools.base.java_dates import time_format
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import load_settings
from tools.client.first_connection import require_served
from tools.records.performance import MIB, Statistics, metrics_table, run_measured
from tools.records.share_consumers import new_share_consumer, poll

logger = logging.getLogger("org.apache.kafka.tools.ShareConsumerPerformance")

CLIENT_ID: Final = "perf-share-consumer-client"
GROUP: Final = "perf-share-consumer"
DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
POLL_S: Final = 0.1
HEADING: Final = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"


class Window:
    """What one member, or the group, consumed between two times, which are in seconds since 1970."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.count = self.size = 0

    def figures(self, ended_s: float, *, total: Window | None = None) -> str:
        """Return the columns after the times; the sizes are those of `total`, if it is given."""
        elapsed_ms = max(1, round((ended_s - self.began_s) * 1000))
        shown = self if total is None else total
        rates = f"{self.size / MIB * 1000 / elapsed_ms:.4f}, {self.count * 1000 / elapsed_ms:.4f}"
        return f"{shown.size / MIB:.4f}, {rates}, {shown.count}, {elapsed_ms}"


class GroupRun:
    """One run of the tool: each member consumes in a thread of its own.

    Args:
        members: consumers of the client library.
        count_max: how many records the group consumes before it ends; it ends with a whole batch.
        timeout_ms: a member ends if no record arrives for so long.
        interval_ms: between two detailed lines of a member; None for no such lines.
        shows_members: whether a line is reported for each member at the end.
        report: called with each line.
        date_of: returns the text of a time in seconds since 1970.
    """

    def __init__(
        self,
        members: Sequence[Any],
        topic: str,
        *,
        count_max: int,
        timeout_ms: int,
        interval_ms: int | None,
        shows_members: bool,
        report: Callable[[str], None],
        date_of: Callable[[float], str],
    ) -> None:
        self._members = members
        self._topic = topic
        self._count_max = count_max
        self._timeout_s = timeout_ms / 1000
        self._interval_s = None if interval_ms is None else interval_ms / 1000
        self._shows_members = shows_members
        self._report = report
        self._date_of = date_of
        self._totals: list[Window] = []

    def run(self, stop: StopRequest) -> None:
        """Consume and report. Raises KafkaException."""
        group = Window(time.time())
        self._totals = [Window(group.began_s) for _ in self._members]
        try:
            for member in self._members:
                member.subscribe([self._topic])
            with ThreadPoolExecutor(len(self._members)) as threads:
                runs = [threads.submit(self._consume, index, stop) for index in range(len(self._members))]
            for run in runs:
                run.result()
            ended_s = time.time()
            for member in self._members:
                member.commit_sync()
        finally:
            for member in self._members:
                member.close()
        group.count, group.size = self._count(), sum(total.size for total in self._totals)
        times = f"{self._date_of(group.began_s)}, {self._date_of(ended_s)}"
        if self._shows_members:
            for number, total in enumerate(self._totals, 1):
                self._report(f"Share consumer {number} consumption metrics- {times}, {total.figures(ended_s)}")
        if group.count < self._count_max and not stop.is_made:
            self._report(
                "WARNING: Exiting before consuming the expected number of messages: timeout "
                f"({round(self._timeout_s * 1000)} ms) exceeded. You can use the --timeout option to increase the "
                "timeout."
            )
        self._report(f"{times}, {group.figures(ended_s)}")

    def _count(self) -> int:
        return sum(total.count for total in self._totals)

    def _consume(self, index: int, stop: StopRequest) -> None:
        """Consume as one member, in its thread: no other one writes its total."""
        member, total = self._members[index], self._totals[index]
        window = Window(total.began_s)
        arrived_s = total.began_s
        while self._count() < self._count_max and not stop.is_made:
            records = poll(member, POLL_S)
            now_s = time.time()
            size = sum(len(record.value() or b"") + len(record.key() or b"") for record in records)
            for each in (total, window):
                each.count += len(records)
                each.size += size
            if records:
                arrived_s = now_s
                if self._interval_s is not None and now_s - window.began_s >= self._interval_s:
                    times = f"{self._date_of(window.began_s)}, {self._date_of(now_s)}"
                    columns = window.figures(now_s, total=total)
                    self._report(f"{times}, {columns} for share consumer {index + 1}")
                    window = Window(now_s)
            elif now_s - arrived_s > self._timeout_s:
                return


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-share-consumer-perf-test",
        "This tool is used to verify the share consumer performance.",
        ["--bootstrap-server localhost:9092 --topic orders --messages 1000000 --threads 2"],
    )
    line.add_option(*BOOTSTRAP_SERVER_ONLY, value="servers", help_text="REQUIRED: brokers, as host:port,host:port.")
    line.add_option("--topic", value="topic", help_text="REQUIRED: the topic to consume from.")
    line.add_option(
        "--messages", "--num-records", value="count", parse=int, help_text="REQUIRED: how many messages to consume."
    )
    line.add_option("--group", value="gid", default=GROUP, help_text=f"The share group (default: {GROUP}).")
    line.add_option(
        "--fetch-size", value="size", parse=int, default=MIB, help_text="Bytes to fetch at once (default: 1048576)."
    )
    line.add_option(
        "--socket-buffer-size",
        value="size",
        parse=int,
        default=2 * MIB,
        help_text="The size of the receive buffer in bytes (default: 2097152).",
    )
    line.add_option("--consumer.config", "--command-config", value="file", help_text="Settings of the consumers.")
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
    line.add_option("--threads", value="count", parse=int, default=1, help_text="How many members (default: 1).")
    line.add_flag("--show-detailed-stats", "Print a line per member and interval as well.")
    line.add_flag("--show-consumer-stats", "Print a line per member at the end.")
    line.add_flag("--print-metrics", "Print the metrics of the first member at the end.")
    line.add_flag("--hide-header", "Do not print the names of the columns.")
    line.add_option(
        "--date-format", value="format", default=DATE_FORMAT, help_text=f"The form of times (default: {DATE_FORMAT})."
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server", "--topic", "--messages")
    for name in ("messages", "fetch_size", "socket_buffer_size", "timeout", "reporting_interval", "threads"):
        if getattr(options, name) <= 0:
            raise UsageError(f"--{name.replace('_', '-')} should be greater than 0, found {getattr(options, name)}")
    date_of = time_format(options.date_format)
    settings = _settings(options)
    require_served(settings, "--consumer.config")
    statistics = Statistics()
    reporting = statistics.settings() if options.print_metrics else {}
    members = [new_share_consumer(settings, logger, {} if number else reporting) for number in range(options.threads)]
    if not options.hide_header:
        print(HEADING, flush=True)
    run = GroupRun(
        members,
        options.topic,
        count_max=options.messages,
        timeout_ms=options.timeout,
        interval_ms=options.reporting_interval if options.show_detailed_stats else None,
        shows_members=options.show_consumer_stats,
        report=lambda text: print(text, flush=True),
        date_of=date_of,
    )
    if not run_measured(run.run):
        return 1
    if options.print_metrics:
        print(metrics_table(statistics.last, "consumer", settings["client.id"]))
    return 0


def _settings(options: argparse.Namespace) -> Mapping[str, str]:
    return {
        "client.id": CLIENT_ID,
        "check.crcs": "false",
        **load_settings(options.consumer_config, ()),
        "bootstrap.servers": ",".join(map(str, parse_bootstrap(options.bootstrap_server))),
        "group.id": options.group,
        "receive.buffer.bytes": str(options.socket_buffer_size),
        "max.partition.fetch.bytes": str(options.fetch_size),
    }


if __name__ == "__main__":
    raise SystemExit(main())
