"""Kafka's own tools against a broker with an authorizer, over TLS and logins; and clients that log in again (SE-19)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from config.broker_properties import AUTHORIZERS
from tests.interop.conftest import RunJava, RunKafkaTool
from tests.interop.test_security_matrix import JAVA_VERSIONS, java_settings, need, write_properties
from tests.support.certificates import STORE_PASSWORD
from tests.support.kerberos import has_kerberos
from tests.support.secured import MECHANISMS, PASSWORD, PROTOCOLS, USER, SecuredBroker
from tests.tools.conftest import run_module

ACLS, CONFIGS = "kafka.admin.AclCommand", "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
ROUNDS, PAUSE_MS, LOGIN_MS = 10, 400, 1500


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": f"User:{USER};User:ANONYMOUS",
        "delegation.token.secret.key": "token secret",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": str(LOGIN_MS),
    }
    with SecuredBroker(tmp_path_factory.mktemp("tools"), settings, kerberos=has_kerberos()) as running:
        yield running


@pytest.fixture(scope="module")
def config(secured: SecuredBroker) -> str:
    """The `--command-config` of Kafka's tools."""
    settings = secured.java("SASL_SSL", "SCRAM-SHA-512")
    return str(write_properties(secured.folder / "tools.properties", settings))


def test_acl_command_adds_lists_and_removes(secured: SecuredBroker, config: str, run_kafka_tool: RunKafkaTool) -> None:
    options = ["--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config", config]
    of_topic = ["--topic", "orders", "--resource-pattern-type", "prefixed"]
    added = run_kafka_tool(ACLS, *options, "--add", "--allow-principal", "User:bob", "--producer", *of_topic)
    resource = "resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=PREFIXED)`: "
    lines = {
        f"(principal=User:bob, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("CREATE", "WRITE", "DESCRIBE")
    }
    assert f"Adding ACLs for {resource}" in added
    listed = run_kafka_tool(ACLS, *options, "--list", *of_topic)
    assert f"Current ACLs for {resource}" in listed
    assert {line.strip() for line in listed if line.strip().startswith("(")} == lines
    run_kafka_tool(ACLS, *options, "--remove", "--force", *of_topic)
    assert not [line for line in run_kafka_tool(ACLS, *options, "--list", *of_topic) if line.strip()]


def test_config_command_changes_users_and_quotas(
    secured: SecuredBroker, config: str, run_kafka_tool: RunKafkaTool
) -> None:
    options = ["--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config", config]
    user = ["--entity-type", "users", "--entity-name", "carol"]
    for setting in ("SCRAM-SHA-256=[iterations=8192,password=carols secret]", "producer_byte_rate=1048576"):
        assert run_kafka_tool(CONFIGS, *options, "--alter", *user, "--add-config", setting) == [
            "Completed updating config for user carol."
        ]
    described = "\n".join(run_kafka_tool(CONFIGS, *options, "--describe", *user))
    assert "producer_byte_rate=1048576.0" in described
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "carols secret" not in described
    for removed in ("SCRAM-SHA-256", "producer_byte_rate"):
        run_kafka_tool(CONFIGS, *options, "--alter", *user, "--delete-config", removed)
    assert "SCRAM" not in "\n".join(run_kafka_tool(CONFIGS, *options, "--describe", *user))


def test_delegation_token_command_prints_as_ours(
    secured: SecuredBroker, config: str, run_kafka_tool: RunKafkaTool, tmp_path: Path
) -> None:
    """Each tool lists, renews and expires the token of the other, and a client logs in with it."""
    options = ["--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config", config]
    creation = ["--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"]
    theirs = [line.rstrip() for line in run_kafka_tool(TOKENS, *options, *creation)]
    ours = run_module("admin.delegation_tokens", *options, *creation)
    assert ours.status == 0, ours.stderr
    made = [line.rstrip() for line in ours.stdout.splitlines()]
    assert len(theirs) == len(made), (theirs, made)
    ids = {lines[1].rpartition(" ")[2] for lines in (theirs, made)}
    hmacs = {lines[-1].split()[1] for lines in (theirs, made)}
    assert len(ids) == len(hmacs) == 2
    assert [line.split()[2:5] for line in (theirs[-1], made[-1])] == [[f"User:{USER}"] * 2 + ["[User:bob]"]] * 2
    assert theirs[:1] + theirs[2:4] == made[:1] + made[2:4], "the heading"
    listing = ["--describe", "--owner-principal", f"User:{USER}"]
    described = [line.rstrip() for line in run_kafka_tool(TOKENS, *options, *listing)]
    listed = [line.rstrip() for line in run_module("admin.delegation_tokens", *options, *listing).stdout.splitlines()]
    assert described[:3] == listed[:3]
    assert sorted(described) == sorted(listed)
    one, other = sorted(hmacs)
    change = ["--renew", "--renew-time-period", "60000", "--hmac"]
    (renewed, *_) = run_kafka_tool(TOKENS, *options, *change, one)
    assert run_module("admin.delegation_tokens", *options, *change, one).stdout.splitlines()[0] == renewed
    own = run_module("admin.delegation_tokens", *options, "--describe").stdout
    assert "Calling describe token operation for current user." in own
    assert all(token_id in own for token_id in ids)
    assert_login_by_token(secured, tmp_path, next(line.split()[0] for line in listed if one in line), one)
    change = ["--expire", "--expiry-time-period", "-1", "--hmac"]
    run_kafka_tool(TOKENS, *options, *change, one)
    assert run_module("admin.delegation_tokens", *options, *change, other).status == 0
    assert not any(token_id in run_module("admin.delegation_tokens", *options, "--describe").stdout for token_id in ids)
    again = run_module("admin.delegation_tokens", *options, *change, other)
    assert again.status == 1
    assert "DelegationTokenNotFoundException" in again.stderr


def assert_login_by_token(secured: SecuredBroker, folder: Path, token_id: str, hmac: str) -> None:
    """Requests for tokens need a login without one, so the error shows that the token has logged in."""
    settings = secured.java("SASL_SSL", "SCRAM-SHA-256")
    module = settings["sasl.jaas.config"].split()[0]
    settings["sasl.jaas.config"] = f'{module} required username="{token_id}" password="{hmac}" tokenauth="true";'
    path = write_properties(folder / "token.properties", settings)
    done = run_module(
        "admin.delegation_tokens",
        *("--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config", str(path), "--describe"),
    )
    assert done.status == 1
    assert "UnsupportedByAuthenticationException" in done.stderr


@pytest.mark.parametrize(
    ("version", "mechanism"),
    [
        pytest.param(
            version, mechanism, marks=[] if (version, mechanism) == ("3.9.1", "SCRAM-SHA-256") else [pytest.mark.soak]
        )
        for version in JAVA_VERSIONS
        for mechanism in MECHANISMS
    ],
)
def test_java_clients_log_in_again_before_their_logins_end(
    secured: SecuredBroker, run_java: RunJava, tmp_path: Path, version: str, mechanism: str
) -> None:
    """The round takes longer than two logins are valid; the broker logs each connection whose login has expired."""
    need(secured, mechanism)
    path = write_properties(tmp_path / "client.properties", java_settings(secured, "SASL_PLAINTEXT", mechanism))
    expired = secured.broker.log.read_text().count("its login has expired")
    lines = run_java("SecureRound", path, f"again-{version}-{mechanism}", ROUNDS, PAUSE_MS, version=version)
    assert lines == ["created true", f"committed {ROUNDS}", f"read {ROUNDS}"]
    assert secured.broker.log.read_text().count("its login has expired") == expired


def test_java_clients_get_the_text_of_a_failure(secured: SecuredBroker, run_java: RunJava, tmp_path: Path) -> None:
    """It is the same for a wrong password and for a user that does not exist."""
    texts = set()
    for user in (USER, "nobody"):
        settings = secured.java("SASL_SSL", "SCRAM-SHA-256", "wrong")
        settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(f'"{USER}"', f'"{user}"')
        path = write_properties(tmp_path / "client.properties", settings)
        texts.update(run_java("SecureRound", path, "never", 1, 0, version="3.9.1"))
    expected = (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert texts == {f"failed SaslAuthenticationException: {expected}"}


def tool_settings(secured: SecuredBroker, protocol: str, mechanism: str) -> dict[str, str]:
    settings = secured.java(protocol, mechanism)
    del settings["bootstrap.servers"]
    if mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.token.endpoint.url"] = secured.token_file.as_uri()
    return settings


CELLS = [("SSL", ""), *((PROTOCOLS[2 + place % 2], mechanism) for place, mechanism in enumerate(MECHANISMS))]


@pytest.mark.parametrize(("protocol", "mechanism"), CELLS)
def test_our_tools_log_in(secured: SecuredBroker, tmp_path: Path, protocol: str, mechanism: str) -> None:
    """The administration tools have one client, and the tools that produce and consume another."""
    need(secured, mechanism)
    path = str(write_properties(tmp_path / "client.properties", tool_settings(secured, protocol, mechanism)))
    server, topic = ("--bootstrap-server", secured.bootstrap(protocol)), f"tools-{protocol}-{mechanism}"
    created = run_module("admin.topics", *server, "--command-config", path, "--create", "--topic", topic)
    assert created.status == 0, created.stderr
    produced = run_module(
        "records.console_producer", *server, "--producer.config", path, "--topic", topic, stdin=b"value\n"
    )
    if mechanism == "GSSAPI" and produced.status:
        assert "No provider for SASL mechanism GSSAPI" in produced.stderr, "the library may be built without Kerberos"
        return
    assert produced.status == 0, produced.stderr
    assert not produced.stderr
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
    consumed = run_module(
        "records.console_consumer", *server, "--consumer.config", path, "--topic", topic, "--group", topic, *limits
    )
    assert consumed.stdout == "value\n", consumed.stderr


@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
def test_our_tools_read_stores_of_java(secured: SecuredBroker, tmp_path: Path, store_type: str) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": store_type,
        "ssl.truststore.location": str(secured.stores.trust_store(store_type)),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.type": store_type,
        "ssl.keystore.location": str(getattr(secured.stores, store_type.lower())(secured.stores.issue("me", "me"))),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }
    path = str(write_properties(tmp_path / "client.properties", settings))
    server = ("--bootstrap-server", secured.bootstrap("SSL"))
    listed = run_module("admin.topics", *server, "--command-config", path, "--list")
    assert listed.status == 0, listed.stderr
    produced = run_module(
        "records.console_producer", *server, "--producer.config", path, "--topic", f"of-{store_type}", stdin=b"value\n"
    )
    assert (produced.status, produced.stderr) == (0, "")


def test_our_tools_report_a_wrong_login_in_one_line(secured: SecuredBroker, tmp_path: Path) -> None:
    settings = tool_settings(secured, "SASL_SSL", "PLAIN")
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(PASSWORD, "wrong-secret")
    path = str(write_properties(tmp_path / "client.properties", settings))
    server = ("--bootstrap-server", secured.bootstrap("SASL_SSL"))
    listed = run_module("admin.topics", *server, "--command-config", path, "--list")
    assert listed.status == 1
    assert "Invalid username or password" in listed.stderr
    assert "wrong-secret" not in listed.stderr


def test_logins_are_counted(secured: SecuredBroker, tmp_path: Path) -> None:
    """As attributes of Kafka's object, for each listener."""
    name = "kafka_server_socket_server_metrics_{}_authentication_total"
    before = scrape(secured)
    for password, status in ((PASSWORD, 0), ("wrong", 1)):
        settings = secured.java("SASL_PLAINTEXT", "PLAIN", password)
        path = str(write_properties(tmp_path / "client.properties", settings))
        server = ("--bootstrap-server", secured.bootstrap("SASL_PLAINTEXT"))
        assert run_module("admin.topics", *server, "--command-config", path, "--list").status == status
    after = scrape(secured)
    for outcome in ("successful", "failed"):
        key = f'{name.format(outcome)}{{listener="SASL_PLAINTEXT",networkProcessor="0"}}'
        assert after[key] > before[key]


def scrape(secured: SecuredBroker) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{secured.metrics_port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines) if not key.startswith("#")}
