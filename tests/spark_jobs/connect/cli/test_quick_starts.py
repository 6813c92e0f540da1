"""The quick starts of Kafka Connect, and the books' chapter on data pipelines, typed word by word."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark_jobs.connect.cli.typed import KafkaFolder
from tests.spark_jobs.elasticsearch import Index
from tests.spark_jobs.quick_drivers import job_environment, quick_settings
from tests.support.broker import BrokerProcess
from tests.support.coordination import coordination_in_memory
from tests.support.database_servers import postgresql
from tests.support.jdbc_driver import sqlite_jar
from tests.support.parts import skip_when_unavailable
from tests.support.ports import free_port
from tests.support.waiting import wait_until

JOB_S = 240.0
TOOL_S = 2.0
TOPICS_OF_GROUP = ("config", "offset", "status")
TOPICS = "bin/kafka-topics.sh --bootstrap-server localhost:9092 --list"
ENVELOPE = '{"schema":{"type":"string","optional":false},"payload":"%s"}\n'
CONSUMER = "bin/kafka-console-consumer.sh"
WITH_BROKERS = f"{CONSUMER} --bootstrap-server localhost:9092 --topic connect-test --from-beginning"
QUICK_STARTS = {
    "0.9": (None, f"{CONSUMER} --zookeeper localhost:2181 --topic connect-test --from-beginning"),
    "2.8": (None, WITH_BROKERS),
    "3.9": ('echo "plugin.path=libs/connect-file-3.9.1.jar" >> config/connect-standalone.properties', WITH_BROKERS),
}
"""By version: what is typed before the start of the worker, and the consumer."""
STANDALONE = (
    "bin/connect-standalone.sh config/connect-standalone.properties config/connect-file-source.properties "
    "config/connect-file-sink.properties"
)
DISTRIBUTED = "bin/connect-distributed.sh config/connect-distributed.properties"


class Servers(NamedTuple):
    broker_port: int
    zookeeper_port: int


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with coordination_in_memory() as zookeeper:
        settings = {"offsets.topic.num.partitions": "1", "zookeeper.connect": zookeeper.connect}
        with BrokerProcess(tmp_path_factory.mktemp("servers"), settings) as broker:
            yield Servers(broker.port, zookeeper.port)


@pytest.fixture
def kafka(servers: Servers, tmp_path: Path) -> KafkaFolder:
    return KafkaFolder(tmp_path / "kafka", {9092: servers.broker_port, 2181: servers.zookeeper_port, 8083: free_port()})


@pytest.mark.parametrize("version", QUICK_STARTS)
def test_the_quick_start_of_a_version_works_as_it_is_typed(kafka: KafkaFolder, version: str) -> None:
    before, consumer = QUICK_STARTS[version]
    sink = kafka.folder / "test.sink.txt"

    def shows(text: str) -> None:
        wait_until(lambda: sink.exists() and sink.read_text() == text, f"{text!r} in the file of the sink")

    # A topic for each: in the quick starts, the broker of each is a new one.
    topic = f"connect-test-{version}"
    for name in ("source", "sink"):
        file = kafka.folder / "config" / f"connect-file-{name}.properties"
        file.write_text(file.read_text().replace("connect-test", topic))
    consumer = consumer.replace("connect-test", topic)
    if before is not None:
        kafka.type(before)
    kafka.type('echo -e "foo\\nbar" > test.txt')
    with kafka.in_background(STANDALONE):
        shows("foo\nbar\n")
        assert kafka.type(f"{consumer} --max-messages 2") == ENVELOPE % "foo" + ENVELOPE % "bar"
        kafka.type('echo "Another line" >> test.txt')
        shows("foo\nbar\nAnother line\n")
        assert kafka.type(f"{consumer} --max-messages 3").endswith(ENVELOPE % "Another line")


def test_the_books_workers_copy_the_configuration_of_a_broker(kafka: KafkaFolder) -> None:
    source = (kafka.folder / "config" / "server.properties").read_text()
    copy = kafka.folder / "copy-of-server-properties"
    with kafka.in_background(DISTRIBUTED):
        wait_for_worker(kafka)
        assert json.loads(kafka.type("curl http://localhost:8083/"))["version"] == "3.9.1"
        plugins = json.loads(kafka.type("curl http://localhost:8083/connector-plugins"))
        assert {"org.apache.kafka.connect.file.FileStreamSinkConnector"} <= {each["class"] for each in plugins}
        created = post(
            kafka,
            '{"name":"load-kafka-config", "config":{"connector.class":"FileStreamSource",'
            '"file":"config/server.properties","topic":"kafka-config-topic"}}',
        )
        assert created["config"]["file"] == "config/server.properties"
        assert kafka.type(
            "bin/kafka-console-consumer.sh --new-consumer --bootstrap-server=localhost:9092 "
            "--topic kafka-config-topic --from-beginning --max-messages 1"
        ).startswith('{"schema":{"type":"string","optional":false},"payload":"#')
        post(
            kafka,
            '{"name":"dump-kafka-config", "config":{"connector.class":"FileStreamSink",'
            '"file":"copy-of-server-properties","topics":"kafka-config-topic"}}',
        )
        wait_until(lambda: copy.exists() and copy.read_text() == source, "the copy")
        kafka.type("curl -X DELETE http://localhost:8083/connectors/dump-kafka-config")
        assert json.loads(kafka.type("curl http://localhost:8083/connectors")) == ["load-kafka-config"]


def group_settings(group: str) -> dict[str, str]:
    """Return the settings of a group that shares nothing with another one."""
    return {"group.id": group, **{f"{each}.storage.topic": f"{group}-{each}" for each in TOPICS_OF_GROUP}}


def wait_for_worker(kafka: KafkaFolder) -> None:
    wait_until(lambda: '"healthy"' in kafka.type("curl -s http://localhost:8083/health || true"), "the worker")


def post(kafka: KafkaFolder, connector: str) -> Any:
    """Create a connector as the book does; return the response."""
    header = '--header "content-Type:application/json"'
    return json.loads(kafka.type(f"echo '{connector}' | curl -X POST -d @- http://localhost:8083/connectors {header}"))


class Database(NamedTuple):
    url: str
    driver: Path


LOGINS = (
    "CREATE TABLE login (username VARCHAR(30), login_time TIMESTAMP NOT NULL)",
    "INSERT INTO login VALUES ('gwenshap', CURRENT_TIMESTAMP)",
    "INSERT INTO login VALUES ('tpalino', CURRENT_TIMESTAMP)",
)


@contextmanager
def sqlite(folder: Path) -> Iterator[Database]:
    with closing(sqlite3.connect(folder / "test.db", isolation_level=None)) as database:
        for statement in LOGINS:
            database.execute(statement)
    yield Database(f"jdbc:sqlite:{folder / 'test.db'}", sqlite_jar())


@contextmanager
def postgres(_folder: Path) -> Iterator[Database]:
    with postgresql() as server:
        server.run("; ".join(LOGINS))
        yield Database(server.url, server.driver)


DATABASES = {"sqlite": sqlite, "postgresql": postgres}


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", DATABASES)
def test_the_books_logins_reach_elasticsearch(kafka: KafkaFolder, tmp_path: Path, name: str) -> None:
    prefix = f"{name}."
    with skip_when_unavailable(), DATABASES[name](tmp_path) as database, Index.serving() as index:
        began_ms = time.time_ns() // 1_000_000
        worker_settings = {
            **group_settings(name),
            "spark.checkpoint.folder": str(tmp_path / "checkpoints"), "task.shutdown.graceful.timeout.ms": "30000",
            "spark.conf.spark.jars": str(database.driver),
            **{f"spark.conf.{key}": value for key, value in quick_settings().items()},
        }  # fmt: skip
        kafka.append("connect-distributed.properties", worker_settings)
        with kafka.in_background(DISTRIBUTED, job_environment()):
            wait_for_worker(kafka)
            for plugin in ("JdbcSource", "ElasticsearchSink"):
                found = json.loads(
                    kafka.type(
                        f'curl -X PUT -d "{{}}" localhost:8083/connector-plugins/{plugin}/config/validate '
                        '--header "content-Type:application/json"'
                    )
                )
                assert "connection.url" in {each["definition"]["name"] for each in found["configs"]}
            post(
                kafka,
                f'{{"name":"{name}-login-connector", "config":{{"connector.class":"JdbcSourceConnector",'
                f'"connection.url":"{database.url}","mode":"timestamp","table.whitelist":"login",'
                f'"validate.non.null":false,"timestamp.column.name":"login_time","topic.prefix":"{prefix}"}}}}',
            )
            wait_until(lambda: prefix + "login" in kafka.type(TOPICS), "the topic", timeout_s=JOB_S, interval_s=TOOL_S)
            lines = kafka.type(
                f"bin/kafka-console-consumer.sh --bootstrap-server=localhost:9092 --topic {prefix}login "
                "--from-beginning --max-messages 2"
            ).splitlines()
            for line, user in zip(sorted(lines), ("gwenshap", "tpalino"), strict=True):
                record = json.loads(line)
                assert [each["field"] for each in record["schema"]["fields"]] == ["username", "login_time"]
                assert record["schema"]["fields"][1]["name"] == "org.apache.kafka.connect.data.Timestamp"
                assert record["payload"]["username"] == user
                assert abs(record["payload"]["login_time"] - began_ms) < 120_000
            post(
                kafka,
                f'{{"name":"{name}-elastic-login-connector", "config":{{"connector.class":"ElasticsearchSinkConnector",'
                f'"connection.url":"{index.url}","type.name":"{name}-data","topics":"{prefix}login","key.ignore":true}}}}',
            )
            wait_until(lambda: len(index.documents) == 2, "the documents", timeout_s=JOB_S)
        assert {index_name for index_name, _ in index.documents} == {prefix + "login"}
        assert {each["username"] for each in index.documents.values()} == {"gwenshap", "tpalino"}
        assert sorted(key for _, key in index.documents) == [f"{prefix}login+0+{offset}" for offset in (0, 1)]
