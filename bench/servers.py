"""The servers under test, each started as its users start it, on empty folders; and their programs of Connect.

Owns: command lines, JVM options and the property values that all servers get. Must not know what is measured.

They run with their defaults; the overrides below are the same for all and only allow a single broker. They start
without a launcher script, so that the start case compares the servers themselves. kfake has no settings.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from base.compiled import VARIABLE as COMPILED_VARIABLE
from bench.kfake import KfakeProcess, kfake_program
from bench.names import KAFKA, KAFKA_4, KFAKE, MILENA, MILENA_BEFORE, MILENA_INTERPRETED
from tests.support.apache_kafka import (
    ApacheKafkaProcess,
    file_connectors_jar,
    jars,
    kafka_java_command,
    kraft_jars,
    mirror_maker_jars,
)
from tests.support.broker import BrokerProcess, server_command
from tests.support.cluster import Broker, NewBroker
from tests.support.java import UnavailableError
from tests.support.kraft_node import KraftNode, empty_node
from tests.support.zookeeper import ZooKeeperProcess

_JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# The options of kafka-server-start.sh; the explicit collector, G1, is the default there too.
KAFKA_JVM_OPTIONS = ("-Xms1g", "-Xmx1g", *_JVM_OPTIONS)
# Those of kafka-run-class.sh, with which it starts all programs.
_PROGRAM_JVM_OPTIONS = (*_JVM_OPTIONS, "-XX:MaxInlineLevel=15")

LAUNCHER = "bin/kafka-server-start"


class Program(Enum):
    """The programs of Connect, and both MirrorMakers."""

    CONNECT_STANDALONE = "connect-standalone"
    KAFKA_MIRROR_MAKER = "kafka-mirror-maker"
    CONNECT_MIRROR_MAKER = "connect-mirror-maker"


def program_command(name: str, program: Program, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a program of a server, as its launcher runs it."""
    if name == MILENA:
        return [sys.executable, "-P", "-m", "milena_broker", _MODULES[program], *arguments]
    jvm = _JAVA_PROGRAMS[program]
    options = (*jvm.heap, *_PROGRAM_JVM_OPTIONS)
    return kafka_java_command([jvm.folder() / "*"], jvm.main, arguments, options=options, log_level="WARN")


def plugin_path(name: str) -> str:
    """Return where a worker finds the file connectors; Milena's are built in."""
    return "" if name == MILENA else str(file_connectors_jar())


class _JavaProgram(NamedTuple):
    """`heap` is that of the program's launcher script."""

    main: str
    folder: Callable[[], Path]
    heap: tuple[str, ...]


_MODULES: Mapping[Program, str] = {
    Program.CONNECT_STANDALONE: "spark_jobs.connect.cli.standalone",
    Program.KAFKA_MIRROR_MAKER: "tools.records.mirror_maker",
    Program.CONNECT_MIRROR_MAKER: "spark_jobs.connect.cli.mirror_maker",
}
_JAVA_PROGRAMS: Mapping[Program, _JavaProgram] = {
    Program.CONNECT_STANDALONE: _JavaProgram(
        "org.apache.kafka.connect.cli.ConnectStandalone", jars, ("-Xms256M", "-Xmx2G")
    ),
    Program.KAFKA_MIRROR_MAKER: _JavaProgram("kafka.tools.MirrorMaker", jars, ("-Xmx256M",)),
    Program.CONNECT_MIRROR_MAKER: _JavaProgram(
        "org.apache.kafka.connect.mirror.MirrorMaker", mirror_maker_jars, ("-Xms256M", "-Xmx2G")
    ),
}


class Server(Protocol):
    """A broker process, not started yet. It can be started again after a stop or a kill."""

    port: int
    log_dir: Path

    @property
    def pid(self) -> int: ...
    def spawn(self) -> None: ...
    def wait_until_ready(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


NewServer = Callable[[Mapping[str, str]], Server]
"""Creates a server with an empty folder and its own settings, not started yet."""


@dataclass(frozen=True)
class Contender:
    name: str
    new_server: NewServer


def missing_programs(names: Iterable[str]) -> dict[str, str]:
    """Fetch or build what servers run; return why some of them cannot run here, by name.

    Raises UnavailableError without Apache Kafka 3.9, beside which all others are measured.
    """
    missing = {}
    for name in names:
        try:
            if (prepare := _PROGRAMS.get(name)) is not None:
                prepare()
        except UnavailableError as error:
            if name == KAFKA:
                raise
            missing[name] = str(error)
    return missing


@contextmanager
def contenders(names: Sequence[str], folder: Path, before: Path | None = None) -> Iterator[list[Contender]]:
    """Yield the named contenders, with all their data in `folder`; `MILENA_BEFORE` is the version in `before`."""
    with ExitStack() as running:
        factories: dict[str, Callable[[], NewServer]] = {
            MILENA: lambda: _numbered(folder / MILENA, BrokerProcess),
            MILENA_INTERPRETED: lambda: _numbered(folder / MILENA_INTERPRETED, _interpreted_milena),
            KAFKA: lambda: _kafka_servers(folder / KAFKA, running),
            KAFKA_4: lambda: _numbered(folder / KAFKA_4, _kafka_4),
            KFAKE: lambda: _numbered(folder / KFAKE, _kfake),
        }
        if before is not None:
            factories[MILENA_BEFORE] = partial(_numbered, folder / MILENA_BEFORE, _version_in(before))
        yield [Contender(name, factories[name]()) for name in names]


def _kafka_broker(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    return ApacheKafkaProcess(folder, connect, broker_id=broker_id, overrides=settings, jvm_options=KAFKA_JVM_OPTIONS)


def _milena_broker(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    return BrokerProcess(folder, {"zookeeper.connect": connect, **settings}, broker_id=broker_id)


NEW_BROKERS: Mapping[str, NewBroker] = {MILENA: _milena_broker, KAFKA: _kafka_broker}


def _numbered(folder: Path, new: Callable[[Path, Mapping[str, str]], Server]) -> NewServer:
    """Return a factory that gives each server a folder of its own."""
    numbers = count()
    return lambda settings: new(folder / str(next(numbers)), settings)


def _interpreted_milena(folder: Path, settings: Mapping[str, str]) -> Server:
    return BrokerProcess(
        folder, settings, command=lambda path: ["env", f"{COMPILED_VARIABLE}=no", *server_command(path)]
    )


def prepare_version(folder: Path) -> str:
    """Create the environment of the version of Milena in `folder`; return what it prints as its version.

    Raises UnavailableError.
    """
    command = [str(folder / LAUNCHER), "--version"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)} exits with {done.returncode}")
    return done.stdout.strip()


def _version_in(root: Path) -> Callable[[Path, Mapping[str, str]], Server]:
    """Return what creates servers of another version. Its launcher is what no version has moved."""

    def new(folder: Path, settings: Mapping[str, str]) -> Server:
        return BrokerProcess(folder, settings, command=lambda path: [str(root / LAUNCHER), str(path)])

    return new


def _kafka_servers(folder: Path, running: ExitStack) -> NewServer:
    """Return a factory of Kafka servers. Each has its own root in one ZooKeeper, whose time and memory do not count."""
    zookeeper = running.enter_context(ZooKeeperProcess(folder / "zookeeper"))
    return _numbered(
        folder,
        lambda own, settings: ApacheKafkaProcess(
            own, f"{zookeeper.connect}/{own.name}", overrides=settings, jvm_options=KAFKA_JVM_OPTIONS
        ),
    )


def _kafka_4(folder: Path, settings: Mapping[str, str]) -> Server:
    """Return one node that is broker and controller."""
    empty_node(folder / "data")
    return KraftNode(folder, str(folder / "data"), overrides=settings, jvm_options=KAFKA_JVM_OPTIONS)


def _kfake(folder: Path, settings: Mapping[str, str]) -> Server:
    assert not settings, "kfake has no settings of a broker"
    return KfakeProcess(folder)


_PROGRAMS: Mapping[str, Callable[[], Path]] = {KAFKA: jars, KAFKA_4: kraft_jars, KFAKE: kfake_program}
