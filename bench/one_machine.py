"""Several brokers on one machine: start, memory and a killed broker; and what more brokers on more cores achieve.

    PYTHONPATH=. python -m bench.one_machine [--rounds 5]
    PYTHONPATH=. python -m bench.one_machine --brokers 1 2 [--rounds 5]

Owns the clusters and the report. Each round starts `kafka-cluster-start -n 3` in a temporary folder, once with the
coordination server and once with `--java-zookeeper`, alternating. It measures the time from the command to the first
record that all replicas have acknowledged, and the memory of the processes then. Then it creates a topic of 100
partitions, kills one broker, and measures the time until each partition has acknowledged another record.

With `--brokers`, each round starts so many brokers, each on a core of its own if there are enough, and produces
16 KB batches with acks=1 to two partitions of each, five in flight. The client is one process on the same cores.

It prints the medians, with the smallest and the largest value, and the ratio of the last median to the first.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.client import ProduceStream, closed_loop
from bench.processes import cpu_seconds, resident_mib
from bench.subject import GB, KIB_16, MB, bulk_batch, closing_all

ROOT: Final = Path(__file__).resolve().parents[1]
TIMEOUT_S: Final = 60.0
PARTITIONS: Final = 100
SETTLE_S: Final = 1.0
SUBJECTS: Final[Mapping[str, Sequence[str]]] = {
    "coordination server": (),
    "ZooKeeper": ("--java-zookeeper",),
}
MEASURES: Final = (
    "start to first record, s",
    "a broker, MiB",
    "supervisor and ZooKeeper, MiB",
    "kill to 100 records, s",
)
LOAD_MEASURES: Final = ("throughput, MB/s", "CPU, s/GB")
PARTITIONS_EACH: Final = 2
IN_FLIGHT: Final = 5
LEAD_IN_S: Final = 0.5
LOAD_S: Final = 4.0
CLIENT: Final = {
    "acks": "all",
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 10,
}
"""A client that finds new leaders soon: the cluster is measured, not its pauses."""


class Started(NamedTuple):
    """A running cluster; processes and ports are those of the brokers, by their ids."""

    supervisor: int
    pids: Mapping[int, int]
    ports: Mapping[int, int]
    bootstrap: str
    start_s: float
    """From the command to the first record that all replicas have acknowledged."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--brokers", type=int, nargs="+", metavar="COUNT", help="compare these numbers of brokers")
    options = parser.parse_args()
    if options.brokers is None:
        _report(
            options.rounds, MEASURES, {name: partial(_measure, 3, it, _of_cluster) for name, it in SUBJECTS.items()}
        )
    else:
        numbers = {f"{count} brokers": partial(_measure, count, (), _of_load) for count in options.brokers}
        _report(options.rounds, LOAD_MEASURES, numbers)
    return 0


def _report(rounds: int, measures: Sequence[str], subjects: Mapping[str, Callable[[], Sequence[float]]]) -> None:
    """Measure the subjects in turn, and print the medians, with the ratio of the last to the first."""
    found: dict[str, list[Sequence[float]]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, measure in subjects.items():
            found[name].append(measure())
    print(f"{'':32}" + "".join(f"{name:>26}" for name in subjects) + f"{'ratio':>10}")
    for index, title in enumerate(measures):
        values = [[of_round[index] for of_round in found[name]] for name in subjects]
        ratio = statistics.median(values[-1]) / statistics.median(values[0])
        print(f"{title:32}" + "".join(f"{_cell(each):>26}" for each in values) + f"{ratio:>8.2f} x")


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _measure(brokers: int, options: Sequence[str], of_cluster: Callable[[Started], Sequence[float]]) -> Sequence[float]:
    """Start a cluster, and return what `of_cluster` measures."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "tools.launch.cluster_start", "-n", str(brokers), "--data", folder]
        command += [
            "--port",
            "0",
            "--zookeeper-port",
            "0",
            "--override",
            "auto.leader.rebalance.enable=false",
            *options,
        ]
        begin_s = time.monotonic()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**kept, "PYTHONPATH": str(ROOT)}
        ) as supervisor:
            try:
                return of_cluster(_started(supervisor, brokers, begin_s))
            finally:
                supervisor.send_signal(signal.SIGTERM)
                supervisor.communicate(timeout=TIMEOUT_S)


def _started(supervisor: subprocess.Popen[str], count: int, begin_s: float) -> Started:
    """Return the cluster when it has acknowledged a record."""
    assert supervisor.stdout is not None
    pids: dict[int, int] = {}
    ports: dict[int, int] = {}
    while len(pids) < count:
        line = supervisor.stdout.readline()
        if started := re.search(r"broker-(\d) starts: process (\d+), 127\.0\.0\.1:(\d+)", line):
            pids[int(started[1])] = int(started[2])
            ports[int(started[1])] = int(started[3])
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    first = Producer({**CLIENT, "bootstrap.servers": bootstrap})
    first.produce("first", b"x")
    assert first.flush(TIMEOUT_S) == 0
    return Started(supervisor.pid, pids, ports, bootstrap, time.monotonic() - begin_s)


def _of_load(cluster: Started) -> Sequence[float]:
    """Return a value for each of `LOAD_MEASURES`."""
    batch, streams = bulk_batch(KIB_16), []
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    leaders = [broker_id for broker_id in cluster.ports for _ in range(PARTITIONS_EACH)]
    topic = NewTopic("load", len(leaders), replica_assignment=[[leader] for leader in leaders])
    admin.create_topics([topic])["load"].result(TIMEOUT_S)
    time.sleep(SETTLE_S)
    for partition, leader in enumerate(leaders):
        streams.append(ProduceStream(cluster.ports[leader], "load", partition, batch, IN_FLIGHT))
    with closing_all(streams):
        closed_loop(streams, seconds=LEAD_IN_S)
        before_s = sum(map(cpu_seconds, cluster.pids.values()))
        section = closed_loop(streams, seconds=LOAD_S)
        spent_s = sum(map(cpu_seconds, cluster.pids.values())) - before_s
    byte_count = section.requests * KIB_16
    return byte_count / MB / section.wall_s, spent_s / (byte_count / GB)


def _of_cluster(cluster: Started) -> Sequence[float]:
    """Return a value for each of `MEASURES`."""
    brokers, bootstrap, start_s = cluster.pids, cluster.bootstrap, cluster.start_s
    memory = [resident_mib(pid) for pid in brokers.values()]
    rest = resident_mib(cluster.supervisor) - sum(memory)

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("many", PARTITIONS, 3)])["many"].result(TIMEOUT_S)
    many = Producer({**CLIENT, "bootstrap.servers": bootstrap})
    _produce_to_all(many)
    time.sleep(SETTLE_S)
    killed_s = time.monotonic()
    os.kill(brokers[2], signal.SIGKILL)
    _produce_to_all(many)
    return start_s, statistics.median(memory), rest, time.monotonic() - killed_s


def _produce_to_all(producer: Producer) -> None:
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for partition in range(PARTITIONS):
        producer.produce("many", b"x", partition=partition, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed, failed[0]


if __name__ == "__main__":
    raise SystemExit(main())
