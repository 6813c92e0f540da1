"""A real Apache Kafka 3.9.1 in ZooKeeper mode: fetched from Maven Central, run as processes.

Owns: the broker's command line and server.properties. The broker has Kafka's defaults except for settings that one
machine without replication needs; callers override any property.

    python -m tests.support.apache_kafka --port 9092

starts ZooKeeper and one broker (`--brokers 3`: three, on consecutive ports) and serves until interrupted.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.class_archive import archive_options
from tests.support.ivy import CACHE, Library, fetch
from tests.support.java import SHORT_LIVED, compiled, java_command
from tests.support.metadata_probe import is_serving
from tests.support.processes import ServerProcess
from tests.support.program_host import Outcome, ProgramHost
from tests.support.zookeeper import ZooKeeperProcess

VERSION = "3.9.1"
KRAFT_VERSION = "4.1.0"
LOGGING_LIBRARY = Library("org.slf4j", "slf4j-reload4j", "1.7.36")
LIBRARIES = (
    Library("org.apache.kafka", "kafka_2.13", VERSION),
    Library("org.apache.kafka", "kafka-tools", VERSION),
    LOGGING_LIBRARY,
)
# Versions of the Java clients in tests. One list, so that all can be fetched ahead.
CLIENT_VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1", "2.1.1", "2.8.2", VERSION, "4.0.0", "4.1.0")
STREAMS_VERSIONS = ("2.8.2", VERSION, "4.1.0")
# Options for a quick start and small memory in tests. The benchmark passes its own options.
TEST_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TOOL_JVM_OPTIONS = ("-Xmx256m", *SHORT_LIVED)
COMPILE_TIMEOUT_S = 120.0
LOGGING = Path(__file__).with_name("log4j.properties")


Libraries = tuple[str, Sequence[Library]]
"""The name of a set and what it is made for."""
_BROKER: Libraries = (f"apache-kafka-{VERSION}", LIBRARIES)
_KRAFT: Libraries = (
    f"apache-kafka-{KRAFT_VERSION}",
    (Library("org.apache.kafka", "kafka_2.13", KRAFT_VERSION), LOGGING_LIBRARY),
)
_MIRROR_MAKER: Libraries = (
    f"connect-mirror-{VERSION}",
    (
        Library("org.apache.kafka", "connect-mirror", VERSION),
        Library("org.apache.kafka", "connect-mirror-client", VERSION),
        LOGGING_LIBRARY,
    ),
)
_FILE_CONNECTORS: Libraries = (f"connect-file-{VERSION}", (Library("org.apache.kafka", "connect-file", VERSION),))


def _clients(version: str) -> Libraries:
    if version == VERSION:
        return _BROKER
    # The consumer of 0.8 was still a part of the broker's library.
    module = "kafka_2.11" if version.startswith("0.8.") else "kafka-clients"
    return f"{module}-{version}", (Library("org.apache.kafka", module, version), LOGGING_LIBRARY)


def _streams(version: str) -> Libraries:
    libraries = [Library("org.apache.kafka", module, version) for module in ("kafka-streams", "kafka-clients")]
    return f"kafka-streams-{version}", (*libraries, LOGGING_LIBRARY)


def library_sets() -> dict[str, Sequence[Library]]:
    """Return every set of libraries that this module fetches."""
    return dict(
        [
            _BROKER,
            _KRAFT,
            *map(_clients, CLIENT_VERSIONS),
            *map(_streams, STREAMS_VERSIONS),
            _MIRROR_MAKER,
            _FILE_CONNECTORS,
        ]
    )


def sets_of_every_run() -> list[str]:
    """Return the names of the sets that a run without soak tests needs; the first is the broker's."""
    sets = (_BROKER, _KRAFT, *map(_clients, CLIENT_VERSIONS), _streams(VERSION))
    return list(dict.fromkeys(name for name, _ in sets))


def jars() -> Path:
    """The folder of Kafka's jars, fetched on first use."""
    return fetch(*_BROKER)


def kraft_jars() -> Path:
    """The folder of the jars of a Kafka without ZooKeeper."""
    return fetch(*_KRAFT)


def client_jars(version: str) -> Path:
    """The folder with Kafka's Java clients of one of `CLIENT_VERSIONS`."""
    return fetch(*_clients(version))


def streams_jars(version: str) -> Path:
    """The folder with Kafka Streams of one of `STREAMS_VERSIONS`."""
    return fetch(*_streams(version))


def mirror_maker_jars() -> Path:
    """The folder of MirrorMaker 2's jars, with its clients and the worker that it contains."""
    return fetch(*_MIRROR_MAKER)


def file_connectors_jar() -> Path:
    """The jar of Connect's file connectors, which a worker finds by its `plugin.path`."""
    return fetch(*_FILE_CONNECTORS) / f"connect-file-{VERSION}.jar"


def mirror_maker_command(*arguments: str) -> list[str]:
    """The command line of `connect-mirror-maker`."""
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return kafka_java_command([mirror_maker_jars() / "*"], main, arguments, options=TOOL_JVM_OPTIONS, log_level="WARN")


def mirror_client_command(source: Path, *arguments: str) -> list[str]:
    """The command line of a program, a single `.java` file, that uses MirrorMaker 2's clients."""
    return _program_command(mirror_maker_jars(), source, arguments)


def client_command(version: str, source: Path, *arguments: str) -> list[str]:
    """The command line of a program, a single `.java` file, that uses the clients of `version`."""
    return _program_command(client_jars(version), source, arguments)


def streams_command(version: str, source: Path, *further_sources: Path) -> list[str]:
    """The command line of a program, a single `.java` file, that uses Kafka Streams of `version`.

    Args:
        further_sources: programs whose classes it can load.
    """
    libraries = streams_jars(version)
    folder = libraries.with_name("classes")
    with ProgramHost([], CACHE / "classes", options=TOOL_JVM_OPTIONS) as compiler:

        def javac(arguments: Sequence[str]) -> tuple[int, str]:
            status, _, complaints = compiler.run("javac", *arguments, timeout_s=COMPILE_TIMEOUT_S)
            return status, complaints

        classes = [compiled(each, libraries, folder, javac) for each in (source, *further_sources)]
    return kafka_java_command([libraries / "*", *classes], source.stem, (), options=TOOL_JVM_OPTIONS, log_level="WARN")


def _program_command(libraries: Path, source: Path, arguments: Sequence[str]) -> list[str]:
    classpath = [libraries / "*", compiled(source, libraries, libraries.with_name("classes"))]
    return kafka_java_command(classpath, source.stem, arguments, options=TOOL_JVM_OPTIONS, log_level="WARN")


def tool_command(main: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's own tools, for a JVM of its own."""
    return kafka_java_command([jars() / "*"], main, arguments, options=TOOL_JVM_OPTIONS, log_level="WARN")


class JavaPrograms:
    """Programs that use Kafka's Java clients, and Kafka's own tools: those of one version share a JVM.

    A context manager that ends the JVMs.
    """

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, Path | None], ProgramHost] = {}
        self._one_more_host = threading.Lock()

    def run(self, version: str, source: Path, *arguments: str, timeout_s: float) -> Outcome:
        """Run a program, a single `.java` file, with the clients of `version`. Raises UnavailableError."""
        libraries = client_jars(version)
        classes = compiled(source, libraries, libraries.with_name("classes"), self._javac)
        return self._host(version, None).run(source.stem, *arguments, timeout_s=timeout_s, classes=classes)

    def run_tool(
        self, main: str, *arguments: str, timeout_s: float, folder: Path | None = None, stdin: bytes = b""
    ) -> Outcome:
        """Run one of Kafka's own tools, in `folder` if there is one. Raises UnavailableError."""
        return self._host(VERSION, folder).run(main, *arguments, timeout_s=timeout_s, stdin=stdin)

    def _javac(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Compile in one JVM for all versions: its second program takes a fifth of the time of the first."""
        status, _, complaints = self._host(VERSION, None).run("javac", *arguments, timeout_s=COMPILE_TIMEOUT_S)
        return status, complaints

    def _host(self, version: str, folder: Path | None) -> ProgramHost:
        with self._one_more_host:
            if (version, folder) not in self._hosts:
                self._hosts[version, folder] = ProgramHost(
                    [client_jars(version) / "*"],
                    CACHE / "classes",
                    options=TOOL_JVM_OPTIONS,
                    properties=_properties(log_level="WARN"),
                    folder=folder,
                )
            return self._hosts[version, folder]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for host in self._hosts.values():
            host.close()


def _properties(*, log_level: str) -> dict[str, str]:
    return {"log4j.configuration": LOGGING.as_uri(), "log.level": log_level, "java.awt.headless": "true"}


def kafka_java_command(
    classpath: Sequence[Path], main: str, arguments: Sequence[str], *, options: Sequence[str], log_level: str
) -> list[str]:
    """Return the command line of a program of Kafka, which logs to standard error."""
    return java_command(classpath, main, arguments, options=options, properties=_properties(log_level=log_level))


class ApacheKafkaProcess(ServerProcess):
    """One broker on 127.0.0.1 with all files below `folder`; ready when it sees `broker_count` brokers."""

    def __init__(
        self,
        folder: Path,
        zookeeper_connect: str,
        *,
        broker_id: int = 0,
        port: int = 0,
        broker_count: int = 1,
        overrides: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] | None = None,
        log_level: str = "WARN",
    ) -> None:
        """`jvm_options` are those of a quick start if there are none.

        `{port}` in an override is the broker's port, 0 until it is known.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.log_dir = folder / "data"
        settings = folder / "server.properties"
        replication_factor = str(min(broker_count, 3))
        options = (*TEST_JVM_OPTIONS, *_archive_options()) if jvm_options is None else jvm_options

        def properties(port: int) -> Mapping[str, str]:
            return {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "zookeeper.connect": zookeeper_connect,
                "log.dirs": str(self.log_dir),
                "offsets.topic.replication.factor": replication_factor,
                "transaction.state.log.replication.factor": replication_factor,
                "transaction.state.log.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                "group.min.session.timeout.ms": "1000",
                **{key: value.replace("{port}", str(port)) for key, value in (overrides or {}).items()},
            }

        super().__init__(
            f"Apache Kafka {broker_id}",
            kafka_java_command([jars() / "*"], "kafka.Kafka", [str(settings)], options=options, log_level=log_level),
            folder / "kafka.log",
            lambda port: is_serving(port, broker_count),
            settings=settings,
            properties=properties,
            port=port,
        )


@cache
def _archive_options() -> tuple[str, ...]:
    """Return the options for an archive of the classes that a starting broker has loaded."""

    def run(option: str) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            ZooKeeperProcess(Path(folder) / "zookeeper") as zookeeper,
            ApacheKafkaProcess(Path(folder) / "broker", zookeeper.connect, jvm_options=(*TEST_JVM_OPTIONS, option)),
        ):
            pass

    return tuple(archive_options(f"apache-kafka-{VERSION}", sorted(jars().glob("*.jar")), CACHE / "archives", run))


@contextmanager
def apache_kafka(
    folder: Path,
    *,
    broker_count: int = 1,
    first_port: int | None = None,
    overrides: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] | None = None,
    log_level: str = "WARN",
) -> Iterator[list[ApacheKafkaProcess]]:
    """Run ZooKeeper and that many brokers: all are ready on entry and stopped on exit."""
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeperProcess(folder / "zookeeper"))
        brokers = [
            ApacheKafkaProcess(
                folder / f"broker-{broker_id}",
                zookeeper.connect,
                broker_id=broker_id,
                port=first_port + broker_id if first_port else 0,
                broker_count=broker_count,
                overrides=overrides,
                jvm_options=jvm_options,
                log_level=log_level,
            )
            for broker_id in range(broker_count)
        ]
        for broker in brokers:
            running.callback(broker.stop)
            broker.spawn()
        for broker in brokers:
            broker.wait_until_ready()
        yield brokers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.apache_kafka", description=__doc__)
    parser.add_argument("--port", type=int, help="port of the first broker (default: any free one)")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers (default: 1)")
    parser.add_argument("--folder", type=Path, help="where data and logs go (default: a temporary folder)")
    parser.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="a line of server.properties"
    )
    options = parser.parse_args()
    overrides = dict(line.split("=", 1) for line in options.property)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as running:
        folder = options.folder or Path(running.enter_context(tempfile.TemporaryDirectory(prefix="apache-kafka-")))
        try:
            brokers = running.enter_context(
                apache_kafka(folder, broker_count=options.brokers, first_port=options.port, overrides=overrides)
            )
            print(f"Apache Kafka {VERSION} serves at {','.join(broker.bootstrap for broker in brokers)}", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            # The brokers stop in order, before their ZooKeeper; a second Ctrl-C must not leave any running.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("stopping", flush=True)


if __name__ == "__main__":
    main()
