"""kafka-cluster-start: runs several brokers and what coordinates them on this machine until it is stopped.

    kafka-cluster-start -n 3 --data /tmp/cluster

Each broker has its own folder, port and, if the machine has enough of them, core. They are coordinated by a server that
speaks ZooKeeper's protocol in a thread of this process, by a ZooKeeper server, or by an ensemble that exists. The tool
starts a server again that has died, and stops the brokers one by one, the last started first, before what coordinates
them.

Owns the folders, settings and command lines of the servers, and their processes. Must not know when a server is started
again (`tools.launch.supervision`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from base import properties
from controller.tree.paths import BROKER_IDS
from protocol.errors import KafkaError
from tools.base.command_line import CommandLine, StopRequest, UsageError, run_tool
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.bootstrap import Endpoint
from tools.launch.coordination_thread import COORDINATION_FILE, CoordinationThread
from tools.launch.supervision import Supervision
from tools.launch.zookeeper_jars import NoZooKeeperError, server_command

ZOOKEEPER: Final = "zookeeper"
_ZOOKEEPER_DATA: Final = "data"
HOST: Final = "127.0.0.1"
POLL_INTERVAL_S: Final = 0.1
PROBE_TIMEOUT_MS: Final = 1000
STOP_TIMEOUT_S: Final = 60.0
BROKERS_MAX: Final = 100
REPLICATION_FACTOR_MAX: Final = 3
_JMX_PORT, _LOG_DIR, _LOG4J_OPTS = "JMX_PORT", "LOG_DIR", "KAFKA_LOG4J_OPTS"
_ROOT: Final = Path(__file__).resolve().parents[2]
_STATUS_OF_JVM_AFTER_SIGTERM: Final = 128 + signal.SIGTERM


class NoCoordinationError(Exception):
    """The metadata of the cluster is not where the brokers would search it; the text says where it is."""


class Supervised(Protocol):
    """A server as the supervisor sees it."""

    is_serving: bool

    @property
    def name(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def log(self) -> Path: ...
    @property
    def variables(self) -> Mapping[str, str]: ...
    def spawn(self) -> int:
        """Start it and return the id of its process."""
        ...

    def poll(self) -> int | None:
        """Return the status with which it has ended, once; None if it has not been started or runs."""
        ...

    def is_ready(self) -> bool:
        """Ask it once whether it serves."""
        ...

    def stop(self) -> int:
        """Stop it in order, and return its exit status."""
        ...

    def kill(self) -> None: ...


@dataclass
class Server:
    """One server process and its files."""

    name: str
    folder: Path
    port: int
    command: Sequence[str]
    settings: Mapping[str, str]
    probe: Callable[[], bool]
    core: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment that are its own; it inherits the others."""
    process: subprocess.Popen[bytes] | None = None
    is_serving: bool = field(default=False)

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def spawn(self) -> int:
        """Start the process and return its id. Its standard output and error go to the log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{key}={value}\n" for key, value in self.settings.items())
        Path(self.command[-1]).write_text("".join(lines), encoding="utf-8")
        self.is_serving = False
        with self.log.open("ab") as log:
            # A process group of its own: Ctrl-C reaches the supervisor alone, which stops the servers in order.
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                env={**os.environ, **self.variables, "PYTHONPATH": str(_ROOT)},
            )
        if self.core is not None:
            with contextlib.suppress(OSError):  # it has ended, or this user may not
                os.sched_setaffinity(self.process.pid, {self.core})
        return self.process.pid

    def poll(self) -> int | None:
        status = None if self.process is None else self.process.poll()
        if status is not None:
            self.process = None
            self.is_serving = False
        return status

    def is_ready(self) -> bool:
        return self.process is not None and self.probe()

    def stop(self) -> int:
        """Send SIGTERM, after a timeout SIGKILL, and return the exit status."""
        assert self.process is not None
        self.process.terminate()
        # A process that a debugger or SIGSTOP halts would never see the signal.
        self.process.send_signal(signal.SIGCONT)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 after SIGINT or SIGTERM, 1 if no server could be started."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-cluster-start",
        "This tool runs several brokers and what coordinates them on this machine, starts those again that die, and "
        "stops them in order on SIGTERM or Ctrl-C. It needs no ZooKeeper: it serves ZooKeeper's protocol itself.",
        help_succeeds=True,
    )
    line.add_option("-n", "--brokers", value="count", parse=int, default=3, help_text="How many brokers (default: 3).")
    line.add_option("--data", value="folder", help_text="REQUIRED: The folder of all data, settings and logs.")
    line.add_option(
        "--port",
        value="port",
        parse=int,
        default=9092,
        help_text="The port of the first broker; the others have the next ones. 0 for free ports (default: 9092).",
    )
    line.add_option(
        "--zookeeper-port",
        value="port",
        parse=int,
        default=2181,
        help_text="The port for ZooKeeper's protocol. 0 for a free one (default: 2181).",
    )
    line.add_option(
        "--zookeeper",
        value="urls",
        help_text="Use this ensemble of ZooKeeper, as host:port,.../chroot.",
    )
    line.add_flag("--java-zookeeper", help_text="Start a ZooKeeper server, which needs Java.")
    line.add_flag(
        "--wait-for-sessions",
        help_text="Let the session of a broker that has died time out, as it does if its machine dies, before its "
        "partitions get new leaders.",
    )
    line.add_option(
        "--override",
        value="property=value",
        repeatable=True,
        help_text="A setting of all brokers, as in server.properties. Repeatable.",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--data")
    line.forbid(options, "--zookeeper", "--java-zookeeper")
    if not 1 <= options.n <= BROKERS_MAX:
        raise UsageError(f"Cannot start {options.n} brokers: expected 1 to {BROKERS_MAX}")
    overrides = dict(_assignment(text) for text in options.override)
    try:
        servers = cluster(
            Path(options.data).resolve(),
            options.n,
            port=options.port,
            zookeeper_port=options.zookeeper_port,
            zookeeper=options.zookeeper,
            with_java=options.java_zookeeper,
            overrides=overrides,
        )
    except (NoZooKeeperError, NoCoordinationError) as error:
        print(error, file=sys.stderr)
        return 1
    with StopRequest() as stop:
        supervisor = Supervisor(servers, _ignore if options.wait_for_sessions else session_ender(servers))
        try:
            supervisor.run(lambda: stop.is_made)
        finally:
            supervisor.stop()
    return 0


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--override expects property=value, found '{text}'")
    return key.strip(), value


def cluster(
    folder: Path,
    broker_count: int,
    *,
    port: int = 0,
    zookeeper_port: int = 0,
    zookeeper: str | None = None,
    with_java: bool = False,
    overrides: Mapping[str, str] | None = None,
) -> list[Supervised]:
    """Return the servers in the order of their start, not started yet.

    Raises:
        NoZooKeeperError: `with_java`, and this machine cannot run ZooKeeper.
        NoCoordinationError: the folder is that of a cluster whose metadata is elsewhere.
    """
    with _free_ports() as next_free:
        servers: list[Supervised] = []
        if zookeeper is None:
            coordinated_port = zookeeper_port or next_free()
            servers.append(
                _zookeeper(folder / ZOOKEEPER, coordinated_port)
                if with_java
                else _coordination(folder, coordinated_port)
            )
            zookeeper = f"{HOST}:{coordinated_port}"
        ports = [port + number if port else next_free() for number in range(broker_count)]
    # macOS cannot bind a process to a core.
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    for number, broker_port in enumerate(ports):
        broker_id = number + 1
        settings = {
            **_broker_settings(broker_id, broker_count, zookeeper),
            "listeners": f"PLAINTEXT://{HOST}:{broker_port}",
            "log.dirs": str(folder / f"broker-{broker_id}" / "data"),
            **(overrides or {}),
        }
        core = cores[number] if len(cores) >= broker_count else None
        broker = _broker(broker_id, folder / f"broker-{broker_id}", broker_port, settings, core)
        broker.variables = own_variables(broker.name, number, os.environ)
        servers.append(broker)
    return servers


def own_variables(name: str, number: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name a port or a folder, changed so that no other broker has the same one.

    `number` counts the brokers from 0: each has the next port, and a folder of its name in the one that is given.
    """
    own = {}
    port = inherited.get(_JMX_PORT, "")
    if port.isdecimal() and int(port):
        own[_JMX_PORT] = str(int(port) + number)
    if folder := inherited.get(_LOG_DIR):
        own[_LOG_DIR] = str(Path(folder) / name)
    options = inherited.get(_LOG4J_OPTS, "")
    if found := re.findall(r"(?<!\S)-Dkafka\.logs\.dir=(\S+)", options):
        own[_LOG4J_OPTS] = f"{options} -Dkafka.logs.dir={Path(found[-1]) / name}"
    return own


def _coordination(folder: Path, port: int) -> CoordinationThread:
    own = folder / CoordinationThread.name
    if (folder / ZOOKEEPER / _ZOOKEEPER_DATA).exists() and not (own / COORDINATION_FILE).exists():
        raise NoCoordinationError(
            f"The metadata of the cluster in {folder} is that of a ZooKeeper server, in {folder / ZOOKEEPER}: start it "
            "with --java-zookeeper. docs/growing.md says how to move it"
        )
    return CoordinationThread(own, HOST, port)


def _zookeeper(folder: Path, port: int) -> Server:
    settings = {
        **properties.load(str(_ROOT / "config" / "zookeeper.properties")),
        "dataDir": str(folder / _ZOOKEEPER_DATA),
        "clientPort": str(port),
        "clientPortAddress": HOST,
        # So that brokers may ask for sessions of a second, to try failures.
        "tickTime": "500",
        "maxSessionTimeout": "60000",
    }
    command = server_command(folder / "zookeeper.properties")
    return Server(ZOOKEEPER, folder, port, command, settings, lambda: _accepts(port))


def _broker(broker_id: int, folder: Path, port: int, settings: Mapping[str, str], core: int | None) -> Server:
    command = [sys.executable, "-P", "-m", "tools.launch.server_start", str(folder / "server.properties")]
    return Server(f"broker-{broker_id}", folder, port, command, settings, lambda: _serves(broker_id, port), core)


def _broker_settings(broker_id: int, broker_count: int, zookeeper: str) -> dict[str, str]:
    replication_factor = min(broker_count, REPLICATION_FACTOR_MAX)
    min_in_sync = max(replication_factor - 1, 1)
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": zookeeper,
        "default.replication.factor": str(replication_factor),
        "min.insync.replicas": str(min_in_sync),
        "offsets.topic.replication.factor": str(replication_factor),
        "transaction.state.log.replication.factor": str(replication_factor),
        "transaction.state.log.min.isr": str(min_in_sync),
        "share.coordinator.state.topic.replication.factor": str(replication_factor),
        "share.coordinator.state.topic.min.isr": str(min_in_sync),
        "group.initial.rebalance.delay.ms": "0",
        # The partitions of a killed broker get new leaders when its session is over, and only then it can start again.
        "zookeeper.session.timeout.ms": "6000",
        # The last broker to stop has no successor for its partitions, and need not wait for one for long.
        "controlled.shutdown.retry.backoff.ms": "500",
    }


@contextlib.contextmanager
def _free_ports() -> Iterator[Callable[[], int]]:
    """Yield a function that returns a free port, each only once."""
    with contextlib.ExitStack() as bound:

        def next_free() -> int:
            probe = bound.enter_context(socket.socket())
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
            return port

        yield next_free


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), PROBE_TIMEOUT_MS / 1000):
            return True
    except OSError:
        return False


def _is_in_use(port: int) -> bool:
    """Return whether a process listens at the port, also if it is halted."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a dead process do not count
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _serves(broker_id: int, port: int) -> bool:
    """Return whether a broker knows itself and a controller."""
    if not _accepts(port):
        return False
    try:
        with AdminClient([Endpoint(HOST, port)], timeout_ms=PROBE_TIMEOUT_MS) as client:
            view = client.metadata([])
    except (CallTimedOut, KafkaError):
        return False
    known = {broker.node_id for broker in view.brokers}
    return broker_id in known and view.controller_id in known


def session_ender(servers: Sequence[Supervised]) -> Callable[[str], None]:
    """Return a function that ends the session of a broker whose process has ended.

    Its partitions get new leaders immediately, and not after the timeout of the session. Only a parent knows that a
    process is dead, and not slow. If the port of the broker is still in use, the session is not that of the process:
    a broker of an earlier supervisor, which was killed, still runs. So no session of a living broker is ended. An
    ensemble of ZooKeeper waits.
    """
    coordinators = [server for server in servers if isinstance(server, CoordinationThread)]
    brokers = {server.name: server for server in servers if isinstance(server, Server)}

    def end_session(name: str) -> None:
        broker = brokers.get(name)
        broker_id = None if broker is None else broker.settings.get("broker.id")
        if broker is None or broker_id is None or _is_in_use(broker.port):
            return
        for coordinator in coordinators:
            coordinator.end_session_of(f"{BROKER_IDS}/{broker_id}")

    return end_session


def _ignore(name: str) -> None:
    """Leave the session of a dead broker alone."""


class Supervisor:
    """Starts, watches and stops the processes; prints a line for each event."""

    def __init__(self, servers: Sequence[Supervised], on_ended: Callable[[str], None]) -> None:
        """`servers` are in the order of their start. `on_ended(name)` is called when a process has ended by itself."""
        self._on_ended = on_ended
        self._servers = {server.name: server for server in servers}
        self._supervision = Supervision(list(self._servers))
        self._coordinators = [name for name in self._servers if name in (ZOOKEEPER, CoordinationThread.name)]
        self._brokers = [name for name in self._servers if name not in self._coordinators]
        self._has_reported = False

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Return when a stop is requested, or when no broker is left."""
        with _progress(len(self._servers)) as advance:
            while not is_stopped() and not self._supervision.is_over(self._brokers):
                self._start_due()
                self._notice_ended()
                self._notice_serving()
                advance(sum(server.is_serving for server in self._servers.values()))
                time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """Stop the servers one by one; each may move its partitions to the others before the next one stops.

        If it is interrupted, it kills those that are left.
        """
        running = list(self._supervision.stop())
        try:
            while running:
                name = running[0]
                _report(f"{name} stops")
                _report(f"{name} {_end_text(self._servers[name].stop())}")
                running.pop(0)
        finally:
            for name in running:
                self._servers[name].kill()

    def _start_due(self) -> None:
        for name in self._supervision.due(time.monotonic()):
            server = self._servers[name]
            if name in self._brokers and not all(self._servers[each].is_serving for each in self._coordinators):
                continue  # a broker ends if it cannot reach ZooKeeper in time
            pid = server.spawn()
            self._supervision.started(name, time.monotonic())
            port = server.variables.get(_JMX_PORT)
            metrics = "" if port is None else f"metrics {HOST}:{port}, "
            _report(f"{name} starts: process {pid}, {HOST}:{server.port}, {metrics}log {server.log}")
            if name in self._coordinators:
                self._notice_whether_serving(server)  # the brokers need not wait for the next turn

    def _notice_ended(self) -> None:
        for name, server in self._servers.items():
            if (status := server.poll()) is None:
                continue
            self._on_ended(name)
            delay_s = self._supervision.ended(name, status, time.monotonic())
            outlook = "is not started again" if delay_s is None else f"starts again in {delay_s:g} s"
            _report(f"{name} {_end_text(status)} and {outlook}; log {server.log}")

    def _notice_serving(self) -> None:
        for server in self._servers.values():
            self._notice_whether_serving(server)
        if not self._has_reported and all(server.is_serving for server in self._servers.values()):
            self._has_reported = True
            addresses = (f"{HOST}:{self._servers[name].port}" for name in self._brokers)
            _report(f"bootstrap.servers={','.join(addresses)}")

    def _notice_whether_serving(self, server: Supervised) -> None:
        if not server.is_serving and server.is_ready():
            server.is_serving = True
            _report(f"{server.name} serves")


def _report(text: str) -> None:
    print(f"{datetime.now().astimezone():%H:%M:%S} {text}", flush=True)


def _end_text(status: int) -> str:
    if status == _STATUS_OF_JVM_AFTER_SIGTERM:
        return "ended by SIGTERM"
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many servers serve; elsewhere the lines of the events are enough."""
    if not sys.stdout.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(), transient=True) as bar:
        task = bar.add_task("servers that serve", total=total)
        yield lambda count: bar.update(task, completed=count)


if __name__ == "__main__":
    raise SystemExit(main())
