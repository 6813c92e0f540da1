"""A job over SASL_SSL: Spark's clients and the job's own log in by SCRAM and trust a key store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

from spark_jobs import wordcount
from spark_jobs.skeleton.clients import client_settings
from spark_jobs.skeleton.commits import GroupOffsets
from spark_jobs.skeleton.topics import create_topics
from tests.spark_jobs.conftest import JobRunner, Topics, last_values, lines
from tests.support.broker import BrokerProcess
from tests.support.certificates import STORE_PASSWORD, Stores
from tests.support.processes import listening_ports

pytestmark = pytest.mark.spark

DEPRECATED_FETCHING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
USER, PASSWORD = "alice", 'a "quoted"; secret'
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{MODULE} required username="{USER}" password="a \\"quoted\\"; secret";'


def set_password(topics: Topics, user: str, password: str) -> None:
    admin = AdminClient(topics.client)
    login = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, login, password.encode())])[user].result()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Topics, dict[str, str]]]:
    """The topics of a broker, on its open listener, and the options of clients of its secured one."""
    stores = Stores(tmp_path / "stores")
    settings = {
        "listeners": "OPEN://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_SSL",
        "inter.broker.listener.name": "OPEN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("server", "server")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca),
        "listener.name.login.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(stores.trust_store("JKS")),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(stores.pkcs12(stores.issue("client", "client"))),
        "ssl.keystore.password": STORE_PASSWORD,
        "client.rack": "r1",
    }
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        ports = dict(zip(("OPEN", "LOGIN"), listening_ports(broker.pid), strict=True))
        topics = Topics(f"127.0.0.1:{ports['OPEN']}")
        set_password(topics, USER, PASSWORD)
        yield topics, {**options, "bootstrap.servers": f"127.0.0.1:{ports['LOGIN']}"}


def test_a_job_reads_writes_creates_topics_and_commits_over_sasl_ssl(
    secured: tuple[Topics, dict[str, str]],
    spark: SparkSession,
    job_runner: JobRunner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics, options = secured
    servers = options.pop("bootstrap.servers")
    source = topics.create("words", 1)
    topics.send(source, lines("a b", "b"))
    flags = ["--bootstrap-servers", servers, "--input", source, "--output", "counts", "--commit-group", "counters"]
    flags += [part for key, value in options.items() for part in ("--kafka-option", f"{key}={value}")]
    parameters = job_runner.parse(wordcount.JOB, *flags)
    create_topics(parameters.client, wordcount.JOB.topics(parameters))
    assert job_runner.supervise(wordcount.JOB, *flags) == 0
    assert last_values(topics.read("counts")) == {"a": "1", "b": "2"}
    group = GroupOffsets(client_settings(servers, options), "counters")
    assert group.committed([source]) == {source: {0: 2}}
    group.close()
    forbidden = topics.create("forbidden")
    acl = AclBinding(
        ResourceType.TOPIC,
        forbidden,
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    admin = AdminClient(topics.client)
    admin.create_acls([acl])[acl].result()
    assert_groups_are_checked_only_by_members(topics, spark, {**options, "bootstrap.servers": servers}, source)
    flags += ["--output", forbidden, "--checkpoint", str(job_runner.folder / "other"), "--starting-offsets", "earliest"]
    assert job_runner.supervise(wordcount.JOB, *flags) == 1
    assert f"query failed: Not authorized to access topics: [{forbidden}]" in caplog.text


def assert_groups_are_checked_only_by_members(
    topics: Topics, spark: SparkSession, options: dict[str, str], source: str
) -> None:
    """The name of a group needs a permission only where Spark joins the group to find offsets."""
    acl = AclBinding(
        ResourceType.GROUP,
        "denied",
        ResourcePatternType.PREFIXED,
        f"User:{USER}",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    admin = AdminClient(topics.client)
    admin.create_acls([acl])[acl].result()
    client = {f"kafka.{key}": value for key, value in options.items()}
    for group in ({"groupIdPrefix": "denied"}, {"kafka.group.id": "denied"}):
        records = spark.read.format("kafka").options(**client, subscribe=source, **group)
        assert records.load().count() == 2
        spark.conf.set(DEPRECATED_FETCHING, "true")
        try:
            with pytest.raises(Exception, match="Not authorized to access group: denied"):
                records.load().count()
        finally:
            spark.conf.unset(DEPRECATED_FETCHING)
