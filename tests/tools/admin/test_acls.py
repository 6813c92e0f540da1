"""kafka-acls, over TLS and SASL, with the certificates of milena-certs."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.settings.sasl_settings import LOGIN_MODULES
from config.broker_properties import AUTHORIZERS
from tests.support.broker import BrokerProcess
from tests.support.processes import listening_ports
from tests.tools.conftest import Outcome, RunTool
from tools.admin import acls, topics
from tools.base.command_line import UnreachableError
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_security import client_security
from tools.client.client_settings import load_settings
from tools.launch import certs

PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}


class Secured:
    """A running broker with an authorizer, whose clients log in over TLS."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.folder = folder
        port = next(port for port in listening_ports(broker.pid) if port != broker.port)
        self.bootstrap = f"localhost:{port}"

    def config(self, user: str = "admin", **changes: str) -> str:
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{LOGIN_MODULES["PLAIN"]} required username="{user}" password="{PASSWORDS[user]}";',
            **{key.replace("_", "."): value for key, value in changes.items()},
        }
        path = self.folder / f"{user}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certs.make(folder / "certs", ["localhost", "127.0.0.1"])
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "certs" / "server.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{LOGIN_MODULES['PLAIN']} required {users};",
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:admin",
    }
    with BrokerProcess(folder / "broker", settings) as running:
        yield Secured(running, folder / "certs")


@pytest.fixture
def run_acls(run: RunTool, secured: Secured) -> Iterator[object]:
    def run_it(*arguments: str) -> Outcome:
        return run(acls.main, "--bootstrap-server", secured.bootstrap, "--command-config", secured.config(), *arguments)

    yield run_it
    for option in ("--topic", "--group", "--transactional-id"):
        for kind in ("literal", "prefixed"):
            for name in ("orders", "app-group", "team-", "*"):
                run_it("--remove", "--force", option, name, "--resource-pattern-type", kind)


def test_producer_option_adds_the_acls_of_a_producer(run_acls: RunTool) -> None:
    outcome = run_acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout == (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: \n"
        " \t(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)\n"
        "\t(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)\n"
        "\t(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW) \n\n"
    )


def test_consumer_option_adds_the_acls_of_a_consumer(run_acls: RunTool) -> None:
    arguments = ("--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "app-group")
    outcome = run_acls("--add", *arguments)
    assert outcome.stdout == (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: \n"
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW) \n\n"
        "Adding ACLs for resource `ResourcePattern(resourceType=GROUP, name=app-group, patternType=LITERAL)`: \n"
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW) \n\n"
    )


def test_acls_are_listed_and_removed(run_acls: RunTool) -> None:
    prefixed = ("--topic", "team-", "--resource-pattern-type", "prefixed")
    assert run_acls("--add", "--allow-principal", "User:bob", "--operation", "All", *prefixed).status == 0
    deny = ("--deny-principal", "User:eve", "--deny-host", "10.0.0.9", "--operation", "Read", "--topic", "*")
    assert run_acls("--add", *deny).status == 0
    listed = run_acls("--list", "--topic", "team-a", "--resource-pattern-type", "match")
    assert listed.stdout == (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=*, patternType=LITERAL)`: \n"
        " \t(principal=User:eve, host=10.0.0.9, operation=READ, permissionType=DENY) \n\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=team-, patternType=PREFIXED)`: \n"
        " \t(principal=User:bob, host=*, operation=ALL, permissionType=ALLOW) \n\n"
    )
    assert run_acls("--list", "--principal", "User:eve").stdout == (
        "ACLs for principal `User:eve`\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=*, patternType=LITERAL)`: \n"
        " \t(principal=User:eve, host=10.0.0.9, operation=READ, permissionType=DENY) \n\n"
    )
    assert run_acls("--remove", "--force", *prefixed).stdout == ""
    assert "User:bob" not in run_acls("--list").stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--add", "--topic", "x", "--operation", "Read"), "You must specify one of: --allow-principal"),
        (
            ("--add", "--allow-principal", "User:a", "--operation", "Nope", "--topic", "x"),
            "ResourceType TOPIC only supports",
        ),
        (("--add", "--allow-principal", "User:a"), "You must provide at least one resource"),
        (("--add", "--list"), "Command must include exactly one action"),
        (("--add", "--allow-principal", "User:a", "--consumer", "--topic", "x"), "With --consumer you must specify"),
        (
            ("--add", "--allow-principal", "User:a", "--topic", "x", "--resource-pattern-type", "any"),
            "not valid when adding",
        ),
    ],
)
def test_wrong_options_are_usage_errors(run_acls: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run_acls(*arguments)
    assert outcome.status == 1
    assert outcome.stderr.startswith(text) or text in outcome.stderr.splitlines()[0]


@pytest.mark.parametrize("principal", ["alice", "User:", ":alice"])
def test_principal_without_type_or_name_changes_nothing(run_acls: RunTool, principal: str) -> None:
    outcome = run_acls("--add", "--allow-principal", principal, "--topic", "x")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"expected a string in format principalType:principalName but got {principal}\n")


def test_user_without_permission_gets_the_error(run: RunTool, secured: Secured) -> None:
    outcome = run(
        acls.main, "--bootstrap-server", secured.bootstrap, "--command-config", secured.config("alice"), "--list"
    )
    assert outcome.status == 1
    assert "Cluster authorization failed" in outcome.stdout


def test_wrong_password_fails_at_once(run: RunTool, secured: Secured) -> None:
    jaas = f'{LOGIN_MODULES["PLAIN"]} required username="admin" password="wrong";'
    config = secured.config("alice", sasl_jaas_config=jaas)
    outcome = run(acls.main, "--bootstrap-server", secured.bootstrap, "--command-config", config, "--list")
    assert outcome.status == 1
    assert "Invalid username or password" in outcome.stdout
    assert "wrong" not in outcome.stdout + outcome.stderr


def test_untrusted_broker_fails_at_once(run: RunTool, secured: Secured, tmp_path: Path) -> None:
    certs.make(tmp_path, ["localhost"])
    config = secured.config("alice", ssl_truststore_location=str(tmp_path / "ca.pem"))
    outcome = run(topics.main, "--bootstrap-server", secured.bootstrap, "--command-config", config, "--list")
    assert outcome.status == 1
    text = outcome.stdout + outcome.stderr
    assert "SSL handshake failed: CERTIFICATE_VERIFY_FAILED: " in text
    assert "certificate" in text.partition("VERIFY_FAILED: ")[2]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_closed_connection_of_another_protocol_names_the_setting(secured: Secured, protocol: str) -> None:
    settings = load_settings(secured.config("alice"), [f"security.protocol={protocol}"])
    endpoint = parse_bootstrap(secured.bootstrap)
    with (
        AdminClient(endpoint, timeout_ms=300, security=client_security(settings)) as admin,
        pytest.raises(UnreachableError, match=rf"security\.protocol is {protocol}, expected \w+\. .*--command-config"),
    ):
        admin.metadata([])


def test_other_tools_log_in_as_well(run: RunTool, secured: Secured) -> None:
    options = ("--bootstrap-server", secured.bootstrap, "--command-config", secured.config())
    assert run(topics.main, *options, "--create", "--topic", "made").status == 0
    assert run(topics.main, *options, "--list").stdout == "made\n"


def test_the_zookeeper_of_authorizer_properties_names_the_brokers(
    run: RunTool, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def use_brokers(line: object, options: Namespace) -> None:
        asked.append(options.zookeeper)
        options.bootstrap_server = secured.bootstrap

    monkeypatch.setattr(acls, "use_brokers_of_zookeeper", use_brokers)
    old = ("--authorizer", "kafka.security.auth.SimpleAclAuthorizer")
    properties = ("--authorizer-properties", "zookeeper.connect=zoo:2181/chroot")
    outcome = run(acls.main, *old, *properties, "--command-config", secured.config(), "--list")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert asked == ["zoo:2181/chroot"]
