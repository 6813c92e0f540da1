"""Settings files and environments in the shapes that people have from other installations, and what must happen.

One table: each row is a server.properties, the environment of a container, or both. The shapes are those of the images
of Apache, Confluent, Bitnami and wurstmeister, of Kubernetes, of Strimzi, Amazon MSK and Ambari, and of earlier
releases.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from config import broker_properties as rows
from config.broker import BrokerConfig
from config.definition import ConfigError, ConfigErrors
from tests.tools.conftest import ROOT
from tools.launch import container_environment, server_start
from tools.launch.container_environment import ContainerEnvironment, NewTopic, read_environment
from tools.launch.start_options import parse

BOUND, ADVERTISED, DATA = "PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://localhost:9092", "/var/lib/milena"
KRAFT = ("process.roles has no effect", "controller.quorum.voters has no effect")
THREADS = ("num.network.threads has no effect",)


@dataclass
class Shape:
    """What somebody brings. `further` are settings by name that must have these values."""

    file: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    bound: str = BOUND
    advertised: str = ADVERTISED
    broker_id: int = 0
    log_dirs: str = DATA
    warnings: tuple[str, ...] = ()
    further: dict[str, Any] = field(default_factory=dict)
    in_image: bool = True


SHAPES = {
    "nothing": Shape(),
    "file with a command line of its own": Shape(
        "broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:9192\nlog.dirs=/data/a,/data/b\nzookeeper.connect=zk1:2181,zk2:2181/kafka\n",
        arguments=("--override", "num.partitions=4"),
        bound="PLAINTEXT://127.0.0.1:9192",
        advertised="PLAINTEXT://127.0.0.1:9192",
        broker_id=7,
        log_dirs="/data/a,/data/b",
        further={"zookeeper.connect": "zk1:2181,zk2:2181/kafka", "num.partitions": 4},
        in_image=False,
    ),
    "file in the image": Shape(
        "broker.id=7\nlisteners=PLAINTEXT://:9192\nadvertised.listeners=PLAINTEXT://host:9192\nlog.dirs=/data\n",
        bound="PLAINTEXT://:9192",
        advertised="PLAINTEXT://host:9192",
        broker_id=7,
        log_dirs="/data",
    ),
    "variable over a file": Shape(
        "broker.id=7\nlisteners=PLAINTEXT://:9192\nlog.dirs=/data\n",
        {"KAFKA_NODE_ID": "8", "KAFKA_LOG_DIR": "/other", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://host:1"},
        bound="PLAINTEXT://:9192",
        advertised="PLAINTEXT://host:1",
        broker_id=8,
        log_dirs="/other",
    ),
    "apache: two advertised listeners alone": Shape(
        variables={
            "KAFKA_BROKER_ID": "2",
            "KAFKA_ADVERTISED_LISTENERS": "INSIDE://kafka:29092, OUTSIDE://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        },
        bound="INSIDE://0.0.0.0:29092,OUTSIDE://0.0.0.0:9092",
        advertised="INSIDE://kafka:29092,OUTSIDE://localhost:9092",
        broker_id=2,
    ),
    "one advertised listener alone": Shape(
        variables={"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:29092"},
        bound="PLAINTEXT://0.0.0.0:29092",
        advertised="PLAINTEXT://localhost:29092",
    ),
    "listeners alone, on all addresses": Shape(
        variables={
            "KAFKA_LISTENERS": "A://0.0.0.0:1,B://10.0.0.1:2",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:PLAINTEXT,B:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "A",
        },
        bound="A://0.0.0.0:1,B://10.0.0.1:2",
        advertised="A://localhost:1,B://10.0.0.1:2",
    ),
    "listeners alone, with the name of the host": Shape(
        variables={"KAFKA_LISTENERS": "PLAINTEXT://:9093"}, bound="PLAINTEXT://:9093", advertised="PLAINTEXT://:9093"
    ),
    "apache: combined mode of KRaft": Shape(
        variables={
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        },
        bound="PLAINTEXT://localhost:9092",
        broker_id=1,
        warnings=(
            *KRAFT,
            "listener CONTROLLER://localhost:9093 is not opened",
            "without effect in the environment: CLUSTER_ID (",
        ),
        further={"group.initial.rebalance.delay.ms": 0},
    ),
    "apache: node.id alone": Shape(variables={"KAFKA_NODE_ID": "1"}, broker_id=1),
    "confluent: ZooKeeper, with JMX, heap and log levels": Shape(
        variables={
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_JMX_PORT": "9101",
            "KAFKA_JMX_HOSTNAME": "localhost",
            "KAFKA_HEAP_OPTS": "-Xmx512m",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
            "KAFKA_LOG4J_LOGGERS": "kafka.controller=WARN",
            "KAFKA_TOOLS_LOG4J_LOGLEVEL": "ERROR",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
        },
        bound="PLAINTEXT://0.0.0.0:29092,PLAINTEXT_HOST://0.0.0.0:9092",
        advertised="PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
        broker_id=1,
        warnings=(
            (
                "without effect in the environment: KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE, KAFKA_HEAP_OPTS, "
                "KAFKA_JMX_HOSTNAME ("
            ),
        ),
        further={"metrics.http.listener": "127.0.0.1:9101", "zookeeper.connect": "zookeeper:2181"},
    ),
    "bitnami: its prefix wins over the image and over the short one": Shape(
        variables={
            "KAFKA_ENABLE_KRAFT": "yes",
            "KAFKA_CFG_NODE_ID": "3",
            "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
            "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "3@kafka:9093",
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CFG_LOG_DIRS": "/bitnami/kafka/data",
            "KAFKA_LOG_RETENTION_HOURS": "1",
            "KAFKA_CFG_LOG_RETENTION_HOURS": "2",
            "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
            "ALLOW_PLAINTEXT_LISTENER": "yes",
        },
        bound="PLAINTEXT://:9092,EXTERNAL://:9094",
        advertised="PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
        broker_id=3,
        log_dirs="/bitnami/kafka/data",
        warnings=(
            *KRAFT,
            "listener CONTROLLER://:9093 is not opened",
            "KAFKA_LOG_RETENTION_HOURS and KAFKA_CFG_LOG_RETENTION_HOURS are both log.retention.hours",
            "without effect in the environment: KAFKA_ENABLE_KRAFT, KAFKA_KRAFT_CLUSTER_ID (",
        ),
        further={"log.retention.hours": 2},
    ),
    "bitnami: unknown name": Shape(
        variables={"KAFKA_CFG_LOG_RETENTION_HOUR": "2"},
        warnings=("Unknown key log.retention.hour (KAFKA_CFG_LOG_RETENTION_HOUR) is kept",),
    ),
    "wurstmeister: addresses of early releases": Shape(
        variables={
            "KAFKA_ADVERTISED_HOST_NAME": "192.168.99.100",
            "KAFKA_ADVERTISED_PORT": "9094",
            "KAFKA_ZOOKEEPER_CONNECT": "zk1:2181,zk2:2181/kafka/a",
        },
        advertised="PLAINTEXT://192.168.99.100:9094",
        broker_id=-1,
        warnings=("advertised.host.name is deprecated", "advertised.port is deprecated"),
        further={"zookeeper.connect": "zk1:2181,zk2:2181/kafka/a"},
    ),
    "wurstmeister: port of early releases": Shape(
        variables={"KAFKA_PORT": "9095"},
        bound="PLAINTEXT://:9095",
        advertised="PLAINTEXT://:9095",
        warnings=("port is deprecated",),
    ),
    "wurstmeister: commands": Shape(
        variables={
            "BROKER_ID_COMMAND": "echo kafka-5 | cut -d- -f2",
            "HOSTNAME_COMMAND": "echo host-5",
            "PORT_COMMAND": "echo 19094",
            "RACK_COMMAND": "echo rack-a",
            "KAFKA_ADVERTISED_LISTENERS": "INSIDE://:9092,OUTSIDE://_{HOSTNAME_COMMAND}:_{PORT_COMMAND}",
            "KAFKA_LISTENERS": "INSIDE://:9092,OUTSIDE://:9094",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
            "LOG4J_LOGGER_KAFKA_CONTROLLER": "WARN, controllerAppender",
        },
        bound="INSIDE://:9092,OUTSIDE://:9094",
        advertised="INSIDE://:9092,OUTSIDE://host-5:19094",
        broker_id=5,
        further={"broker.rack": "rack-a"},
    ),
    "wurstmeister: the command of the host alone": Shape(
        variables={"HOSTNAME_COMMAND": "echo host-5", "BROKER_ID_COMMAND": "exit 1", "KAFKA_BROKER_ID": "4"},
        advertised="PLAINTEXT://host-5:9092",
        broker_id=4,
        warnings=("advertised.host.name is deprecated",),
    ),
    "kubernetes: variables of a service named kafka": Shape(
        variables={
            "KAFKA_PORT": "tcp://10.96.0.7:9092",
            "KAFKA_PORT_9092_TCP": "tcp://10.96.0.7:9092",
            "KAFKA_SERVICE_HOST": "10.96.0.7",
            "KAFKA_SERVICE_PORT": "9092",
        },
        warnings=(
            (
                "without effect in the environment: KAFKA_PORT, KAFKA_PORT_9092_TCP, KAFKA_SERVICE_HOST, "
                "KAFKA_SERVICE_PORT ("
            ),
        ),
    ),
    "escapes": Shape(
        variables={
            "KAFKA_LISTENERS": "A_B://:1",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A_B:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "A_B",
            "KAFKA_LISTENER_NAME_A__B_MAX_CONNECTIONS": "5",
            "KAFKA_LISTENER_NAME_A__B_SCRAM___SHA___256_SASL_JAAS_CONFIG": "x required;",
            "KAFKA_LISTENER_NAME_A__B_SCRAM__SHA__512_SASL_JAAS_CONFIG": "y required;",
            "KAFKA_ZOOKEEPER_CLIENT_CNXN_SOCKET": "org.apache.zookeeper.ClientCnxnSocketNetty",
        },
        bound="A_B://:1",
        advertised="A_B://:1",
        warnings=("zookeeper.clientCnxnSocket has no effect",),
        further={
            "listener.name.a_b.max.connections": "5",
            "listener.name.a_b.scram-sha-256.sasl.jaas.config": "x required;",
            "listener.name.a_b.scram-sha-512.sasl.jaas.config": "y required;",
        },
    ),
    "one folder under its older name": Shape(variables={"KAFKA_LOG_DIR": "/data"}, log_dirs="/data"),
    "login file in the options of Java": Shape(
        variables={"KAFKA_OPTS": "-Dfoo=it's -Djava.security.auth.login.config=/etc/kafka/jaas.conf"},
        further={"java.security.auth.login.config": "/etc/kafka/jaas.conf"},
    ),
    "strimzi: brokers with ZooKeeper": Shape(
        "broker.id=0\n"
        "node.id=0\n"
        "zookeeper.connect=localhost:2181\n"
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        "listeners=CONTROLPLANE-9090://0.0.0.0:9090,REPLICATION-9091://0.0.0.0:9091,PLAIN-9092://0.0.0.0:9092\n"
        "advertised.listeners=CONTROLPLANE-9090://c-0.c:9090,REPLICATION-9091://c-0.c:9091,PLAIN-9092://c-0.c.ns:9092\n"
        "listener.security.protocol.map=CONTROLPLANE-9090:SSL,REPLICATION-9091:SSL,PLAIN-9092:PLAINTEXT\n"
        "control.plane.listener.name=CONTROLPLANE-9090\n"
        "inter.broker.listener.name=REPLICATION-9091\n"
        "listener.name.replication-9091.ssl.client.auth=required\n"
        "ssl.secure.random.implementation=SHA1PRNG\n"
        "ssl.endpoint.identification.algorithm=HTTPS\n"
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
        "super.users=User:CN=my-cluster-kafka,O=io.strimzi;User:CN=my-cluster-entity-operator,O=io.strimzi\n"
        "log.dirs=/var/lib/kafka/data/kafka-log0\n"
        "inter.broker.protocol.version=3.9\n",
        bound="CONTROLPLANE-9090://0.0.0.0:9090,REPLICATION-9091://0.0.0.0:9091,PLAIN-9092://0.0.0.0:9092",
        advertised="CONTROLPLANE-9090://c-0.c:9090,REPLICATION-9091://c-0.c:9091,PLAIN-9092://c-0.c.ns:9092",
        log_dirs="/var/lib/kafka/data/kafka-log0",
        warnings=(
            "zookeeper.clientCnxnSocket has no effect",
            "ssl.secure.random.implementation has no effect",
        ),
        in_image=False,
    ),
    "confluent: sample file with its reporter": Shape(
        "broker.id=1\nlisteners=PLAINTEXT://:9092\nlog.dirs=/data\n"
        "metric.reporters=io.confluent.metrics.reporter.ConfluentMetricsReporter\n"
        "confluent.metrics.reporter.bootstrap.servers=localhost:9092\n",
        bound="PLAINTEXT://:9092",
        advertised="PLAINTEXT://:9092",
        broker_id=1,
        log_dirs="/data",
        warnings=(
            "Unknown key confluent.metrics.reporter.bootstrap.servers",
            "not loaded, because they are Java classes: io.confluent.metrics.reporter.ConfluentMetricsReporter.",
        ),
        in_image=False,
    ),
    "strimzi: KRaft with values of the environment": Shape(
        "node.id=1\n"
        "process.roles=broker,controller\n"
        "controller.listener.names=CONTROLPLANE-9090\n"
        "controller.quorum.voters=1@c-1.c:9090\n"
        "listeners=CONTROLPLANE-9090://0.0.0.0:9090,PLAIN-9092://0.0.0.0:9092\n"
        "advertised.listeners=CONTROLPLANE-9090://c-1.c:9090,PLAIN-9092://${strimzienv:TEST_HOST}:9092\n"
        "listener.security.protocol.map=CONTROLPLANE-9090:SSL,PLAIN-9092:PLAINTEXT\n"
        "inter.broker.listener.name=PLAIN-9092\n"
        "listener.name.controlplane-9090.ssl.keystore.location=/tmp/kafka/cluster.keystore.p12\n"
        "listener.name.controlplane-9090.ssl.client.auth=required\n"
        "sasl.mechanism.controller.protocol=PLAIN\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:CN=my-cluster-kafka,O=io.strimzi\n"
        "config.providers=strimzienv\n"
        "config.providers.strimzienv.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "config.providers.strimzienv.param.allowlist.pattern=.*\n"
        "log.dirs=/var/lib/kafka/data-0/kafka-log1\n",
        {"TEST_HOST": "c-1.c.ns"},
        bound="PLAIN-9092://0.0.0.0:9092",
        advertised="PLAIN-9092://c-1.c.ns:9092",
        broker_id=1,
        log_dirs="/var/lib/kafka/data-0/kafka-log1",
        warnings=(
            *KRAFT,
            "sasl.mechanism.controller.protocol has no effect",
            "listener CONTROLPLANE-9090://0.0.0.0:9090 is not opened",
        ),
        in_image=False,
    ),
    "apache: server.properties of KRaft without a map of protocols": Shape(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.voters=1@localhost:9093\n"
        "listeners=SASL_PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=SASL_PLAINTEXT\n"
        "advertised.listeners=SASL_PLAINTEXT://localhost:9092\n"
        "controller.listener.names=CONTROLLER\n"
        "num.network.threads=3\n"
        "log.dirs=/tmp/kraft-combined-logs\n",
        bound="SASL_PLAINTEXT://:9092",
        advertised="SASL_PLAINTEXT://localhost:9092",
        broker_id=1,
        log_dirs="/tmp/kraft-combined-logs",
        warnings=(*KRAFT, *THREADS, "listener CONTROLLER://:9093 is not opened"),
        in_image=False,
    ),
    "msk: settings of a cluster": Shape(
        "auto.create.topics.enable=false\n"
        "default.replication.factor=3\n"
        "min.insync.replicas=2\n"
        "num.io.threads=8\n"
        "num.network.threads=5\n"
        "num.replica.fetchers=2\n"
        "replica.lag.time.max.ms=30000\n"
        "socket.request.max.bytes=104857600\n"
        "unclean.leader.election.enable=true\n"
        "zookeeper.session.timeout.ms=18000\n"
        "allow.everyone.if.no.acl.found=true\n"
        "log.dirs=/kafka/datalogs\n",
        bound="PLAINTEXT://:9092",
        advertised="PLAINTEXT://:9092",
        broker_id=-1,
        log_dirs="/kafka/datalogs",
        warnings=THREADS,
        further={"auto.create.topics.enable": False, "min.insync.replicas": 2},
        in_image=False,
    ),
    "ambari: settings of an early release": Shape(
        "listeners=PLAINTEXT://node1.example:6667\n"
        "port=6667\n"
        "log.dirs=/kafka-logs\n"
        "zookeeper.connect=node1.example:2181,node2.example:2181\n"
        "zookeeper.connection.timeout.ms=25000\n"
        "zookeeper.sync.time.ms=2000\n"
        "controller.message.queue.size=10\n"
        "replica.lag.max.messages=4000\n"
        "log.cleanup.interval.mins=10\n"
        "offsets.commit.required.acks=-1\n"
        "kafka.ganglia.metrics.port=8671\n"
        "sasl.enabled.mechanisms=GSSAPI\n",
        bound="PLAINTEXT://node1.example:6667",
        advertised="PLAINTEXT://node1.example:6667",
        broker_id=-1,
        log_dirs="/kafka-logs",
        warnings=(
            "port is deprecated and ignored, because listeners is set",
            "zookeeper.sync.time.ms is ignored",
            "controller.message.queue.size is ignored",
            "replica.lag.max.messages is ignored",
            "Unknown key log.cleanup.interval.mins",
            "offsets.commit.required.acks is deprecated",
            "Unknown key kafka.ganglia.metrics.port",
            "offsets.commit.required.acks has no effect",
        ),
        in_image=False,
    ),
}


def of_image() -> dict[str, str]:
    """Return the variables of the image of the broker."""
    stage = (ROOT / "Dockerfile").read_text().partition(" AS broker\n")[2]
    (written,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    return dict(assignment.split("=", 1) for assignment in written.replace("\\\n", " ").split())


def loaded(
    monkeypatch: pytest.MonkeyPatch, folder: Path, shape: Shape
) -> tuple[BrokerConfig, ContainerEnvironment | None]:
    for name in [name for name in os.environ if "KAFKA" in name or name.endswith(("_COMMAND", "JMX_PORT"))]:
        monkeypatch.delenv(name)
    for name, value in ((of_image() if shape.in_image else {}) | shape.variables).items():
        monkeypatch.setenv(name, value)
    arguments = ["--environment"] if shape.in_image else []
    if shape.file is not None:
        path = folder / "server.properties"
        path.write_text(shape.file)
        arguments.append(str(path))
    environment = read_environment(os.environ) if shape.in_image else None
    return server_start._config(parse([*arguments, *shape.arguments]), environment), environment


@pytest.mark.parametrize("name", SHAPES)
def test_what_people_bring_gives_the_settings_that_they_mean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    shape = SHAPES[name]
    config, _ = loaded(monkeypatch, tmp_path, shape)
    assert ",".join(map(str, config.listeners)) == shape.bound
    assert ",".join(map(str, config.advertised_listeners)) == shape.advertised
    assert (config[rows.BROKER_ID], config[rows.NODE_ID]) == (shape.broker_id, shape.broker_id)
    assert ",".join(config.log_dirs) == shape.log_dirs
    unexpected = [line for line in config.warnings if not line.startswith(shape.warnings)]
    assert unexpected == []
    assert len(config.warnings) == len(shape.warnings)
    for key, value in shape.further.items():
        row = rows.BROKER_PROPERTIES.get(key)
        assert (config.static[key] if row is None else config[row]) == value, key


def test_every_variable_is_used_or_named() -> None:
    for shape in SHAPES.values():
        found = read_environment({name: value for name, value in shape.variables.items() if name.startswith("KAFKA_")})
        of_others = {"KAFKA_LOG4J_OPTS", "KAFKA_OPTS", *container_environment._OF_LOGGING}
        unused = shape.variables.keys() - set(found.variables.values()) - of_others
        lines = " ".join(found.warnings)
        assert [name for name in unused if name.startswith("KAFKA_") and name not in lines] == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KAFKA_BROKER_ID": "1", "KAFKA_NODE_ID": "2"}, "KAFKA_NODE_ID: Invalid value 2 for configuration node.id"),
        (
            {"KAFKA_ADVERTISED_LISTENERS": "A://a:1,B://b:1", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:SSL,B:SSL"},
            "Invalid value A://0.0.0.0:1,B://0.0.0.0:1 for configuration listeners: Each listener must",
        ),
        ({"KAFKA_NUM_PARTITIONS": "x"}, "KAFKA_NUM_PARTITIONS: Invalid value x for configuration num.partitions"),
        (
            {"KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:1,2@b:1,3@c:1"},
            "KAFKA_CONTROLLER_QUORUM_VOTERS: Invalid value 1@a:1,2@b:1,3@c:1 for configuration controller",
        ),
        ({"BROKER_ID_COMMAND": "exit 3"}, "Invalid value exit 3 for configuration BROKER_ID_COMMAND (environment)"),
        ({"RACK_COMMAND": "true"}, "Expected a command with an output"),
        ({"KAFKA_JMX_PORT": "x"}, "Invalid value x for configuration KAFKA_JMX_PORT (environment)"),
        (
            {"KAFKA_SSL_KEY_PASSWORD_FILE": "/no/file"},
            "KAFKA_SSL_KEY_PASSWORD_FILE (environment): The file cannot be read",
        ),
        ({"KAFKA_CREATE_TOPICS": "a:b"}, "Invalid value a:b for configuration KAFKA_CREATE_TOPICS (environment)"),
        ({"KAFKA_CREATE_TOPICS": "a:1:1:compact:x"}, "Expected name:partitions:replicas:cleanup.policy"),
        ({"KAFKA_CREATE_TOPICS": "a:1:1:compact --confg=a=b"}, "Expected name:partitions:replicas:cleanup.policy"),
    ],
)
def test_what_cannot_be_meant_is_reported_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    with pytest.raises((ConfigError, ConfigErrors)) as failure:
        loaded(monkeypatch, tmp_path, Shape(variables=variables))
    environment = None if isinstance(failure.value, ConfigError) else read_environment(os.environ)
    assert expected in server_start._load_failure(parse(["--environment"]), environment, failure.value)


def test_secrets_are_read_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(container_environment, "SECRETS_FOLDER", tmp_path)
    (tmp_path / "credentials").write_text("secret\n")
    found = read_environment(
        {
            "KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "credentials",
            "KAFKA_SSL_KEY_CREDENTIALS": "credentials",
            "KAFKA_SSL_TRUSTSTORE_FILENAME": "/elsewhere/trust.jks",
            "KAFKA_SSL_TRUSTSTORE_PASSWORD_FILE": str(tmp_path / "credentials"),
            "KAFKA_CFG_PASSWORD_ENCODER_SECRET_FILE": str(tmp_path / "credentials"),
        }
    )
    assert found.settings == {
        "ssl.keystore.location": str(tmp_path / "broker.jks"),
        "ssl.keystore.password": "secret",
        "ssl.key.password": "secret",
        "ssl.truststore.location": "/elsewhere/trust.jks",
        "ssl.truststore.password": "secret",
        "password.encoder.secret": "secret",
    }
    assert found.warnings == []


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a:1:1:compact, b:2,,c", None),
        ("a:1:1:compact;b:2;c", ";"),
        ("a:1:1:compact\nb:2\n  c\n", "$'\\n'"),
        ("a:1:1:compact\nb:2\nc", "$'\n'"),
        ("a:1:1:compact b:2 c", " "),
    ],
)
def test_topics_are_separated_as_the_variable_says(text: str, separator: str | None) -> None:
    variables = {"KAFKA_CREATE_TOPICS": text}
    if separator is not None:
        variables["KAFKA_CREATE_TOPICS_SEPARATOR"] = separator
    found = read_environment(variables)
    assert found.topics == [
        NewTopic("a", 1, 1, {"cleanup.policy": "compact"}),
        NewTopic("b", 2, -1, {}),
        NewTopic("c", -1, -1, {}),
    ]
    assert found.warnings == []


def test_topics_may_have_further_settings() -> None:
    text = "a:1:1:compact --config=retention.ms=5 --config=segment.ms=7,b:1:1:--config=retention.ms=6"
    first, second = read_environment({"KAFKA_CREATE_TOPICS": text}).topics
    assert first.configs == {"cleanup.policy": "compact", "retention.ms": "5", "segment.ms": "7"}
    assert second.configs == {"retention.ms": "6"}
