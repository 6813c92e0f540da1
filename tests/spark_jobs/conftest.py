"""One broker and one Spark for all tests of the pipeline: each takes seconds to start.

Tests share both but no topic: `Topics` generates a unique name for each. Spark runs in another time zone than UTC, so
that a test shows a time without a zone that is taken for a local one. With TEST_BROKER=apache in the environment the
broker is a real Apache Kafka: a test that passes there and fails with Milena shows a bug in Milena.
"""

import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton import clients, runner
from spark_jobs.skeleton.clients import source_options
from spark_jobs.skeleton.database import Database
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.progress import Batch, NewBatches
from spark_jobs.skeleton.session import spark_session
from tests.spark_jobs.hanging import end_with_stacks
from tests.spark_jobs.plain_results import Row
from tests.spark_jobs.quick_drivers import quick_settings, worker_environment
from tests.spark_jobs.registry import RunningRegistry
from tests.spark_jobs.warm_workers import warm_workers
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.jdbc_driver import sqlite_jar
from tests.support.parts import skip_when_unavailable
from tests.support.spread import WITHOUT_SPARK

SPREAD = "tests/support/spread.py"
_TIMEOUT_S = 30
_MEMORY = Path("/dev/shm")
FAR_FROM_UTC = "America/New_York"
_BROKER_VARIABLE = "TEST_BROKER"
# A folder with a file of this name has no space for others: see the Java class.
DISK_IS_FULL = ".disk-is-full"

# pyspark closes the socket of a collect() only by garbage collection.
PYSPARK_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(WITHOUT_SPARK) and "spark" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid} starts Spark: remove its file from WITHOUT_SPARK in {SPREAD}")
        if item.get_closest_marker("spark"):
            item.add_marker(PYSPARK_SOCKETS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report where Spark is when a test has run out of time, and end it: every later test would wait as long."""
    report = yield
    is_over_time = call.excinfo is not None and str(call.excinfo.value).startswith("Timeout")
    gateway: Any = SparkContext._gateway
    if is_over_time and gateway is not None:
        report.sections.append(("Spark", end_with_stacks(gateway.proc.pid)))
    return report


@dataclass(frozen=True)
class Sent:
    """A record for `Topics.send`; timestamp 0 is the time of sending, partition -1 that of the key."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class Topics:
    """Topics of one broker, created, filled and read without Spark."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = {"bootstrap.servers": bootstrap}
        self._numbers = itertools.count()

    def new_name(self, stem: str) -> str:
        return f"{stem}-{next(self._numbers)}"

    def create(self, stem: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Create a topic without retention; its name starts with `stem`."""
        name = self.new_name(stem)
        self.create_named(name, partitions, config)
        return name

    def create_named(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        request = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **(config or {})})
        admin = self._admin()
        admin.create_topics([request], operation_timeout=_TIMEOUT_S)[name].result()

    def grow(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    def _admin(self) -> AdminClient:
        """Return a new client: a shared one would outlive the broker and continue to reconnect.

        Keep it until its response has arrived.
        """
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def send(self, topic: str, records: Sequence[Sent], options: dict[str, str] | None = None) -> None:
        """Store `records`, in order per partition. Raises KafkaException if one is rejected."""
        # One request at a time keeps the order. An idempotent producer would wait half a second for its id.
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "max.in.flight": 1, "linger.ms": 5, **(options or {})}
        )
        errors: list[object] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=record.headers,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(_TIMEOUT_S) == 0
        if errors:
            raise KafkaException(errors[0])

    def read(self, topic: str) -> list[Message]:
        """Return all records in `topic`, ordered by partition and offset. Raises KafkaException."""
        settings = {"group.id": "reader", "enable.partition.eof": True, "fetch.wait.max.ms": 5}
        consumer = Consumer({**self.client, **settings})
        try:
            partitions = sorted(consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions)
            assert partitions, f"{topic} does not exist"
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            messages: list[Message] = []
            open_partitions = set(partitions)
            deadline = time.monotonic() + _TIMEOUT_S
            while open_partitions:
                assert time.monotonic() < deadline, f"no end of {topic} in partitions {sorted(open_partitions)}"
                message = consumer.poll(0.2)  # many at a time would wait for more until the timeout
                if message is None:
                    continue
                if message.error() is None:
                    messages.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(message.error())
        finally:
            consumer.close()
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))


class KafkaReader:
    """Spark's Kafka source, batch and stream, with the broker's address and the fetches of the jobs."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap

    def batch(self, options: Mapping[str, object]) -> DataFrame:
        return self._spark.read.format("kafka").options(**self._all(options)).load()

    def stream(self, options: Mapping[str, object]) -> DataFrame:
        return self._spark.readStream.format("kafka").options(**self._all(options)).load()

    def _all(self, options: Mapping[str, object]) -> dict[str, str]:
        given = {key: str(value) for key, value in options.items()}
        return {
            **source_options(self._bootstrap, {}),
            "fetchOffset.retryIntervalMs": "10",
            **given,
        }  # the default is a second


class JobRunner:
    """Runs jobs in the shared session to the end of their input, with a checkpoint below `folder`."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self._spark = spark
        self._topics = topics
        self.folder = folder

    def parse(self, job: Job[Any], *flags: str) -> Any:
        """Return the parameters of a command line; flags of the same name replace these defaults."""
        defaults = ["--bootstrap-servers", self._topics.bootstrap, "--trigger", "availableNow"]
        return job.parse([*defaults, "--checkpoint", str(self.folder / "checkpoint"), *flags])

    def run(self, job: Job[Any], *flags: str) -> list[Batch]:
        """Run the queries to their end; return the batches of all of them. Raises what a query raises."""
        return self.finish(self.start(job, *flags))

    def start(self, job: Job[Any], *flags: str) -> list[StreamingQuery]:
        """Start the queries, so that others can run at the same time."""
        return job.build(self._spark, self.parse(job, *flags))

    def finish(self, queries: Sequence[StreamingQuery]) -> list[Batch]:
        """Wait for the end of queries; return the batches of all of them. Raises what a query raises."""
        for query in queries:
            query.awaitTermination()
        new_batches = NewBatches()
        return [batch for query in queries for batch in new_batches.of(query)]

    def supervise(self, job: Job[Any], *flags: str) -> int:
        """Run the queries as the job's process would, with all reports; return the exit code."""
        return self.supervise_together(job, [flags])

    def supervise_together(self, job: Job[Any], command_lines: Sequence[Sequence[str]]) -> int:
        """Run the queries of several command lines at the same time, as `supervise` does; return the exit code."""
        parameters = [runner.with_start(self._spark, self.parse(job, *flags)) for flags in command_lines]
        watchers = [watcher for each in parameters for watcher in runner.observers(each)]
        try:
            return runner.supervise([it for each in parameters for it in job.build(self._spark, each)], watchers)
        finally:
            for watcher in watchers:
                watcher.close()


def begin_batch(checkpoint: Path, number: int) -> None:
    """Write into a checkpoint what Spark writes before the batch of this number."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"7a6fc830-e279-4468-a6d3-9834fa785581"}')
    (checkpoint / "offsets" / str(number)).touch()


class KeptSession:
    """The shared session for a job's `main`, which would stop it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def stop(self) -> None: ...

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)


def records(messages: Sequence[Message]) -> list[tuple[str | None, str | None]]:
    """Return key and value of each message as text."""

    def text(content: bytes | None) -> str | None:
        return None if content is None else content.decode()

    return [(text(message.key()), text(message.value())) for message in messages]


def last_values(messages: Sequence[Message]) -> dict[str | None, str | None]:
    """Return the last value of each key, as after compaction."""
    return dict(records(messages))


def record_ids(messages: Sequence[Message]) -> list[str]:
    """Return the last header `record-id` of each message."""
    return [dict(message.headers())["record-id"].decode() for message in messages]


def lines(*values: str, partition: int = 0) -> list[Sent]:
    return [Sent(value.encode(), partition=partition) for value in values]


def rows(*values: Row) -> list[Sent]:
    """Return a record for each row."""
    return [
        Sent(None if value is None else value.encode(), None if key is None else key.encode(), 0, time_ms)
        for key, value, time_ms in values
    ]


def objects(*values: Mapping[str, object], key: str | None = None) -> list[Sent]:
    """Return a record for each object; `key` is the field that is the record's key."""
    return [
        Sent(json.dumps(value).encode(), None if key is None else str(value[key]).encode(), -1 if key else 0)
        for value in values
    ]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker")
    if os.environ.get(_BROKER_VARIABLE) == "apache":
        with skip_when_unavailable(), apache_kafka(folder) as brokers:
            yield brokers[0].bootstrap
    else:
        with BrokerProcess(folder) as broker:
            yield broker.bootstrap


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


def remember_java_names(kind: type[JVMView] | type[JavaPackage]) -> None:
    """Make pyspark's bridge look up a Java package or class once.

    For each part of a name such as `org.apache.spark.sql.functions` the JVM searches all jars for a class: without this
    the searches take almost half of its CPU time.
    """
    look_up = kind.__getattr__

    def look_up_once(self: JVMView | JavaPackage, name: str) -> object:
        found = look_up(self, name)
        if isinstance(found, JavaPackage | JavaClass):
            vars(self)[name] = found
        return found

    kind.__getattr__ = look_up_once


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    for kind in (JVMView, JavaPackage):
        remember_java_names(kind)
    with skip_when_unavailable():
        settings = {**quick_settings(), "spark.jars": str(sqlite_jar())}
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", FAR_FROM_UTC)  # of the JVM and its Python workers
            for name, value in {**worker_environment(), **running.enter_context(warm_workers())}.items():
                patch.setenv(name, value)
            session = spark_session("tests", settings)
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def empty_derby(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a database without tables, to copy: to create one takes longer than most tests of it."""
    folder = tmp_path_factory.mktemp("derby") / "empty"
    Database(spark, f"jdbc:derby:{folder};create=true").execute([])
    driver: Any = spark.sparkContext._jvm.java.sql.DriverManager
    with pytest.raises(Py4JJavaError, match="08006"):  # how Derby reports that it has closed the database
        driver.getConnection(f"jdbc:derby:{folder};shutdown=true")
    return folder


@pytest.fixture
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the `main` of jobs use the shared session."""
    monkeypatch.setattr(runner, "spark_session", lambda _app_id, _settings: KeptSession(spark))


@pytest.fixture
def job_runner(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobRunner]:
    """Checkpoints are in memory where there is one: Spark syncs dozens of small files for each batch.

    The session may keep a job's clients for longer than its brokers run. These log nothing into the output of others.
    """
    monkeypatch.setattr(clients, "_LOG_LEVEL", "2")
    folder = Path(tempfile.mkdtemp(dir=_MEMORY)) if _MEMORY.is_dir() else tmp_path / "job"
    yield JobRunner(spark, topics, folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def registry() -> Iterator[RunningRegistry]:
    with RunningRegistry() as running:
        yield running


@pytest.fixture
def registry_client(registry: RunningRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture(scope="session")
def kafka(spark: SparkSession, bootstrap: str) -> KafkaReader:
    return KafkaReader(spark, bootstrap)
