"""Three brokers that log in to each other over TLS, by each SASL mechanism, and again before their logins end.

`bin/test` starts a cluster for one mechanism; the others have the marker `soak`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.network.outgoing import LOGIN_SHARE
from broker.settings.sasl_settings import LOGIN_MODULES
from config.broker_properties import AUTHORIZERS
from tests.support.broker import ROOT
from tests.support.certificates import Stores
from tests.support.cluster import Cluster
from tests.support.identity_provider import IdentityProvider
from tests.support.java import pyspark_jars
from tests.support.kerberos import REALM, KeyDistributionCenter
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess

DEADLINE_S = 60
LOGIN_MS = 2_000
MARGIN_S = (1 - LOGIN_SHARE) * LOGIN_MS / 1000
"""Between the time at which a broker logs in again and the end of its login."""
USER, PASSWORD = "broker", "between brokers"
ONE = "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
TLS_ALONE = "SSL"

pytestmark = [pytest.mark.slow]


def add_scram_user(zookeeper: ZooKeeperProcess, mechanism: str) -> None:
    """Add the brokers' user before the first broker starts."""
    command = [sys.executable, "-P", "-m", "tools.admin.configs", "--zookeeper", zookeeper.connect, "--alter"]
    setting = f"{mechanism}=[password={PASSWORD}]"
    subprocess.run(
        [*command, "--entity-type", "users", "--entity-name", USER, "--add-config", setting],
        check=True,
        capture_output=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT)},
    )


def mechanism_settings(mechanism: str, folder: Path, undo: ExitStack) -> dict[str, str]:
    """Return the settings of a mechanism; `undo` ends what it needs."""
    options = f'username="{USER}" password="{PASSWORD}"'
    settings: dict[str, str] = {}
    match mechanism:
        case "PLAIN":
            options += f' user_{USER}="{PASSWORD}"'
        case "OAUTHBEARER":
            options = 'unsecuredLoginStringClaim_other="unused"'
            provider = IdentityProvider()
            (folder / "token.jwt").write_text(provider.token({"sub": USER, "exp": int(time.time()) + 3600}))
            settings["sasl.oauthbearer.jwks.endpoint.url"] = provider.publish(folder / "keys.json")
            settings["sasl.oauthbearer.token.endpoint.url"] = (folder / "token.jwt").as_uri()
        case "GSSAPI":
            center = undo.enter_context(KeyDistributionCenter(folder / "kerberos"))
            principal = f"{USER}/localhost"
            keytab = center.keytab("brokers", [principal])
            options = f'useKeyTab="true" keyTab="{keytab}" principal="{principal}@{REALM}"'
            settings["sasl.kerberos.service.name"] = USER
            patch = undo.enter_context(pytest.MonkeyPatch.context())
            for name, value in center.environment.items():
                patch.setenv(name, value)
    settings[f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config"] = (
        f"{LOGIN_MODULES[mechanism]} required {options};"
    )
    return settings


class SaslCluster(Cluster):
    """A cluster whose SCRAM user exists before its brokers."""

    def __init__(self, folder: Path, settings: Mapping[str, str], mechanism: str) -> None:
        super().__init__(folder, settings=settings)
        self._mechanism = mechanism

    def add_broker(self, broker_id: int):
        if broker_id == 1 and self._mechanism.startswith("SCRAM"):
            add_scram_user(self.zookeeper, self._mechanism)
        return super().add_broker(broker_id)


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SaslCluster]:
    mechanism: str = request.param
    with skip_when_unavailable():
        pyspark_jars()
    stores = Stores(tmp_path / "stores")
    protocol = "SSL" if mechanism == TLS_ALONE else "SASL_SSL"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://localhost:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INTERNAL:{protocol}",
        "inter.broker.listener.name": "INTERNAL",
        "connections.max.reauth.ms": str(LOGIN_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("broker", "broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca),
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": f"User:{USER};User:ANONYMOUS",
    }
    with ExitStack() as undo:
        if mechanism == TLS_ALONE:
            settings["listener.name.internal.ssl.client.auth"] = "required"
            settings["super.users"] += ";User:OU=tests,CN=broker,O=trustme v1"
            settings["listener.name.internal.ssl.principal.mapping.rules"] = f"RULE:^.*CN=(broker).*$/{USER}/"
        else:
            settings["sasl.enabled.mechanisms"] = settings["sasl.mechanism.inter.broker.protocol"] = mechanism
            with skip_when_unavailable():
                settings |= mechanism_settings(mechanism, tmp_path, undo)
        yield undo.enter_context(SaslCluster(tmp_path / "cluster", settings, mechanism))


@pytest.mark.parametrize(
    "running",
    [
        pytest.param(one, marks=[] if one == ONE else [pytest.mark.soak, pytest.mark.timeout(300)])
        for one in (*MECHANISMS, TLS_ALONE)
    ],
    indirect=True,
)
def test_brokers_replicate_and_log_in_again(running: SaslCluster) -> None:
    topic = "replicated"
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all"})
    failures: list[object] = []
    waits_before_s = running.processor_waits_s()
    until_s = time.monotonic() + 2.5 * LOGIN_MS / 1000
    number = 0
    while time.monotonic() < until_s:  # longer than a login is valid
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % 3,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        number += 1
        producer.poll(0.02)
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    running.wait_until_in_sync(topic)
    waits_s = [waited_s - waits_before_s[pid] for pid, waited_s in running.processor_waits_s().items()]
    text = "".join(path.read_text() for path in running.folder.glob("broker-*/server.log"))
    # A request that waits longer for a processor than the margin arrives when its login has ended, and is sent again
    # over a new connection. `tests/broker/network/test_outgoing.py` shows that logins are repeated in time.
    assert "its login has expired" not in text or sum(waits_s) > MARGIN_S, f"waited {waits_s} s for processors"
    assert not re.search("Failed authentication", text)
    assert PASSWORD not in text
