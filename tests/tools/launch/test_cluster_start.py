"""kafka-cluster-start: the settings of its servers, and the supervision of processes."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from tests.support.coordination import RawClient, buffer, string
from tests.support.parts import skip_when_unavailable
from tests.support.waiting import wait_until
from tests.tools.conftest import Outcome, RunTool
from tools.launch import cluster_start
from tools.launch.cluster_start import Server, Supervised, Supervisor, cluster, own_variables, session_ender
from tools.launch.zookeeper_jars import NoZooKeeperError

DEADLINE_S = 30.0
CREATE, PING = 1, 11
EPHEMERAL = 1
# A server that reports its start and every signal in its log, and ends with status 0 on SIGTERM.
PROGRAM = """
import os, signal, sys
def stop(number, frame):
    print("stopped", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("started", flush=True)
while True:
    signal.pause()
"""

until = partial(wait_until, timeout_s=DEADLINE_S)


def server(folder: Path, name: str, program: str = PROGRAM) -> Server:
    def is_ready() -> bool:
        return made.log.read_text().endswith("started\n")

    folder = folder / name
    command = [sys.executable, "-c", program, str(folder / "settings")]
    made = Server(name, folder, 1, command, {"a": "b"}, is_ready)
    return made


class Running:
    """A supervisor in a thread."""

    def __init__(self, *servers: Supervised) -> None:
        self.ended: list[str] = []
        self.supervisor = Supervisor(servers, self.ended.append)
        self._is_stopped = False
        self._thread = threading.Thread(target=self.supervisor.run, args=(lambda: self._is_stopped,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_stopped = True
        self._thread.join()
        self.supervisor.stop()

    def is_alive(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_start, "POLL_INTERVAL_S", 0.01)


@pytest.mark.parametrize(
    ("status", "text"),
    [(0, "ended with status 0"), (1, "ended with status 1"), (-9, "ended by SIGKILL"), (143, "ended by SIGTERM")],
)
def test_end_names_the_signal_also_of_a_jvm_that_handled_it(status: int, text: str) -> None:
    assert cluster_start._end_text(status) == text


def test_servers_are_started_restarted_and_stopped_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = [server(tmp_path, name) for name in ("zookeeper", "broker-1", "broker-2")]
    with Running(*servers) as running:
        until(lambda: all(each.is_serving for each in servers))
        process = servers[1].process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: servers[1].log.read_text() == "started\nstarted\n" and servers[1].is_serving)
    assert running.ended == ["broker-1"], "those that the supervisor stops are not reported"
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert "bootstrap.servers=127.0.0.1:1,127.0.0.1:1" in lines
    (death,) = [line for line in lines if "SIGKILL" in line]
    assert death.startswith("broker-1 ended by SIGKILL and starts again in ")
    assert [line for line in lines if line.endswith("stops")] == ["broker-2 stops", "broker-1 stops", "zookeeper stops"]
    assert [line for line in lines if line.endswith("status 0")] == [
        f"{name} ended with status 0" for name in ("broker-2", "broker-1", "zookeeper")
    ]
    assert servers[1].log.read_text() == "started\nstarted\nstopped\n"
    assert (tmp_path / "broker-1" / "settings").read_text() == "a=b\n"


def test_brokers_start_when_the_coordination_server_serves_and_stop_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coordination, *_ = cluster(tmp_path, 1)
    broker = server(tmp_path, "broker-1")
    with Running(coordination, broker):
        until(lambda: broker.is_serving)
        assert _four_letter_word(coordination.port, b"ruok") == b"imok"
    lines = [line.split(" ")[1:3] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["coordination", "starts:"],
        ["coordination", "serves"],
        ["broker-1", "starts:"],
        ["broker-1", "serves"],
        [f"bootstrap.servers=127.0.0.1:{broker.port}"],
        ["broker-1", "stops"],
        ["broker-1", "ended"],
        ["coordination", "stops"],
        ["coordination", "ended"],
    ]


def test_coordination_server_that_cannot_start_is_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    coordination, *_ = cluster(tmp_path, 1, zookeeper_port=taken.getsockname()[1])
    with Running(coordination, server(tmp_path, "broker-1")):
        until(lambda: coordination.log.exists() and "in use" in coordination.log.read_text())
        taken.close()
        until(lambda: coordination.is_serving)
    lines = capsys.readouterr().out
    assert f"coordination ended with status 1 and starts again in 1 s; log {coordination.log}" in lines
    assert lines.index("coordination serves") < lines.index("broker-1 starts")


def test_session_of_a_dead_broker_is_ended_and_no_other(tmp_path: Path) -> None:
    coordination, *brokers = cluster(tmp_path, 2)
    end_session = session_ender([coordination, *brokers])
    coordination.spawn()
    try:
        clients = [RawClient(coordination.port) for _ in brokers]
        for path in ("/brokers", "/brokers/ids"):
            _create(clients[0], path, 0)
        for broker_id, client in enumerate(clients, 1):
            _create(client, f"/brokers/ids/{broker_id}", EPHEMERAL)
        end_session("broker-1")
        assert clients[0].read() is None
        assert clients[1].ask(PING, xid=-2)[-1].error == 0
        end_session("broker-1")
        end_session("coordination")
        assert clients[1].ask(PING, xid=-2)[-1].error == 0
        with socket.create_server(("127.0.0.1", brokers[1].port)):
            end_session("broker-2")
            assert clients[1].ask(PING, xid=-2)[-1].error == 0, "another process is the broker"
        for client in clients:
            client.close()
    finally:
        coordination.stop()
    end_session("broker-2")


def _create(client: RawClient, path: str, flags: int) -> None:
    acl = struct.pack(">ii", 1, 31) + string("world") + string("anyone")
    assert client.ask(CREATE, string(path) + buffer(b"") + acl + struct.pack(">i", flags))[-1].error == 0


def _four_letter_word(port: int, word: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(word)
        return connection.recv(4096)


def test_halted_server_is_stopped_too(tmp_path: Path) -> None:
    halted = server(tmp_path, "broker-1")
    with Running(halted):
        until(lambda: halted.is_serving)
        assert halted.process is not None
        os.kill(halted.process.pid, signal.SIGSTOP)
    assert halted.log.read_text() == "started\nstopped\n"


def test_supervisor_ends_when_every_broker_was_stopped_by_someone_else(tmp_path: Path) -> None:
    zookeeper, broker = server(tmp_path, "zookeeper"), server(tmp_path, "broker-1")
    with Running(zookeeper, broker) as supervised:
        until(lambda: broker.is_serving)
        assert broker.process is not None
        os.kill(broker.process.pid, signal.SIGTERM)
        until(lambda: not supervised.is_alive())
    assert zookeeper.log.read_text() == "started\nstopped\n"


def test_each_broker_has_its_own_folder_port_and_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6})
    coordination, *brokers = cluster(tmp_path, 3, port=9192, zookeeper_port=2281, overrides={"num.partitions": "7"})
    assert (coordination.name, coordination.port) == ("coordination", 2281)
    assert [broker.core for broker in brokers if isinstance(broker, Server)] == [4, 5, 6]
    assert [broker.port for broker in brokers] == [9192, 9193, 9194]
    for broker_id, broker in enumerate(brokers, 1):
        assert isinstance(broker, Server)
        assert broker.settings["broker.id"] == str(broker_id)
        assert broker.settings["listeners"] == f"PLAINTEXT://127.0.0.1:{9191 + broker_id}"
        assert broker.settings["log.dirs"] == str(tmp_path / f"broker-{broker_id}" / "data")
        assert broker.settings["zookeeper.connect"] == "127.0.0.1:2281"
        assert broker.settings["num.partitions"] == "7"
        assert broker.settings["offsets.topic.replication.factor"] == "3"
        assert broker.settings["min.insync.replicas"] == "2"


def test_zookeeper_server_has_its_data_in_the_folder(tmp_path: Path) -> None:
    with skip_when_unavailable():
        zookeeper, *brokers = cluster(tmp_path, 2, zookeeper_port=2281, with_java=True)
    assert isinstance(zookeeper, Server)
    assert zookeeper.settings["clientPort"] == "2281"
    assert zookeeper.settings["dataDir"] == str(tmp_path / "zookeeper" / "data")
    assert [broker.name for broker in brokers] == ["broker-1", "broker-2"]


def test_cluster_of_a_zookeeper_server_is_not_started_without_its_metadata(run: RunTool, tmp_path: Path) -> None:
    (tmp_path / "zookeeper" / "data").mkdir(parents=True)
    outcome = run(cluster_start.main, "--data", str(tmp_path))
    assert outcome == Outcome(
        1,
        "",
        f"The metadata of the cluster in {tmp_path} is that of a ZooKeeper server, in {tmp_path / 'zookeeper'}: start "
        "it with --java-zookeeper. docs/growing.md says how to move it\n",
    )


def test_what_brokers_inherit_from_the_environment_is_made_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JMX_PORT", "9999")
    monkeypatch.setenv("LOG_DIR", "/logs")
    monkeypatch.setenv("KAFKA_LOG4J_OPTS", "-Dlog4j.configuration=file:x -Dkafka.logs.dir=/other")
    brokers = cluster(tmp_path, 2, zookeeper="zk:2181")
    assert [broker.variables for broker in brokers] == [
        {
            "JMX_PORT": str(9998 + number),
            "LOG_DIR": f"/logs/broker-{number}",
            "KAFKA_LOG4J_OPTS": (
                f"-Dlog4j.configuration=file:x -Dkafka.logs.dir=/other -Dkafka.logs.dir=/other/broker-{number}"
            ),
        }
        for number in (1, 2)
    ]
    prints = server(tmp_path, "broker-7", f"import os; print(os.environ['JMX_PORT'], flush=True); {PROGRAM}")
    prints.variables = {"JMX_PORT": "7"}
    with Running(prints):
        until(lambda: prints.is_serving)
    assert prints.log.read_text().startswith("7\nstarted\n")
    assert "metrics 127.0.0.1:7, log" in capsys.readouterr().out


@pytest.mark.parametrize("variables", [{}, {"JMX_PORT": "0"}, {"JMX_PORT": "x"}, {"LOG_DIR": ""}])
def test_what_brokers_may_share_is_inherited_as_it_is(variables: dict[str, str]) -> None:
    assert own_variables("broker-2", 1, variables) == {}


def test_brokers_share_cores_if_there_are_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    brokers = cluster(tmp_path, 3, zookeeper="zk:2181/chroot")
    assert [broker.core for broker in brokers if isinstance(broker, Server)] == [None] * 3
    assert len({broker.port for broker in brokers}) == 3, "free ports differ"
    assert isinstance(brokers[0], Server)
    assert brokers[0].settings["zookeeper.connect"] == "zk:2181/chroot"


@pytest.mark.parametrize(
    ("count", "replication_factor", "min_in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_replication_fits_the_number_of_brokers(
    tmp_path: Path, count: int, replication_factor: str, min_in_sync: str
) -> None:
    broker = cluster(tmp_path, count, zookeeper="zk:2181")[0]
    assert isinstance(broker, Server)
    settings = broker.settings
    assert settings["default.replication.factor"] == replication_factor
    assert settings["transaction.state.log.replication.factor"] == replication_factor
    assert settings["transaction.state.log.min.isr"] == min_in_sync


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-n", "3"), 'Missing required argument "[data]"'),
        (("-n", "0", "--data", "d"), "Cannot start 0 brokers: expected 1 to 100"),
        (("-n", "x", "--data", "d"), "Cannot parse argument 'x' of option n"),
        (
            ("--data", "d", "--java-zookeeper", "--zookeeper", "zk:2181"),
            'Option "[zookeeper]" can\'t be used with option "[java-zookeeper]"',
        ),
        (("--data", "d", "--override", "a"), "--override expects property=value, found 'a'"),
    ],
)
def test_invalid_command_lines_are_rejected(run: RunTool, arguments: tuple[str, ...], message: str) -> None:
    outcome = run(cluster_start.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message)


def test_missing_zookeeper_is_reported(run: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(settings: Path) -> list[str]:
        raise NoZooKeeperError("no java")

    monkeypatch.setattr(cluster_start, "server_command", command)
    assert run(cluster_start.main, "--data", str(tmp_path), "--java-zookeeper") == Outcome(1, "", "no java\n")
