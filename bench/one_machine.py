"""Three brokers on one machine: their start, a killed broker, and memory, with and without a ZooKeeper server.

    PYTHONPATH=. python -m bench.one_machine [--rounds 5]

Owns the clusters and the report. Each round starts `kafka-cluster-start -n 3` in a temporary folder, once with the
coordination server and once with `--java-zookeeper`, alternating. It measures the time from the command to the first
record that all replicas have acknowledged, and the memory of the processes then. Then it creates a topic of 100
partitions, kills one broker, and measures the time until each partition has acknowledged another record. It prints the
medians, with the smallest and the largest value.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import resident_mib

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[str, list[Sequence[float]]] = {name: [] for name in SUBJECTS}
    for _ in range(rounds):
        for name, options in SUBJECTS.items():
            found[name].append(_measure(options))
    print(f"{'':32}" + "".join(f"{name:>26}" for name in SUBJECTS))
    for index, measure in enumerate(MEASURES):
        cells = (_cell([values[index] for values in found[name]]) for name in SUBJECTS)
        print(f"{measure:32}" + "".join(f"{cell:>26}" for cell in cells))
    return 0


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _measure(options: Sequence[str]) -> Sequence[float]:
    """Return a value for each of `MEASURES`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "tools.launch.cluster_start", "-n", "3", "--data", folder]
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
                return _of_cluster(supervisor, begin_s)
            finally:
                supervisor.send_signal(signal.SIGTERM)
                supervisor.communicate(timeout=TIMEOUT_S)


def _of_cluster(supervisor: subprocess.Popen[str], begin_s: float) -> Sequence[float]:
    assert supervisor.stdout is not None
    brokers: dict[int, int] = {}
    addresses: list[str] = []
    while len(brokers) < 3:
        line = supervisor.stdout.readline()
        if started := re.search(r"broker-(\d) starts: process (\d+), (127\.0\.0\.1:\d+)", line):
            brokers[int(started[1])] = int(started[2])
            addresses.append(started[3])
    bootstrap = ",".join(addresses)
    first = Producer({**CLIENT, "bootstrap.servers": bootstrap})
    first.produce("first", b"x")
    assert first.flush(TIMEOUT_S) == 0
    start_s = time.monotonic() - begin_s
    memory = [resident_mib(pid) for pid in brokers.values()]
    rest = resident_mib(supervisor.pid) - sum(memory)

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
