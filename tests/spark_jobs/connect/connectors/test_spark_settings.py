"""Settings of Connect become flags of Spark jobs; what a job cannot do is refused by the name of the setting."""

import importlib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from base import properties
from spark_jobs.connect.base.api import Connector, JobTaskContext, SinkConnector
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.connectors.spark_elasticsearch import ElasticsearchSinkConnector
from spark_jobs.connect.connectors.spark_jdbc_sink import JdbcSinkConnector
from spark_jobs.connect.connectors.spark_jdbc_source import JdbcSourceConnector
from spark_jobs.connect.connectors.spark_lake import HdfsSinkConnector
from spark_jobs.connect.connectors.spark_settings import Command, properties_text, safe_name
from spark_jobs.connect.connectors.spark_task import SparkTask
from spark_jobs.connect.herders.validation import validate
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from tests.spark_jobs.connect.contexts import start_connector

JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
PLAIN: Mapping[str, str] = {
    "name": "c", "key.converter": STRING, "value.converter": JSON, "value.converter.schemas.enable": "false",
}  # fmt: skip
WORKER: Mapping[str, str] = {"offset.storage.file.filename": "/var/connect.offsets"}

SOURCE: Mapping[str, str] = {
    **PLAIN, "connector.class": "JdbcSource", "connection.url": "jdbc:sqlite:db", "mode": "incrementing",
    "incrementing.column.name": "id", "table.whitelist": "a,b,c", "topic.prefix": "db.",
}  # fmt: skip
SINK: Mapping[str, str] = {
    **PLAIN, "connector.class": "JdbcSink", "topics": "a", "connection.url": "jdbc:sqlite:db", "insert.mode": "upsert",
    "pk.mode": "record_value", "pk.fields": "id",
}  # fmt: skip
SEARCH: Mapping[str, str] = {
    **PLAIN, "connector.class": "ElasticsearchSink", "topics": "a,b", "connection.url": "http://h:9200",
}  # fmt: skip
LAKE: Mapping[str, str] = {
    **PLAIN, "connector.class": "HdfsSink", "topics": "a,b", "store.url": "hdfs://h:9000", "flush.size": "1000",
}  # fmt: skip


def problems(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return all errors of a configuration by setting."""
    kind = Plugins().connector(config["connector.class"])
    found = kind.definition.validate(config).errors
    return found or kind().validate(config)


def commands(
    kind: type[Connector], config: Mapping[str, str], client: Mapping[str, str] | None = None, **worker: str
) -> list[Command]:
    """Return the commands of the tasks of a connector."""
    assert problems(config) == {}
    settings = {name.replace("_", "."): value for name, value in worker.items()}
    found = []
    for number, each in enumerate(start_connector(kind, config).task_configs(int(config.get("tasks.max", "1")))):
        task: Any = kind.task()
        assert isinstance(task, SparkTask)
        servers = {"bootstrap.servers": "h:9092", **(client or {})}
        task.context = JobTaskContext(TaskId("c", number), servers, {**WORKER, **settings})
        found.append(task.command({**each, "name": "c"}))
    return found


def value(command: Command, flag: str) -> str | None:
    return next((after for before, after in pairwise(command.flags) if before == flag), None)


def test_each_table_belongs_to_one_task() -> None:
    for most, expected in ((1, ["a,b,c"]), (2, ["a,c", "b"]), (5, ["a", "b", "c"])):
        found = commands(JdbcSourceConnector, {**SOURCE, "tasks.max": str(most)})
        assert [value(each, "--tables") for each in found] == expected
        assert {value(each, "--checkpoint") for each in found} == {"/var/connect.offsets.checkpoints/c"}


def test_a_source_gets_the_flags_of_its_mode_and_format() -> None:
    (command,) = commands(JdbcSourceConnector, SOURCE)
    assert command.job == "jdbc_source"
    assert (value(command, "--mode"), value(command, "--column")) == ("incrementing", "id")
    assert (value(command, "--topic-prefix"), value(command, "--interval-seconds")) == ("db.", "5")
    assert "--not-null" in command.flags
    assert "--auto-create-topics" in command.flags
    assert not {"--envelope", "--create-topics"} & set(command.flags)
    changed = {
        "mode": "bulk", "value.converter.schemas.enable": "true", "poll.interval.ms": "60000",
        "topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "2",
    }  # fmt: skip
    (command,) = commands(JdbcSourceConnector, {**SOURCE, **changed})
    assert {"--envelope", "--create-topics"} < set(command.flags)
    assert not {"--column", "--not-null", "--auto-create-topics"} & set(command.flags)
    assert (value(command, "--partitions"), value(command, "--replication-factor")) == ("3", "2")
    assert value(command, "--interval-seconds") == "60"


def test_logins_are_in_files_and_on_no_command_line() -> None:
    login = {"connection.user": "ann", "connection.password": r"s=e c\r#!:t", "connection.sslmode": "require"}
    client = {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'x required password="hidden";'}
    for kind, config in ((JdbcSourceConnector, SOURCE), (JdbcSinkConnector, SINK)):
        (command,) = commands(kind, {**config, **login}, client)
        assert properties.parse(command.secrets["--jdbc-config"]) == {
            "user": "ann", "password": r"s=e c\r#!:t", "sslmode": "require",
        }  # fmt: skip
        assert properties.parse(command.secrets["--kafka-config"]) == client
        assert not any(secret in " ".join(command.flags) for secret in ("s=e", "hidden", "ann"))
    login = {"connection.username": "ann", "connection.password": "secret"}
    (command,) = commands(ElasticsearchSinkConnector, {**SEARCH, **login})
    assert properties.parse(command.secrets["--login"]) == {"username": "ann", "password": "secret"}
    assert "secret" not in " ".join(command.flags)


def test_properties_are_read_as_they_were_written() -> None:
    given = {"a b": " leading\tand\nlines\r\f", "k=:": "#!\\ ", "empty": "", "umlaut": "ä€"}
    assert properties.parse(properties_text(given)) == given


def test_a_sink_has_a_task_for_each_table() -> None:
    topics = {"topics": "a,b,c", "table.name.format": "t_${topic}", "tasks.max": "3"}
    found = commands(JdbcSinkConnector, {**SINK, **topics})
    assert [(value(each, "--input"), value(each, "--table")) for each in found] == [
        ("a", "t_a"), ("b", "t_b"), ("c", "t_c"),
    ]  # fmt: skip
    assert len({value(each, "--checkpoint") for each in found}) == len({value(each, "--app-id") for each in found}) == 3
    assert {value(each, "--commit-group") for each in found} == {"connect-c"}
    (command,) = commands(JdbcSinkConnector, {**SINK, "topics": "a,b", "table.name.format": "all_topics"})
    assert (value(command, "--input"), value(command, "--table")) == ("a,b", "all_topics")


def test_modes_of_a_sink_become_keys() -> None:
    (command,) = commands(JdbcSinkConnector, {**SINK, "auto.create": "true", "auto.evolve": "true"})
    assert value(command, "--keys") == "id"
    assert {"--create-table", "--add-columns"} < set(command.flags)
    (command,) = commands(JdbcSinkConnector, {**SINK, "insert.mode": "insert", "pk.mode": "none"})
    assert not {"--keys", "--key-format", "--create-table", "--add-columns"} & set(command.flags)
    (command,) = commands(JdbcSinkConnector, {**SINK, "pk.mode": "record_key"})
    assert [value(command, flag) for flag in ("--keys", "--key-format", "--key-fields")] == ["id", "text", "id"]


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ({}, {"--on-error": "fail", "--dead-letter": None, "--master": "local[1]", "--starting-offsets": None}),
        ({"errors.tolerance": "all", "tasks.max": "4"}, {"--on-error": "skip", "--master": "local[4]"}),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
            {"--on-error": None, "--dead-letter": "dead"},
        ),
        ({"value.converter.schemas.enable": "true"}, {"--value-format": "json-envelope"}),
        (
            {
                "value.converter": "io.confluent.connect.avro.AvroConverter",
                "value.converter.schema.registry.url": "http://r:8081",
            },
            {"--value-format": "avro-registry", "--schema-registry": "http://r:8081"},
        ),
    ],
)
def test_errors_and_formats_of_sinks_become_flags(config: dict[str, str], flags: dict[str, str | None]) -> None:
    (command,) = commands(ElasticsearchSinkConnector, {**SEARCH, **config})
    assert {flag: value(command, flag) for flag in flags} == flags


def test_settings_of_consumers_choose_start_and_group() -> None:
    client = {"auto.offset.reset": "latest", "group.id": "own"}
    (command,) = commands(ElasticsearchSinkConnector, SEARCH, client)
    assert (value(command, "--starting-offsets"), value(command, "--commit-group")) == ("latest", "own")
    assert "--kafka-config" not in command.secrets


def test_the_worker_chooses_cluster_settings_and_folder_of_spark() -> None:
    worker = {"spark_master": "spark://h:7077", "spark_conf_spark.jars": "a.jar", "spark_checkpoint_folder": "s3a://b/"}
    (command,) = commands(ElasticsearchSinkConnector, SEARCH, {}, **worker)
    assert value(command, "--master") == "spark://h:7077"
    assert value(command, "--spark-conf") == "spark.jars=a.jar"
    assert value(command, "--checkpoint") == "s3a://b/c"


def test_a_group_of_workers_needs_a_folder_for_checkpoints() -> None:
    with pytest.raises(ConfigError, match=r'Missing required configuration "spark.checkpoint.folder" of the worker'):
        commands(ElasticsearchSinkConnector, SEARCH, config_storage_topic="configs")


def test_names_of_folders_stay_in_their_folder_and_apart() -> None:
    assert safe_name("orders-sink_1") == "orders-sink_1"
    names = ["..", "../x", "a/b", "a.b", "a b", "a_b"]
    safe = [safe_name(each) for each in names]
    assert len(set(safe)) == len(names)
    assert not any("/" in each or "." in each for each in safe)


@pytest.mark.parametrize(
    ("config", "folders", "values"),
    [
        ({}, "topic,partition", {"--infer-schema", "--value-format"}),
        ({"partitioner.class": "io.confluent.connect.hdfs.partitioner.HourlyPartitioner"}, "topic,date,hour", set()),
        (
            {"partitioner.class": "TimeBasedPartitioner", "partition.duration.ms": "86400000"},
            "topic,date",
            {"--infer-schema"},
        ),
        (
            {"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"},
            "topic,partition",
            {"--binary"},
        ),
    ],
)
def test_a_lake_gets_folders_and_columns(config: dict[str, str], folders: str, values: set[str]) -> None:
    more = {"format.class": "io.confluent.connect.hdfs.parquet.ParquetFormat", "rotate.interval.ms": "500"}
    (command,) = commands(HdfsSinkConnector, {**LAKE, **more, **config})
    assert value(command, "--path") == "hdfs://h:9000/topics"
    assert (value(command, "--format"), value(command, "--partition-by")) == ("parquet", folders)
    assert (value(command, "--max-offsets-per-trigger"), value(command, "--trigger")) == ("1000", "500 milliseconds")
    assert values <= set(command.flags)


REFUSED = [
    (SOURCE, {"mode": "timestamp+incrementing"}, "mode", r"timestamp\+incrementing .* one of: bulk, incrementing"),
    (SOURCE, {"query": "SELECT 1"}, "query", "the job reads the tables"),
    (SOURCE, {"table.blacklist": "x"}, "table.blacklist", "name those to read"),
    (SOURCE, {"table.whitelist": ""}, "table.whitelist", "names of the tables"),
    (SOURCE, {"table.whitelist": "a,A"}, "table.whitelist", "table a would be read twice"),
    (SOURCE, {"table.whitelist": "a;drop"}, "table.whitelist", "a;drop .* names of letters"),
    (SOURCE, {"incrementing.column.name": ""}, "incrementing.column.name", "mode incrementing needs"),
    (SOURCE, {"mode": "timestamp", "timestamp.column.name": "a,b"}, "timestamp.column.name", "name of one column"),
    (SOURCE, {"poll.interval.ms": "1500"}, "poll.interval.ms", "multiple of 1000"),
    (SOURCE, {"value.converter": STRING}, "value.converter", "jdbc_source has no format text"),
    (SOURCE, {"transforms": "t"}, "transforms", "applies no transforms"),
    (SOURCE, {"topic.creation.default.partitions": "3"}, "topic.creation.default.replication.factor", "needs it"),
    (SOURCE, {"connection.url": "mysql://h"}, "connection.url", "begins with jdbc:"),
    (SOURCE, {"connection.url": "jdbc:mysql://u:pw@h/db"}, "connection.url", "use connection.password"),
    (SINK, {"connection.url": "jdbc:postgresql://h/db?password=pw"}, "connection.url", "use connection.password"),
    (SINK, {"connection.url": "jdbc:oracle:thin:u/pw@h:1521/x"}, "connection.url", "use connection.password"),
    (SINK, {"insert.mode": "update"}, "insert.mode", "one of: insert, upsert"),
    (SINK, {"pk.mode": "kafka"}, "pk.mode", "one of: none, record_key, record_value"),
    (SINK, {"pk.mode": "none"}, "pk.mode", "insert.mode=upsert needs"),
    (SINK, {"pk.fields": ""}, "pk.fields", "needs the names of the fields"),
    (SINK, {"pk.mode": "record_key", "pk.fields": "a,b"}, "pk.fields", "has one field"),
    (SINK, {"pk.mode": "record_key", "auto.create": "true"}, "auto.create", "pk.mode=record_value"),
    (SINK, {"pk.mode": "record_key", "key.converter": "LongConverter"}, "key.converter", "no format LongConverter"),
    (SINK, {"delete.enabled": "true"}, "delete.enabled", "deletes no rows"),
    (SINK, {"topics": "my-topic"}, "table.name.format", "would be my-topic"),
    (SINK, {"topics": "a,b"}, "tasks.max", "at least 2"),
    (SINK, {"consumer.override.auto.offset.reset": "none"}, "consumer.override.auto.offset.reset", "earliest or"),
    (SEARCH, {"topics": "", "topics.regex": "a.*"}, "topics.regex", "reads the topics that 'topics' names"),
    (SEARCH, {"connection.url": "http://a,http://b"}, "connection.url", "URL of one server"),
    (SEARCH, {"connection.url": "http://u:pw@h"}, "connection.url", "use connection.username"),
    (SEARCH, {"connection.username": "ann"}, "connection.password", "user and a password"),
    (SEARCH, {"key.converter": JSON}, "key.converter", "elasticsearch_sink has no format json-envelope"),
    (SEARCH, {"value.converter": "AvroConverter"}, "value.converter.schema.registry.url", "one URL"),
    (SEARCH, {"behavior.on.null.values": "ignore"}, "behavior.on.null.values", "one of: delete"),
    (LAKE, {"store.url": ""}, "store.url", "Missing required"),
    (LAKE, {"format.class": "x.StringFormat"}, "format.class", "AvroFormat, ParquetFormat"),
    (LAKE, {"partitioner.class": "FieldPartitioner"}, "partitioner.class", "DailyPartitioner"),
    (LAKE, {"partitioner.class": "TimeBasedPartitioner"}, "partition.duration.ms", "3600000, 86400000"),
    (LAKE, {"timezone": "Europe/Athens"}, "timezone", "one of: UTC"),
    (LAKE, {"hive.integration": "true"}, "hive.integration", "writes files only"),
]


@pytest.mark.parametrize(
    ("config", "change", "name", "text"), REFUSED, ids=[f"{each[0]['connector.class']}-{each[2]}" for each in REFUSED]
)
def test_what_a_job_cannot_do_is_refused_by_name(
    config: Mapping[str, str], change: Mapping[str, str], name: str, text: str
) -> None:
    found = problems({**config, **change})
    assert list(found) == [name]
    assert re.search(text, found[name][0])
    assert "pw" not in str(found)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (JdbcSourceConnector, {**SOURCE, "topic.creation.default.partitions": "1",
                               "topic.creation.default.replication.factor": "1", "connection.user": "ann"}),
        (JdbcSinkConnector, {**SINK, "auto.evolve": "true", "pk.mode": "record_key", "connection.user": "ann"}),
        (JdbcSinkConnector, {**SINK, "auto.create": "true", "insert.mode": "insert", "errors.tolerance": "all"}),
        (ElasticsearchSinkConnector, {**SEARCH, "connection.username": "ann", "connection.password": "secret"}),
        (HdfsSinkConnector, {**LAKE, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}),
    ],
)  # fmt: skip
def test_jobs_accept_their_flags(kind: type[Connector], config: Mapping[str, str], tmp_path: Path) -> None:
    client = {"auto.offset.reset": "latest"} if issubclass(kind, SinkConnector) else {}
    (command,) = commands(kind, config, {"security.protocol": "PLAINTEXT", **client})
    flags = list(command.flags)
    for number, (flag, text) in enumerate(command.secrets.items()):
        path = tmp_path / str(number)
        path.write_text(text)
        flags += [flag, str(path)]
    module = importlib.import_module(f"spark_jobs.{command.job}")
    parameters = module.JOB.parse(flags) if hasattr(module, "JOB") else module.parse(flags)
    assert parameters.kafka_option == {"security.protocol": "PLAINTEXT"}


def test_the_converter_of_the_worker_counts_where_the_connector_names_none() -> None:
    worker = {"key.converter": STRING, "value.converter": STRING, "offset.storage.file.filename": "offsets"}
    config = {name: each for name, each in SINK.items() if "converter" not in name}
    found = validate(config, WorkerSettings(worker, is_distributed=False), Plugins())
    (error,) = (each["value"]["errors"] for each in found["configs"] if each["value"]["errors"])
    assert "the job jdbc_sink has no format text" in error[0]


def test_offsets_of_a_job_are_not_changed_behind_its_checkpoint() -> None:
    for kind, config in ((JdbcSourceConnector, SOURCE), (JdbcSinkConnector, SINK)):
        connector: Any = kind()
        with pytest.raises(ConfigError, match="The offsets of c are in the checkpoint of its Spark job"):
            connector.alter_offsets(config, {})
