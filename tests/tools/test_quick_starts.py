"""The quick starts of Kafka's documentation, typed as printed: of 0.8, 2.x and 3.9.

Only addresses and ports are replaced, so that the tests run beside other servers. Where a quick start runs ZooKeeper,
the broker's file needs the setting `zookeeper.connect`, which Kafka's sample has and Milena's has not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.metadata_probe import is_serving
from tests.support.parts import skip_when_unavailable
from tests.support.processes import listening_ports
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.conftest import ROOT

TIMEOUT_S = 60.0
# A shell starts background processes with SIGINT ignored, and its children inherit that.
INTERRUPTIBLE = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])",
)
STARTED = ("This is my first event", "This is my second event")


class Terminal:
    """A shell in a folder with Milena's `bin` and `config`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.addresses: dict[str, str] = {}
        """By the address that the documentation prints: the one to use."""
        for name in ("bin", "config"):
            (folder / name).symlink_to(ROOT / name)

    def type(self, line: str, stdin: Sequence[str] = ()) -> list[str]:
        """Run a command line; return the lines that it printed. Fails the test if it fails."""
        done = subprocess.run(
            ["sh", "-c", self._typed(line)],
            cwd=self._folder,
            input="".join(f"{text}\n" for text in stdin),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout.splitlines()

    def type_and_interrupt(self, line: str, count: int) -> list[str]:
        """Run a command line, and press Ctrl-C when it has printed `count` lines; return these."""
        process = subprocess.Popen(
            [*INTERRUPTIBLE, "sh", "-c", f"exec {self._typed(line)}"],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip("\n") for _ in range(count)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
        assert f"Processed a total of {count} messages" in errors
        return lines

    @contextmanager
    def running(self, line: str, *overrides: str) -> Iterator[None]:
        """Run a server in another terminal until Ctrl-C."""
        words = ["bin/" + line.removeprefix("bin/"), "--override", "listeners=PLAINTEXT://127.0.0.1:0"]
        with (self._folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *INTERRUPTIBLE,
                    "sh",
                    "-c",
                    f"exec {' '.join(words)} {' '.join(f'--override {each}' for each in overrides)}",
                ],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        try:
            self.addresses["localhost:9092"] = f"127.0.0.1:{self._port_of(process)}"
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)

    def _port_of(self, process: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                for port in listening_ports(process.pid):
                    if is_serving(port):
                        return port
            except OSError:
                pass
            time.sleep(0.05)
        pytest.fail((self._folder / "server.log").read_text())

    def _typed(self, line: str) -> str:
        for printed, used in self.addresses.items():
            line = line.replace(printed, used)
        return line


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_quick_start_of_3_9(terminal: Terminal) -> None:
    cluster_id = terminal.type("bin/kafka-storage.sh random-uuid")[0]
    terminal.type(
        f"KAFKA_CLUSTER_ID={cluster_id}; "
        "bin/kafka-storage.sh format --standalone -t $KAFKA_CLUSTER_ID -c config/kraft/reconfig-server.properties"
    )
    with terminal.running("bin/kafka-server-start.sh config/kraft/reconfig-server.properties"):
        assert terminal.type(
            "bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092"
        ) == ["Created topic quickstart-events."]
        described = terminal.type(
            "bin/kafka-topics.sh --describe --topic quickstart-events --bootstrap-server localhost:9092"
        )
        assert described[0].startswith("Topic: quickstart-events\tTopicId: ")
        assert described[1].startswith("\tTopic: quickstart-events\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1")
        terminal.type(
            "bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092", STARTED
        )
        consumer = (
            "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092"
        )
        assert terminal.type_and_interrupt(consumer, 2) == list(STARTED)
        assert terminal.type("bin/kafka-cluster.sh cluster-id --bootstrap-server localhost:9092") == [
            f"Cluster ID: {cluster_id}"
        ]


def test_quick_start_of_2_x(terminal: Terminal) -> None:
    with terminal.running("bin/kafka-server-start.sh config/server.properties"):
        terminal.type(
            "bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --replication-factor 1 --partitions 1 "
            "--topic test"
        )
        assert terminal.type("bin/kafka-topics.sh --list --bootstrap-server localhost:9092") == ["test"]
        sent = ["This is a message", "This is another message"]
        terminal.type("bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test", sent)
        consumer = "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic test --from-beginning"
        assert terminal.type_and_interrupt(consumer, 2) == sent


def test_quick_start_of_0_8(terminal: Terminal, tmp_path: Path) -> None:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        terminal.addresses["localhost:2181"] = zookeeper.connect
        with terminal.running(
            "bin/kafka-server-start.sh config/server.properties", f"zookeeper.connect={zookeeper.connect}"
        ):
            created = terminal.type(
                "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 "
                "--topic test"
            )
            assert created == ['Created topic "test".']
            assert terminal.type("bin/kafka-topics.sh --list --zookeeper localhost:2181") == ["test"]
            sent = ["This is a message", "This is another message"]
            terminal.type("bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test", sent)
            consumer = "bin/kafka-console-consumer.sh --zookeeper localhost:2181 --topic test --from-beginning"
            assert terminal.type_and_interrupt(consumer, 2) == sent
            described = terminal.type("bin/kafka-topics.sh --describe --zookeeper localhost:2181 --topic test")
            assert described == [
                "Topic:test\tPartitionCount:1\tReplicationFactor:1\tConfigs:",
                "\tTopic: test\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0",
            ]
