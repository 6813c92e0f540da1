"""kafka-lag: watches the lag of all consumer groups, apart from brokers and consumers.

It serves metrics to Prometheus under the names of the widely used exporter, and statuses as JSON under the paths of
Burrow. With `--one-time` it prints a table instead.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

from confluent_kafka import Consumer

from base.topic_partition import TopicPartition
from broker.metrics.metric import Kind, Metric, Sample
from broker.metrics.prometheus import pieces
from broker.metrics.registry import Registry
from protocol.errors import KafkaError
from tools.base.command_line import (
    CommandLine,
    StopRequest,
    UnreachableError,
    UsageError,
    run_tool,
    wait_for_signal,
    warn,
)
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client
from tools.client.client_settings import library_settings, load_settings
from tools.monitoring.lag_commits import CommitFollower
from tools.monitoring.lag_reader import ClusterLag, LagReader, Part, PartitionLag, PartitionState, Problem
from tools.monitoring.lag_windows import WINDOW_SIZE, Status, group_status
from tools.monitoring.metrics_server import PROMETHEUS, MetricsServer, Response

DEFAULT_LISTEN: Final = "127.0.0.1:9308"
DEFAULT_INTERVAL_MS: Final = 10_000
CALL_TIMEOUT_MS: Final = 10_000
END_S: Final = 5.0
"""How long the tool waits for its threads when it is stopped."""

Snapshots = Mapping[str, ClusterLag]
Group = Mapping[TopicPartition, PartitionLag]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-lag", "Watch the lag of consumer groups and serve it to Prometheus.", help_succeeds=True)
    add_admin_options(line)
    line.add_option(
        "--cluster",
        value="name=host:port,...",
        repeatable=True,
        help_text="A cluster with its name; repeat it for several. --bootstrap-server is the cluster named default.",
    )
    line.add_option(
        "--listen",
        value="host:port",
        default=DEFAULT_LISTEN,
        help_text=f"The address of /metrics and /v3/kafka. (default: {DEFAULT_LISTEN})",
    )
    line.add_option(
        "--interval-ms",
        value="ms",
        parse=int,
        default=DEFAULT_INTERVAL_MS,
        help_text=f"Milliseconds between two readings. (default: {DEFAULT_INTERVAL_MS})",
    )
    line.add_option(
        "--window",
        value="commits",
        parse=int,
        default=WINDOW_SIZE,
        help_text=f"Commits that decide on a status. (default: {WINDOW_SIZE})",
    )
    line.add_option("--group", value="regular expression", default="", help_text="Only groups whose name contains it.")
    line.add_flag("--one-time", "Print the present lag as a table, and serve nothing.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    clusters = _clusters(options)
    if options.interval_ms <= 0 or options.window < 2:
        raise UsageError("Expected an interval-ms above 0 and a window of at least 2")
    try:
        wanted = re.compile(options.group)
    except re.error as error:
        raise UsageError(f"Cannot parse argument '{options.group}' of option group: {error}") from None
    stopped = threading.Event()
    with ExitStack() as stack:
        admins = {
            name: stack.enter_context(
                admin_client(
                    argparse.Namespace(**{**vars(options), "bootstrap_server": bootstrap}),
                    timeout_ms=None if options.one_time else CALL_TIMEOUT_MS,
                )
            )
            for name, bootstrap in clusters.items()
        }
        if options.one_time:
            _require_one(admins.values())
            return _print_once({name: LagReader(admin, None, wanted, options.window) for name, admin in admins.items()})
        snapshots: dict[str, ClusterLag] = {}
        try:
            server = MetricsServer(options.listen, partial(_respond, snapshots))
        except OSError as error:
            print(f"Error: cannot listen on {options.listen}: {error.strerror}", file=sys.stderr)
            return 1
        with server, StopRequest(stopped.set) as stop:
            _require_one(admins.values())
            print(f"kafka-lag listens on {server.address}", flush=True)
            readers = {
                name: LagReader(admin, _follower(clusters[name], options, wanted, stopped), wanted, options.window)
                for name, admin in admins.items()
            }
            _watch_all(readers, snapshots, stopped, options.interval_ms / 1000)
        return 0 if stop.is_made else 1


def _clusters(options: argparse.Namespace) -> dict[str, str]:
    clusters = {} if options.bootstrap_server is None else {"default": options.bootstrap_server}
    for each in options.cluster:
        name, _equals, bootstrap = each.partition("=")
        if not name or not bootstrap:
            raise UsageError(f"Cannot parse argument '{each}' of option cluster: expected name=host:port,...")
        clusters[name] = bootstrap
    if not clusters:
        raise UsageError('Missing required argument "[bootstrap-server]"')
    return clusters


def _require_one(admins: Iterable[AdminClient]) -> None:
    """Return if one cluster can be reached. Raises UnreachableError."""
    failure = None
    for admin in admins:
        try:
            admin.metadata([])
        except UnreachableError as error:
            failure = error
        except (KafkaError, CallTimedOut):
            return  # reading reports it
        else:
            return
    if failure is not None:
        raise failure


def _follower(
    bootstrap: str, options: argparse.Namespace, wanted: re.Pattern[str], stopped: threading.Event
) -> CommitFollower:
    settings = {**load_settings(options.command_config, []), "bootstrap.servers": bootstrap, "group.id": "kafka-lag"}
    consumer = Consumer(
        {
            **library_settings(settings, is_consumer=True),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "log_level": 2,  # the library logs each connection that fails; a reading reports what it leaves out
        }
    )
    # The other half of an interval is for the requests.
    time_s = options.interval_ms / 2000
    return CommitFollower(consumer, wanted, options.window, time_s=time_s, is_stopped=stopped.is_set)


def _print_once(readers: Mapping[str, LagReader]) -> int:
    status = 0
    rows = [("CLUSTER", "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]
    for name, reader in readers.items():
        found = read_cluster(reader)
        for problem in found.problems:
            print(f"Error: cluster {name}: {problem.text}", file=sys.stderr)
            status = 1
        for group, lags in sorted(found.groups.items()):
            for (topic, partition), lag in sorted(lags.items()):
                rows.append((name, group, topic, str(partition), str(lag.offset), str(lag.end), str(lag.lag)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return status


def read_cluster(reader: LagReader) -> ClusterLag:
    """Return the present state; without brokers, and with the problem, if the cluster cannot be read."""
    try:
        return reader.read()
    except (KafkaError, CallTimedOut, UnreachableError) as error:
        return ClusterLag(problems=(Problem(Part.CLUSTER, str(error)),))


def _watch_all(
    readers: Mapping[str, LagReader], snapshots: dict[str, ClusterLag], stopped: threading.Event, interval_s: float
) -> None:
    """Read all clusters at each interval, until `stopped`. Each has a thread: none waits for another."""
    threads = [
        threading.Thread(target=_watch, args=(name, reader, snapshots, stopped, interval_s), name=name, daemon=True)
        for name, reader in readers.items()
    ]
    for thread in threads:
        thread.start()
    wait_for_signal(stopped)
    end_s = time.monotonic() + END_S
    for thread in threads:
        thread.join(max(end_s - time.monotonic(), 0))


def _watch(
    name: str, reader: LagReader, snapshots: dict[str, ClusterLag], stopped: threading.Event, interval_s: float
) -> None:
    """Read one cluster at each interval, until `stopped`."""
    try:
        with closing(reader):
            while not stopped.is_set():
                due_s = time.monotonic() + interval_s
                found = snapshots[name] = read_cluster(reader)
                if found.problems:
                    more = f" ({len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
                    warn(f"cluster {name}: {found.problems[0].text}{more}")
                stopped.wait(max(due_s - time.monotonic(), 0))
    finally:
        stopped.set()  # also after an unexpected error: old figures would look alive


def _respond(snapshots: Snapshots, path: Sequence[str]) -> Response:
    if list(path) == ["metrics"]:
        return Response(200, metrics_text(dict(snapshots)), PROMETHEUS)
    status, content = burrow(dict(snapshots), path)
    return Response(status, json.dumps(content), "application/json")


def _read(snapshots: Snapshots) -> Snapshots:
    """Return the clusters that could be read."""
    return {name: it for name, it in snapshots.items() if it.brokers}


def burrow(snapshots: Snapshots, path: Sequence[str]) -> tuple[int, dict[str, object]]:
    """Return status and JSON of a path below `/v3/kafka`, in the form that Burrow gives it."""
    snapshots = _read(snapshots)
    match list(path):
        case ["v3", "kafka"]:
            return 200, {"error": False, "message": "cluster list returned", "clusters": sorted(snapshots)}
        case ["v3", "kafka", cluster, "consumer"] if cluster in snapshots:
            groups = sorted(snapshots[cluster].groups)
            return 200, {"error": False, "message": "consumer list returned", "consumers": groups}
        case ["v3", "kafka", cluster, "consumer", group, "status" | "lag" as kind] if (
            cluster in snapshots and group in snapshots[cluster].groups
        ):
            content = _group_status(cluster, group, snapshots[cluster].groups[group], shows_all=kind == "lag")
            return 200, {"error": False, "message": "consumer status returned", "status": content}
    return 404, {"error": True, "message": "cluster or consumer not found"}


def _group_status(cluster: str, group: str, lags: Group, *, shows_all: bool) -> dict[str, object]:
    rows = {partition: _partition_status(partition, lag) for partition, lag in sorted(lags.items())}
    worst = max(lags, key=lambda partition: lags[partition].lag, default=None)
    return {
        "cluster": cluster,
        "group": group,
        "status": group_status(lag.status for lag in lags.values()).name,
        "complete": min((lag.completeness for lag in lags.values()), default=0.0),
        "partitions": [row for partition, row in rows.items() if shows_all or lags[partition].status is not Status.OK],
        "partition_count": len(lags),
        "maxlag": None if worst is None else rows[worst],
        "totallag": sum(lag.lag for lag in lags.values()),
    }


def _partition_status(partition: TopicPartition, lag: PartitionLag) -> dict[str, object]:
    commits = [{"offset": it.offset, "timestamp": it.time_ms, "lag": it.lag} for it in lag.commits]
    return {
        "topic": partition[0],
        "partition": partition[1],
        "status": lag.status.name,
        "start": commits[0] if commits else None,
        "end": commits[-1] if commits else None,
        "current_lag": lag.lag,
        "current_lag_ms": lag.lag_ms,
        "complete": lag.completeness,
    }


def metrics_text(snapshots: Snapshots) -> str:
    """Return all metrics in Prometheus' text format."""
    registry = Registry(lag_metrics(snapshots), time.monotonic)
    return "".join(pieces(registry, with_partitions=True, is_open_metrics=False))


def lag_metrics(all_snapshots: Snapshots) -> Iterator[Metric]:
    """Return the metrics; each has the label `cluster` before those of the widely used exporter."""
    snapshots = _read(all_snapshots)
    yield _gauge(
        "kafka_lag_read_errors",
        "What the last reading could not read: the cluster, brokers, groups, or the commits.",
        ("part",),
        lambda: [
            ((name, part.value), it.problem_counts()[part]) for name, it in all_snapshots.items() for part in Part
        ],
    )
    yield _gauge("kafka_brokers", "Brokers.", (), lambda: [((name,), it.brokers) for name, it in snapshots.items()])
    for name, text, of_partition in _PARTITION_METRICS:
        yield _gauge(
            f"kafka_topic_partition_{name}", text, ("topic", "partition"), _partitions(snapshots, of_partition)
        )
    yield _gauge("kafka_topic_partitions", "Partitions of a topic.", ("topic",), lambda: _partition_counts(snapshots))
    for name, text, of_lag in _GROUP_METRICS:
        yield _gauge(
            f"kafka_consumergroup_{name}", text, ("consumergroup", "topic", "partition"), _lags(snapshots, of_lag)
        )
    for name, text, of_lag in _GROUP_METRICS[:2]:
        yield _gauge(
            f"kafka_consumergroup_{name}_sum",
            f"{text} Sum over a topic.",
            ("consumergroup", "topic"),
            _sums(snapshots, of_lag),
        )
    yield _gauge(
        "kafka_consumergroup_members",
        "Members of a group.",
        ("consumergroup",),
        lambda: [((name, group), count) for name, it in snapshots.items() for group, count in it.members.items()],
    )
    yield _gauge(
        "kafka_consumergroup_group_status",
        "Status of a group: 1 OK, 2 WARN, 3 ERR.",
        ("consumergroup",),
        lambda: [
            ((name, group), int(group_status(lag.status for lag in lags.values())))
            for name, it in snapshots.items()
            for group, lags in it.groups.items()
        ],
    )


_PARTITION_METRICS: Final[tuple[tuple[str, str, Callable[[PartitionState], int | None]], ...]] = (
    ("current_offset", "End offset of a partition.", lambda it: it.end),
    ("oldest_offset", "First offset of a partition.", lambda it: it.start),
    ("leader", "Broker that leads a partition.", lambda it: it.leader),
    (
        "leader_is_preferred",
        "1 if the leader is the first of the replicas.",
        lambda it: int(it.replicas[:1] == (it.leader,)),
    ),
    ("replicas", "Replicas of a partition.", lambda it: len(it.replicas)),
    ("in_sync_replica", "In-sync replicas of a partition.", lambda it: len(it.in_sync)),
    (
        "under_replicated_partition",
        "1 if a replica is not in sync.",
        lambda it: int(len(it.in_sync) < len(it.replicas)),
    ),
)
_GROUP_METRICS: Final[tuple[tuple[str, str, Callable[[PartitionLag], float | None]], ...]] = (
    ("lag", "Records that a group has not committed yet.", lambda it: it.lag),
    ("current_offset", "Committed offset of a group.", lambda it: it.offset),
    (
        "lag_seconds",
        "Age of the first record that a group has not committed yet.",
        lambda it: None if it.lag_ms is None else it.lag_ms / 1000,
    ),
    (
        "status",
        "Status of a partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.",
        lambda it: int(it.status),
    ),
)


def _gauge(name: str, text: str, tags: tuple[str, ...], read: Callable[[], Sequence[Sample]]) -> Metric:
    return Metric(Kind.GAUGE, "", text, read, ("cluster", *tags), own_name=name)


def _partitions(snapshots: Snapshots, fact: Callable[[PartitionState], int | None]) -> Callable[[], list[Sample]]:
    return lambda: [
        ((name, topic, str(number)), value)
        for name, it in snapshots.items()
        for (topic, number), state in it.partitions.items()
        if (value := fact(state)) is not None
    ]


def _partition_counts(snapshots: Snapshots) -> list[Sample]:
    counts: dict[tuple[str, str], int] = {}
    for name, it in snapshots.items():
        for topic, _ in it.partitions:
            counts[name, topic] = counts.get((name, topic), 0) + 1
    return list(counts.items())


def _lags(snapshots: Snapshots, fact: Callable[[PartitionLag], float | None]) -> Callable[[], list[Sample]]:
    return lambda: [
        ((name, group, topic, str(number)), value)
        for name, it in snapshots.items()
        for group, lags in it.groups.items()
        for (topic, number), lag in lags.items()
        if (value := fact(lag)) is not None
    ]


def _sums(snapshots: Snapshots, fact: Callable[[PartitionLag], float | None]) -> Callable[[], list[Sample]]:
    def read() -> list[Sample]:
        sums: dict[tuple[str, ...], float] = {}
        for name, it in snapshots.items():
            for group, lags in it.groups.items():
                for (topic, _), lag in lags.items():
                    sums[name, group, topic] = sums.get((name, group, topic), 0) + (fact(lag) or 0)
        return list(sums.items())

    return read


if __name__ == "__main__":
    raise SystemExit(main())
