"""Logins to a real ZooKeeper by Kerberos, with tickets of a real key distribution center."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from kazoo.security import ACL, Id, Permissions

from broker.settings.client_login import Surroundings
from broker.settings.security_sources import InvalidSecurityError
from broker.settings.zookeeper_settings import zookeeper_settings
from config.broker import BrokerConfig
from controller.store.state_store import StoreUnavailable
from controller.zookeeper.connection import new_client
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.support.kerberos import REALM, KeyDistributionCenter
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import KerberosZooKeeper

BROKER = f"kafka/127.0.0.1@{REALM}"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyDistributionCenter]:
    with skip_when_unavailable(), KeyDistributionCenter(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest.fixture(scope="module")
def keytab(center: KeyDistributionCenter) -> Path:
    return center.keytab("broker", [BROKER])


@pytest.fixture(scope="module")
def server(center: KeyDistributionCenter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosZooKeeper]:
    with skip_when_unavailable(), KerberosZooKeeper(tmp_path_factory.mktemp("zookeeper"), center) as process:
        yield process


@pytest.fixture(autouse=True)
def _environment(center: KeyDistributionCenter, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in center.environment.items():
        monkeypatch.setenv(name, value)


def settings(server: KerberosZooKeeper, login: str, **others: str) -> ZooKeeperSettings:
    values = {
        "zookeeper.connect": server.connect,
        "zookeeper.connection.timeout.ms": "3000",
        "zookeeper.set.acl": "true",
        "zookeeper.sasl.jaas.config": login,
        **{key.replace("_", "."): value for key, value in others.items()},
    }
    found = zookeeper_settings(
        BrokerConfig.from_properties(values), Surroundings(Random(1), lambda: time.time_ns() // 1_000_000)
    )
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


def owners(server: KerberosZooKeeper, path: str) -> list[ACL]:
    client = new_client(
        server.connect,
        settings(server, "a.B required;", zookeeper_set_acl="false", zookeeper_sasl_client="false").security,
    )
    try:
        client.start()
        return [one for one in client.get_acls(path)[0] if one.id.scheme == "sasl"]
    finally:
        client.stop()
        client.close()


def with_keytab(keytab: Path, principal: str = BROKER) -> str:
    return f'{MODULE} useKeyTab="true" keyTab="{keytab}" principal="{principal}";'


async def test_nodes_belong_to_the_principal_of_the_keytab(server: KerberosZooKeeper, keytab: Path) -> None:
    async with opened(settings(server, with_keytab(keytab))) as store:
        await store.create("/brokers")
        server.stop()
        server.start()
        await store.create("/brokers/one")  # logged in again
    for path in ("/brokers", "/brokers/one"):
        assert owners(server, path) == [ACL(Permissions.ALL, Id("sasl", BROKER))]


async def test_ticket_of_a_cache(server: KerberosZooKeeper, center: KeyDistributionCenter, keytab: Path) -> None:
    cache = center.cache(keytab, BROKER)
    async with opened(settings(server, f'{MODULE} useTicketCache="true" ticketCache="{cache}";')) as store:
        await store.create("/cached")
    assert owners(server, "/cached") == [ACL(Permissions.ALL, Id("sasl", BROKER))]


async def test_missing_service_is_named_and_tried_again(server: KerberosZooKeeper, keytab: Path) -> None:
    wanted = settings(server, with_keytab(keytab), zookeeper_sasl_client_username="keeper")
    with pytest.raises(StoreUnavailable, match=r"no login to ZooKeeper at 127\.0\.0\.1: .*keeper/127\.0\.0\.1"):
        async with opened(wanted):
            pass


@pytest.mark.parametrize(
    ("login", "text"),
    [
        (f"{MODULE};", "useTicketCache"),
        (f'{MODULE} useKeyTab="true" keyTab="/none" principal="{BROKER}";', "no login to ZooKeeper"),
    ],
)
async def test_invalid_login_is_named(server: KerberosZooKeeper, login: str, text: str) -> None:
    with pytest.raises((InvalidSecurityError, StoreUnavailable), match=text):
        async with opened(settings(server, login)):
            pass
