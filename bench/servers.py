"""The two servers under test, each started as its users start it, on empty folders; and their programs of Connect.

Owns: command lines, JVM options and the property values both servers get. Must not know what is measured.

Both run with their defaults; the overrides below are the same for both and only allow a single broker. Both start
without a launcher script, so that the start case compares the servers themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.support.apache_kafka import (
    ApacheKafkaProcess,
    file_connectors_jar,
    jars,
    kafka_java_command,
    mirror_maker_jars,
)
from tests.support.broker import BrokerProcess
from tests.support.cluster import Broker, NewBroker
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
MILENA = "milena"
KAFKA = "kafka"
TITLES: Mapping[str, str] = {MILENA: "Milena", KAFKA: "Kafka"}


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


@dataclass(frozen=True)
class Contender:
    """`new_server` creates a server with an empty folder and its own settings, not started yet."""

    name: str
    new_server: Callable[[Mapping[str, str]], Server]


@contextmanager
def contenders(names: Sequence[str], folder: Path) -> Iterator[list[Contender]]:
    """Yield the named contenders, with all their data in `folder`."""
    with ExitStack() as running:
        factories = {MILENA: lambda: _milena_servers(folder), KAFKA: lambda: _kafka_servers(folder, running)}
        yield [Contender(name, factories[name]()) for name in names]


def _kafka_broker(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    return ApacheKafkaProcess(folder, connect, broker_id=broker_id, overrides=settings, jvm_options=KAFKA_JVM_OPTIONS)


def _milena_broker(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    return BrokerProcess(folder, {"zookeeper.connect": connect, **settings}, broker_id=broker_id)


NEW_BROKERS: Mapping[str, NewBroker] = {MILENA: _milena_broker, KAFKA: _kafka_broker}


def _milena_servers(folder: Path) -> Callable[[Mapping[str, str]], Server]:
    numbers = count()
    return lambda settings: BrokerProcess(folder / f"milena-{next(numbers)}", settings)


def _kafka_servers(folder: Path, running: ExitStack) -> Callable[[Mapping[str, str]], Server]:
    """Yield a factory of Kafka servers. Each has its own root in one ZooKeeper, whose time and memory do not count."""
    zookeeper = running.enter_context(ZooKeeperProcess(folder / "zookeeper"))
    numbers = count()

    def new_server(settings: Mapping[str, str]) -> Server:
        number = next(numbers)
        return ApacheKafkaProcess(
            folder / f"kafka-{number}",
            f"{zookeeper.connect}/{number}",
            overrides=settings,
            jvm_options=KAFKA_JVM_OPTIONS,
        )

    return new_server
