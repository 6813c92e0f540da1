"""The servers of the interoperability tests, and fixtures that run their Java programs.

With `--soak` every test also runs with Apache Kafka: a test that fails there is wrong. No change of this project can
change those results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol, Self

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import dumped
from tests.support.apache_kafka import JavaPrograms, apache_kafka, jars
from tests.support.broker import BrokerProcess
from tests.support.kraft_node import NEWER_GROUPS, KraftNode, empty_node
from tests.support.parts import skip_when_unavailable
from tests.support.processes import ServerProcess
from tests.support.program_host import Outcome

JAVA_PROGRAMS = Path(__file__).parent / "java"
JAVA_TIMEOUT_S = 120
SERVERS = (pytest.param("apache-kafka", marks=pytest.mark.soak), "milena")
KAFKA_4 = "kafka-4.1"
NEWER_SERVERS = (pytest.param(KAFKA_4, marks=pytest.mark.soak), "milena")
"""For protocols that Kafka 3.9 with ZooKeeper lacks."""
NEWER_SETTINGS = {
    **NEWER_GROUPS,
    **{
        f"group.{kind}.{name}.ms": "50"
        for kind in ("consumer", "share")
        for name in ("heartbeat.interval", "min.heartbeat.interval")
    },
}
"""Members learn quickly what they are to have."""


class Server(Protocol):
    """A running broker."""

    log_dir: Path

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> Self: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


StartServer = Callable[[dict[str, str]], AbstractContextManager[Server]]


@contextmanager
def _apache_kafka(folder: Path, overrides: dict[str, str]) -> Iterator[Server]:
    with apache_kafka(folder, overrides=overrides) as brokers:
        yield brokers[0]


@contextmanager
def _milena(folder: Path, overrides: dict[str, str]) -> Iterator[Server]:
    with BrokerProcess(folder, overrides) as broker:
        yield broker


STARTERS = {"apache-kafka": _apache_kafka, "milena": _milena}


def _newer(kind: str, folder: Path) -> ServerProcess:
    if kind == "milena":
        return BrokerProcess(folder, NEWER_SETTINGS)
    empty_node(folder / "data", features={"share.version": 1})
    return KraftNode(folder, str(folder / "data"), overrides=NEWER_SETTINGS)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Return a server of each kind, started at its first use. They keep running, so that tests can alternate."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(STARTERS[kind](tmp_path_factory.mktemp(kind), {})))


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest, shared_server: Callable[[str], Server]) -> Server:
    """One broker for all tests; each test uses its own topics and groups."""
    with skip_when_unavailable():
        return shared_server(request.param)


@pytest.fixture(scope="session")
def shared_newer_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ServerProcess]]:
    """Return a server of each kind with groups and transactions of Kafka 4, started at its first use."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(_newer(kind, tmp_path_factory.mktemp(kind) / "node")))


@pytest.fixture(scope="session", params=NEWER_SERVERS)
def newer_server(request: pytest.FixtureRequest, shared_newer_server: Callable[[str], ServerProcess]) -> ServerProcess:
    """One broker for all tests of newer protocols; each test uses its own topics and groups."""
    with skip_when_unavailable():
        return shared_newer_server(request.param)


@pytest.fixture(params=SERVERS)
def start_server(request: pytest.FixtureRequest, tmp_path: Path) -> StartServer:
    """Start a broker for this test only, with the given properties."""
    with skip_when_unavailable():
        jars()
    return lambda overrides: STARTERS[request.param](tmp_path / request.param, overrides)


@pytest.fixture(scope="session", params=SERVERS)
def dumped_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder, read-only, of a server that `tests.interop.dumped` has filled, after its clean stop."""
    folder = tmp_path_factory.mktemp(f"dumped-{request.param}")
    with skip_when_unavailable(), STARTERS[request.param](folder, {"offsets.topic.num.partitions": "1"}) as server:
        create_topic(server.bootstrap, dumped.TOPIC, configs=dumped.TOPIC_CONFIGS)
        dumped.fill(server.bootstrap)
        server.stop()
        return server.log_dir


@pytest.fixture(scope="session")
def java_programs() -> Iterator[JavaPrograms]:
    """The JVMs of all programs and tools."""
    with JavaPrograms() as programs:
        yield programs


RunJava = Callable[..., list[str]]


@pytest.fixture(scope="session")
def run_java(java_programs: JavaPrograms) -> RunJava:
    """Run one of the programs in `java/` with the clients of `version`; return the printed lines."""

    def run(program: str, *arguments: object, version: str) -> list[str]:
        source = JAVA_PROGRAMS / f"{program}.java"
        with skip_when_unavailable():
            done = java_programs.run(version, source, *map(str, arguments), timeout_s=JAVA_TIMEOUT_S)
        return output_lines(done)

    return run


RunKafkaTool = Callable[..., list[str]]


@pytest.fixture
def run_kafka_tool(java_programs: JavaPrograms) -> RunKafkaTool:
    """Run one of Kafka's own tools: `run_kafka_tool(main class, argument, ...)`; returns the printed lines."""

    def run(main: str, *arguments: str) -> list[str]:
        with skip_when_unavailable():
            return output_lines(java_programs.run_tool(main, *arguments, timeout_s=JAVA_TIMEOUT_S))

    return run


def output_lines(done: Outcome) -> list[str]:
    """Return a program's output; shows its errors if it failed."""
    assert done.status == 0, f"exit code {done.status}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout.splitlines()


def create_topic(bootstrap: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    """Create a topic; return when it can be used."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=configs or {})])[name].result()
