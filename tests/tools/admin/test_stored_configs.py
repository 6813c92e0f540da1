"""kafka-configs on the metadata store, in ZooKeeper or embedded, before the first broker starts or while it is down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.broker_properties import BACKGROUND_THREADS
from controller.embedded.sqlite_store import METADATA_FILE
from tests.support.in_process import running_broker
from tests.support.parts import skip_when_unavailable
from tests.support.processes import closed_port
from tests.support.zookeeper import SASL_PASSWORD, SASL_USER, SecuredZooKeeper
from tests.tools.conftest import RunTool, run_module
from tools.admin import configs
from tools.zookeeper import zookeeper_security_migration, zookeeper_shell
from tools.zookeeper.legacy_zookeeper import DEPRECATED as DEPRECATED_TEXT

DEPRECATED = f"WARNING: {DEPRECATED_TEXT}\n"
ALICE = ("--entity-type", "users", "--entity-name", "alice")
KEY_PASSWORD = "listener.name.tls.ssl.key.password=hush"
SECRET = "SCRAM-SHA-512=[password=alice secret]"


def test_user_exists_when_the_first_broker_starts(run: RunTool, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    store = ("--zookeeper", f"sqlite:{first}")
    added = run(configs.main, *store, "--alter", "--add-config", f"{SECRET},SCRAM-SHA-256=[password=x]", *ALICE)
    assert added == (0, "Completed updating config for entity: user-principal 'alice'.\n", "")
    line = "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096, "
    described = run(configs.main, *store, "--describe", "--entity-type", "users")
    assert described == (0, line + "SCRAM-SHA-512=iterations=4096\n", "")

    async def credential() -> bool:
        async with running_broker(first, {"log.dirs": f"{first},{second}"}) as broker:
            return broker.services.scram_credentials.credential("alice", "SCRAM-SHA-512") is not None

    assert asyncio.run(credential())
    assert (second / METADATA_FILE).exists()
    deleted = run(configs.main, *store, "--alter", "--delete-config", "SCRAM-SHA-512", *ALICE)
    assert deleted.status == 0
    assert not asyncio.run(credential())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--alter", "--add-config", "SCRAM-SHA-512=[password=x]", "--entity-type", "users"), "must be specified"),
        (("--alter", "--add-config", "producer_byte_rate=1,SCRAM-SHA-256=[password=x]", *ALICE), "simultaneously"),
        (("--alter", "--add-config", "SCRAM-SHA-256=[password=x]", "--user-defaults"), "belong to a user"),
        (("--alter", "--add-config", "producer_byte_rate=fast", *ALICE), "Cannot parse quota configuration value"),
        (("--alter", "--add-config", "producer_byte_rate=-1", *ALICE), "must be a number that is not negative"),
        (("--alter", "--add-config", "nosuch=1", *ALICE), "Invalid configuration key nosuch"),
        (("--alter", "--add-config", "producer_byte_rate=1", "--ip", "127.0.0.1"), "Invalid configuration key"),
        (("--alter", "--add-config", "retention.ms=soon", "--topic", "t"), "Invalid value soon"),
        (("--alter", "--add-config", "nosuch=1", "--topic", "t"), "Unknown topic config name: nosuch"),
        (("--alter", "--add-config", "retention.ms=1", "--topic", "t"), "expected a broker's log directory"),
        (("--alter", "--add-config", "log.dirs=/x", "--broker", "0"), "log.dirs does not change without a restart"),
        (("--alter", "--add-config", "num.io.threads=none", "--broker-defaults"), "Invalid value none"),
        (("--alter", "--add-config", KEY_PASSWORD, "--broker", "0"), "add password.encoder.secret=SECRET"),
        (("--describe", "--entity-type", "broker-loggers", "--entity-name", "0"), "has no broker-loggers"),
        (("--describe", "--all", *ALICE), "--bootstrap-server must be specified for --all"),
        (("--alter", "--delete-config", "SCRAM-SHA-512", *ALICE), "Invalid config(s): SCRAM-SHA-512"),
        (("--alter", "--add-config", "SCRAM-SHA-512=[iterations=1,password=x]", *ALICE), "less than the minimum 4096"),
        (("--describe", "--entity-type", "topics"), "does not exist"),
        (("--describe", *ALICE, "--bootstrap-server", "a:1"), "can't be used with"),
    ],
)
def test_impossible_change_is_an_error_that_names_it(
    run: RunTool, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    outcome = run(configs.main, "--zookeeper", f"sqlite:{tmp_path}", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert text in outcome.stderr
    assert "hush" not in outcome.stderr.splitlines()[0]


COMPLETED = "Completed updating config for entity: "


@pytest.mark.parametrize(
    ("entity", "added", "altered", "described"),
    [
        (
            ALICE,
            "producer_byte_rate=1024",
            "user-principal 'alice'",
            "user-principal 'alice' are producer_byte_rate=1024",
        ),
        (
            (*ALICE, "--client-defaults"),
            "request_percentage=50",
            "user-principal 'alice', default client-id",
            "user-principal 'alice', default client-id are request_percentage=50.0",
        ),
        (
            ("--entity-type", "clients", "--entity-name", "c", "--entity-type", "users", "--entity-default"),
            "consumer_byte_rate=7",
            "default user-principal, client-id 'c'",
            "default user-principal, client-id 'c' are consumer_byte_rate=7",
        ),
        (
            ("--ip", "127.0.0.1"),
            "connection_creation_rate=3",
            "ips '127.0.0.1'",
            "ips '127.0.0.1' are connection_creation_rate=3",
        ),
        (("--ip-defaults",), "connection_creation_rate=9", "default ips", "default ips are connection_creation_rate=9"),
        (("--broker", "7"), "background.threads=4", "brokers '7'", "brokers '7' are background.threads=4"),
        (("--broker-defaults",), "num.io.threads=5", "default brokers", "default brokers are num.io.threads=5"),
    ],
)
def test_overrides_are_stored_described_and_deleted(
    run: RunTool, tmp_path: Path, entity: tuple[str, ...], added: str, altered: str, described: str
) -> None:
    store = ("--zookeeper", f"sqlite:{tmp_path}")
    outcome = run(configs.main, *store, "--alter", "--add-config", added, *entity)
    assert outcome == (0, f"{COMPLETED}{altered}.\n", "")
    assert run(configs.main, *store, "--describe", *entity) == (0, f"Configs for {described}\n", "")
    removed = run(configs.main, *store, "--alter", "--delete-config", added.partition("=")[0], *entity)
    assert removed == (0, f"{COMPLETED}{altered}.\n", "")
    assert added not in run(configs.main, *store, "--describe", *entity).stdout


def test_all_log_directories_of_a_broker_are_changed_together(run: RunTool, tmp_path: Path) -> None:
    """Each has a copy of the metadata, and the start takes the one that was changed last."""
    first, second = tmp_path / "first", tmp_path / "second"
    both = f"sqlite:{first},{second}"
    user = ("--entity-type", "clients", "--entity-name", "c")
    assert run(configs.main, "--zookeeper", both, "--alter", "--add-config", "producer_byte_rate=1", *user).status == 0
    assert run(zookeeper_shell.main, both, "--write", "create", "/seen", "").status == 0
    for folder in (first, second):
        described = run(configs.main, "--zookeeper", f"sqlite:{folder}", "--describe", *user)
        assert "producer_byte_rate=1" in described.stdout
        assert "seen" in run(zookeeper_shell.main, f"sqlite:{folder}", "ls", "/").stdout


def test_types_of_kafka_0_9_are_printed_as_then(run: RunTool, tmp_path: Path) -> None:
    store = ("--zookeeper", f"sqlite:{tmp_path}")
    client = ("--entity-type", "clients", "--entity-name", "c")
    altered = run(configs.main, *store, "--alter", "--add-config", "producer_byte_rate=1,consumer_byte_rate=2", *client)
    assert altered == (0, 'Updated config for clientId: "c".\n', "")
    described = run(configs.main, *store, "--describe", "--entity-type", "clients")
    assert described == (0, "Configs for clients:c are consumer_byte_rate=2,producer_byte_rate=1\n", "")
    unknown = run(configs.main, *store, "--alter", "--add-config", "retention.ms=1", "--topic", "none")
    assert unknown == (1, "", "Topic 'none' does not exist\n")


def test_passwords_are_stored_encrypted_and_never_printed(run: RunTool, tmp_path: Path) -> None:
    store = ("--zookeeper", f"sqlite:{tmp_path}")
    added = f"{KEY_PASSWORD},password.encoder.secret=secret of the encoder"
    assert run(configs.main, *store, "--alter", "--add-config", added, "--broker", "0").status == 0
    described = run(configs.main, *store, "--describe", "--broker", "0")
    assert described.stdout == "Configs for brokers '0' are listener.name.tls.ssl.key.password=null\n"
    (node,) = run(zookeeper_shell.main, f"sqlite:{tmp_path}", "get", "/config/brokers/0").stdout.splitlines()
    assert "encryptedPassword" in node
    assert "hush" not in node
    assert "secret of the encoder" not in node


def test_a_broker_starts_with_what_was_stored(run: RunTool, tmp_path: Path) -> None:
    store = ("--zookeeper", f"sqlite:{tmp_path}")
    assert run(configs.main, *store, "--alter", "--add-config", "background.threads=4", "--broker-defaults").status == 0

    async def started() -> str:
        async with running_broker(tmp_path, {"log.dirs": str(tmp_path)}) as broker:
            alter = ("admin.configs", *store, "--alter", "--add-config", "background.threads=4", "--broker-defaults")
            refused = await asyncio.to_thread(run_module, *alter)
            assert refused.status == 1
            assert "in use by another process" in refused.stderr
            return str(broker.services.config[BACKGROUND_THREADS])

    assert asyncio.run(started()) == "4"


def test_missing_store_is_not_created_to_describe_it(run: RunTool, tmp_path: Path) -> None:
    outcome = run(configs.main, "--zookeeper", f"sqlite:{tmp_path / 'none'}", "--describe", *ALICE)
    assert outcome.status == 1
    assert "does not exist" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_unreachable_zookeeper_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.zookeeper.znode_trees.REACH_TIMEOUT_S", 0.2)
    with closed_port() as port:
        outcome = run(configs.main, "--zookeeper", f"127.0.0.1:{port}", "--describe", *ALICE)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr == (
        f"{DEPRECATED}Unable to connect to ZooKeeper 127.0.0.1:{port} within 0.2 s: expected host:port of a running "
        "server. If there is none, use --bootstrap-server\n"
    )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    with skip_when_unavailable(), SecuredZooKeeper(tmp_path_factory.mktemp("secured")) as server:
        yield server


@pytest.fixture
def tls_file(secured: SecuredZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of `--zk-tls-config-file`; the login is in KAFKA_OPTS."""
    file, jaas = tmp_path / "tls.properties", tmp_path / "client.jaas"
    file.write_text("".join(f"{key}={value}\n" for key, value in secured.tls_settings.items()))
    jaas.write_text(f"Client {{ {secured.login} }};\n")
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={jaas}")
    return file


def test_user_in_a_secured_zookeeper(run: RunTool, secured: SecuredZooKeeper, tls_file: Path) -> None:
    address = f"{secured.connect}/users"
    store = ("--zookeeper", address, "--zk-tls-config-file", str(tls_file))
    added = run(configs.main, *store, "--alter", "--add-config", SECRET, *ALICE)
    assert added == (0, "Completed updating config for entity: user-principal 'alice'.\n", DEPRECATED)
    shell = (zookeeper_shell.main, address, "-zk-tls-config-file", str(tls_file))
    assert "stored_key=" in run(*shell, "get", "/config/users/alice").stdout
    assert run(*shell, "getAcl", "/config/users/alice").stdout == f"'sasl,'{SASL_USER}\n: cdrwa\n"
    assert SASL_PASSWORD not in added.stdout + added.stderr


def test_nodes_become_secure_and_open_again(
    run: RunTool, secured: SecuredZooKeeper, tls_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{secured.connect}/migrated"
    tls = ("--zk-tls-config-file", str(tls_file))
    shell = (zookeeper_shell.main, address, "-zk-tls-config-file", str(tls_file))
    run(zookeeper_shell.main, secured.connect, "-zk-tls-config-file", str(tls_file), "create", "/migrated")
    for path in ("/brokers", "/brokers/ids", "/config", "/config/users", "/consumers", "/consumers/g", "/other"):
        run(*shell, "create", path)
    migrate = (zookeeper_security_migration.main, "--zookeeper.connect", address, *tls)
    everyone, reader, owner = "'world,'anyone\n: cdrwa\n", "'world,'anyone\n: r\n", f"'sasl,'{SASL_USER}\n: cdrwa\n"

    def acl(path: str) -> str:
        return run(*shell, "getAcl", path).stdout

    done = run(*migrate, "--zookeeper.acl", "secure")
    assert (done.status, done.stdout) == (0, "5 nodes are secure now\n"), done.stderr
    assert {acl("/brokers/ids"), acl("/config"), acl("/")} <= {owner + reader, reader + owner}
    assert acl("/config/users") == owner
    assert (acl("/consumers"), acl("/consumers/g"), acl("/other")) == (everyone, everyone, everyone)
    monkeypatch.delenv("KAFKA_OPTS")
    refused = run(*migrate, "--zookeeper.acl", "unsecure")
    assert (refused.status, "NoAuthError" in refused.stderr) == (1, True)
    anonymous = run(*migrate, "--zookeeper.acl", "secure")
    assert (anonymous.status, "would not know who" in anonymous.stderr) == (1, True)
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={tls_file.parent / 'client.jaas'}")
    assert run(*migrate, "--zookeeper.acl", "unsecure").stdout == "5 nodes are open to everyone now\n"
    assert acl("/config/users") == everyone


@pytest.mark.parametrize("value", ["", "both"])
def test_migration_needs_a_direction(run: RunTool, value: str) -> None:
    outcome = run(zookeeper_security_migration.main, "--zookeeper.acl", value)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "expected secure, unsecure" in outcome.stderr


def test_migration_accepts_the_option_of_0_9(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    with closed_port() as port:
        old = ("--zookeeper.connection", f"127.0.0.1:{port}", "--zookeeper.connection.timeout", "100")
        outcome = run(zookeeper_security_migration.main, *old, "--zookeeper.acl", "unsecure")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"Unable to connect to ZooKeeper 127.0.0.1:{port}")


def test_migration_of_no_cluster_changes_nothing(run: RunTool, secured: SecuredZooKeeper, tls_file: Path) -> None:
    run(zookeeper_shell.main, secured.connect, "-zk-tls-config-file", str(tls_file), "create", "/none")
    options = ("--zookeeper.connect", f"{secured.connect}/none", "--zk-tls-config-file", str(tls_file))
    outcome = run(zookeeper_security_migration.main, *options, "--zookeeper.acl=secure", "--enable.path.check")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "has no nodes of a cluster" in outcome.stderr
