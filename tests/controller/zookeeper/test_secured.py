"""A real ZooKeeper with TLS and logins: who gets a session, and which access the created nodes have."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

import pytest
from kazoo.security import ACL, Id, Permissions

from broker.settings.client_login import Surroundings
from broker.settings.security_sources import InvalidSecurityError
from broker.settings.zookeeper_settings import zookeeper_settings
from config.broker import BrokerConfig
from controller.store.state_store import Create, StoreUnavailable
from controller.zookeeper.connection import new_client
from controller.zookeeper.security import Access, access_of
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.support.certificates import STORE_PASSWORD, Stores
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import SASL_USER, SecuredZooKeeper, digest_login

READ_BY_ALL = ACL(Permissions.READ, Id("world", "anyone"))
OPEN = [ACL(Permissions.ALL, Id("world", "anyone"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    with skip_when_unavailable(), SecuredZooKeeper(tmp_path_factory.mktemp("secured")) as process:
        yield process


def settings(server: SecuredZooKeeper, **others: str | None) -> ZooKeeperSettings:
    """Return the settings of a client; keyword arguments have underscores for dots, None removes."""
    values: dict[str, str | None] = {
        "zookeeper.connect": f"{server.connect}/{uuid.uuid4().hex}",
        "zookeeper.connection.timeout.ms": "6000",
        **server.tls_settings,
        **{key.replace("_", "."): value for key, value in others.items()},
    }
    config = BrokerConfig.from_properties({key: value for key, value in values.items() if value is not None})
    found = zookeeper_settings(config, Surroundings(Random(1), lambda: 0))
    assert found is not None
    return found


@asynccontextmanager
async def opened(wanted: ZooKeeperSettings) -> AsyncIterator[ZooKeeperStore]:
    store = ZooKeeperStore(wanted)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def access(server: SecuredZooKeeper, wanted: ZooKeeperSettings, path: str) -> list[ACL]:
    client = new_client(server.connect, wanted.security)
    try:
        client.start()
        return sorted(client.get_acls(wanted.chroot + path)[0])
    finally:
        client.stop()
        client.close()


async def test_nodes_of_a_logged_in_client_belong_to_it(server: SecuredZooKeeper) -> None:
    wanted = settings(server, zookeeper_set_acl="true", zookeeper_sasl_jaas_config=server.login)
    creator = ACL(Permissions.ALL, Id("sasl", SASL_USER))
    async with opened(wanted) as store:
        for path in ("/brokers", "/config", "/config/users", "/config/users/alice", "/consumers", "/consumers/group"):
            await store.create(path, b"data")
        await store.multi([Create("/brokers/one"), Create("/brokers/seq", b"", sequential=True)])
    assert access(server, wanted, "/brokers") == [READ_BY_ALL, creator]
    assert access(server, wanted, "/brokers/one") == [READ_BY_ALL, creator]
    assert access(server, wanted, "/config/users") == [creator]
    assert access(server, wanted, "/config/users/alice") == [creator]
    assert access(server, wanted, "/consumers") == OPEN
    assert access(server, wanted, "/consumers/group") == [READ_BY_ALL, creator]
    assert access(server, wanted, "") == [READ_BY_ALL, creator]


async def test_nodes_of_a_client_with_a_certificate_belong_to_its_subject(server: SecuredZooKeeper) -> None:
    own = server.stores.issue("client", "broker one")
    wanted = settings(server, zookeeper_set_acl="true", zookeeper_ssl_keystore_location=str(own))
    async with opened(wanted) as store:
        await store.create("/brokers")
    (owner,) = [one for one in access(server, wanted, "/brokers") if one != READ_BY_ALL]
    assert owner.id.scheme == "x509"
    assert "CN=broker one" in owner.id.id


async def test_without_set_acl_nodes_are_open(server: SecuredZooKeeper) -> None:
    wanted = settings(server, zookeeper_sasl_jaas_config=server.login)
    async with opened(wanted) as store:
        await store.create("/config")
    assert access(server, wanted, "/config") == OPEN


async def test_login_of_a_jaas_file(server: SecuredZooKeeper, tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"KafkaServer {{ a.B required; }};\nOther {{\n  {server.login}\n}};\n")
    wanted = settings(
        server,
        zookeeper_set_acl="true",
        java_security_auth_login_config=str(jaas),
        zookeeper_sasl_clientconfig="Other",
    )
    async with opened(wanted) as store:
        await store.create("/brokers")
    assert ACL(Permissions.ALL, Id("sasl", SASL_USER)) in access(server, wanted, "/brokers")


@pytest.mark.parametrize(("user", "password"), [(SASL_USER, "wrong"), ("nobody", "wrong")])
async def test_wrong_login_is_named_and_its_password_is_not(
    server: SecuredZooKeeper, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    wanted = settings(server, zookeeper_sasl_jaas_config=digest_login(user, password))
    with pytest.raises(StoreUnavailable, match=f"refuses the login of {user}"):
        async with opened(wanted):
            pass
    assert "password" not in caplog.text.replace("keystore_password", "")


async def test_login_is_repeated_on_a_new_connection(server: SecuredZooKeeper) -> None:
    wanted = settings(server, zookeeper_set_acl="true", zookeeper_sasl_jaas_config=server.login)
    async with opened(wanted) as store:
        await store.create("/config")
        await store.create("/config/users", b"secret")
        server.stop()
        server.start()
        assert (await store.get("/config/users")).data == b"secret"
        await store.create("/config/users/bob")
    assert access(server, wanted, "/config/users/bob") == [ACL(Permissions.ALL, Id("sasl", SASL_USER))]


@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
async def test_trust_stores_of_java(server: SecuredZooKeeper, store_type: str) -> None:
    wanted = settings(
        server,
        zookeeper_ssl_truststore_location=str(server.stores.trust_store(store_type)),
        zookeeper_ssl_truststore_type=store_type,
        zookeeper_ssl_truststore_password=STORE_PASSWORD,
    )
    async with opened(wanted) as store:
        assert await store.create("/brokers") == "/brokers"


async def test_large_responses_over_tls(server: SecuredZooKeeper) -> None:
    async with opened(settings(server)) as store:
        data = {f"/n{number}": bytes([number]) * 40_000 for number in range(60)}
        for path, value in data.items():
            await store.create(path, value)
        nodes = await store.get_many(list(data))
        assert [node and node.data for node in nodes] == list(data.values())


@contextmanager
def unavailable(text: str) -> Iterator[None]:
    with pytest.raises(StoreUnavailable, match=text):
        yield


async def reason_not_to_connect(server: SecuredZooKeeper, **changes: str) -> str:
    """The error of a connection that is refused; with more time if the machine was too slow to learn why."""
    for timeout_ms in (1_000, 4_000, 16_000, 64_000):
        with pytest.raises(StoreUnavailable) as refused:
            async with opened(settings(server, zookeeper_connection_timeout_ms=str(timeout_ms), **changes)):
                pass
        reason = str(refused.value)
        if not reason.endswith("(zookeeper.connection.timeout.ms)"):
            break
    return reason


async def test_certificate_of_a_foreign_authority_is_refused(server: SecuredZooKeeper, tmp_path: Path) -> None:
    reason = await reason_not_to_connect(server, zookeeper_ssl_truststore_location=str(Stores(tmp_path).ca))
    assert "CERTIFICATE_VERIFY_FAILED" in reason


async def test_host_name_is_checked_unless_switched_off(server: SecuredZooKeeper) -> None:
    wrong = server.connect.replace("127.0.0.1", "127.1")  # the same address under a name that no certificate has
    assert re.search("CERTIFICATE_VERIFY_FAILED.*127.1", await reason_not_to_connect(server, zookeeper_connect=wrong))
    unchecked = settings(server, zookeeper_connect=wrong, zookeeper_ssl_endpoint_identification_algorithm="")
    async with opened(unchecked) as store:
        assert await store.exists("/none") is None


async def test_plaintext_client_on_the_tls_port_is_reported(server: SecuredZooKeeper) -> None:
    wanted = settings(server, zookeeper_ssl_client_enable="false", zookeeper_connection_timeout_ms="2000")
    with unavailable("no connection to ZooKeeper"):
        async with opened(wanted):
            pass


def test_set_acl_needs_an_identity() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", "zookeeper.set.acl": "true"})
    with pytest.raises(InvalidSecurityError, match=r"zookeeper\.set\.acl.*expected a login"):
        zookeeper_settings(config, Surroundings(Random(1), lambda: 0))


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable"),
        ({"zookeeper.ssl.truststore.location": "/none.pem"}, "/none.pem"),
        ({"zookeeper.ssl.truststore.type": "BKS"}, "expected one of"),
        ({"zookeeper.ssl.protocol": "SSLv3"}, "SSLv3 is unknown"),
        ({"zookeeper.sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required;"}, "not available"),
        ({"zookeeper.sasl.jaas.config": "nonsense"}, "zookeeper.sasl.jaas.config"),
        ({"java.security.auth.login.config": "/none.conf"}, "/none.conf"),
    ],
)
def test_settings_that_stop_the_start(others: dict[str, str], text: str) -> None:
    values = {"zookeeper.connect": "localhost:2181", "zookeeper.ssl.client.enable": "true", **others}
    with pytest.raises(InvalidSecurityError, match=text):
        zookeeper_settings(BrokerConfig.from_properties(values), Surroundings(Random(1), lambda: 0))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", Access.READABLE),
        ("/consumers", Access.OPEN),
        ("/config/topics/t", Access.READABLE),
        ("/config/users", Access.CREATOR),
        ("/config/users/alice/clients", Access.CREATOR),
        ("/config/brokers/0", Access.CREATOR),
        ("/delegation_token", Access.READABLE),
        ("/delegation_token/tokens/id", Access.CREATOR),
    ],
)
def test_sensitive_nodes_are_hidden(path: str, expected: Access) -> None:
    assert access_of(path, is_secure=True) is expected
    assert access_of(path, is_secure=False) is Access.OPEN
