"""kafka-cluster-start with real servers: a killed broker returns, records survive, and SIGTERM stops all in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.load import PRODUCER_SETTINGS, read_topic
from tests.cluster.znodes import ROOT

TIMEOUT_S = 30
RECORDS = 200
OVERRIDES = ("zookeeper.session.timeout.ms=60000", "controlled.shutdown.retry.backoff.ms=100")
"""The session of the killed broker would last longer than the test waits: the supervisor ends it."""


def test_cluster_survives_a_kill_and_stops_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "tools.launch.cluster_start", "-n", "3", "--data", str(tmp_path)]
    command += ["--port", "0", "--zookeeper-port", "0", *(f"--override={it}" for it in OVERRIDES)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as supervisor:
        assert supervisor.stdout is not None
        lines: list[str] = []

        def line_with(pattern: str) -> str:
            """Return the next line that matches, or the end of a group in it."""
            for line in supervisor.stdout or ():
                lines.append(line.split(" ", 1)[1].rstrip())
                if found := re.search(pattern, line):
                    return found[found.lastindex or 0]
            raise AssertionError(f"{pattern} is not among {lines}")

        try:
            bootstrap = line_with(r"bootstrap\.servers=(\S+)")
            _produce_while(bootstrap, lambda: os.kill(_pid_of(lines, "broker-2"), signal.SIGKILL))
            line_with("broker-2 ended by SIGKILL and starts again in 1 s")
            line_with("broker-2 serves")
            assert len([line for line in lines if line.startswith("broker-2 ended")]) == 1, "its restart waits"
        finally:
            supervisor.send_signal(signal.SIGTERM)
            rest, _ = supervisor.communicate(timeout=TIMEOUT_S)
    stopped = re.findall(r"(\S+) ended with status 0", rest)
    assert stopped == ["broker-3", "broker-2", "broker-1", "coordination"]
    assert supervisor.returncode == 0
    assert rest.splitlines()[-1].split(" ")[1] == "coordination"


def _pid_of(lines: list[str], name: str) -> int:
    (pid,) = (found[1] for line in lines if (found := re.match(rf"{name} starts: process (\d+),", line)))
    return int(pid)


def _produce_while(bootstrap: str, kill: Callable[[], None]) -> None:
    """Produce numbered records, call `kill` in the middle, and read them all."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("numbers", 3)])["numbers"].result(TIMEOUT_S)
    producer = Producer({**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    failed: list[object] = []
    for number in range(RECORDS):
        if number == RECORDS // 2:
            kill()
        producer.produce(
            "numbers", str(number), partition=number % 3, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    records = read_topic(bootstrap, "numbers", 3)
    assert sorted(number for pairs in records.values() for _, number in pairs) == list(range(RECORDS))
