"""The two servers under test, each started the way its users start it, on empty folders.

Owns: command lines, JVM options and the property values both servers get. Must not know what is measured.

Both run with their defaults; the overrides below are the same few lines for both and only let one broker stand alone.
No launcher script stands in front of either, so that start-up compares the servers themselves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from tests.support.apache_kafka import ApacheKafkaProcess
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import ZooKeeperProcess

# What kafka-server-start.sh passes, but for the explicit collector: G1 is the default there too.
KAFKA_JVM_OPTIONS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
MILENA = "milena"
KAFKA = "kafka"
TITLES: Mapping[str, str] = {MILENA: "Milena", KAFKA: "Kafka"}


class Server(Protocol):
    """A broker process, not started yet."""

    port: int

    @property
    def pid(self) -> int: ...
    def spawn(self) -> None: ...
    def wait_until_ready(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True)
class Contender:
    """`new_server` makes a server with an empty folder of its own; it starts when told to."""

    name: str
    new_server: Callable[[], Server]


@contextmanager
def contenders(names: Sequence[str], folder: Path | None) -> Iterator[list[Contender]]:
    """Those contenders, with all data in one temporary folder (below `folder`) that goes away in the end."""
    with ExitStack() as running:
        data = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="milena-bench-", dir=folder)))
        factories = {MILENA: lambda: _milena_servers(data), KAFKA: lambda: _kafka_servers(data, running)}
        yield [Contender(name, factories[name]()) for name in names]


def _milena_servers(data: Path) -> Callable[[], Server]:
    numbers = count()
    return lambda: BrokerProcess(data / f"milena-{next(numbers)}")


def _kafka_servers(data: Path, running: ExitStack) -> Callable[[], Server]:
    """Every Kafka gets a root of its own in one ZooKeeper, whose time and memory are not Kafka's here."""
    zookeeper = running.enter_context(ZooKeeperProcess(data / "zookeeper"))
    numbers = count()

    def new_server() -> Server:
        number = next(numbers)
        return ApacheKafkaProcess(
            data / f"kafka-{number}",
            f"{zookeeper.connect}/{number}",
            jvm_options=KAFKA_JVM_OPTIONS,
        )

    return new_server
