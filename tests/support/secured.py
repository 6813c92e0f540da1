"""A broker whose listeners offer every protocol and every mechanism, and the settings with which clients log in.

Owns: users, keys, certificates, tokens and the broker process. Of clients it knows only the names of their settings.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka.admin as confluent

from broker.settings.sasl_settings import LOGIN_MODULES
from tests.support.broker import BrokerProcess
from tests.support.certificates import Stores
from tests.support.identity_provider import IdentityProvider
from tests.support.kerberos import REALM, KeyDistributionCenter
from tests.support.processes import listening_ports

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
USER, PASSWORD = "alice", "correct horse, battery=staple"
SERVICE = "kafka"
DEADLINE_S = 30


class SecuredBroker:
    """One broker; a context manager. With `kerberos` it needs a key distribution center, which it starts."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, kerberos: bool = True) -> None:
        self.folder = folder
        self._settings = settings or {}
        self._undo = ExitStack()
        self._has_kerberos = kerberos
        self.mechanisms = MECHANISMS if kerberos else MECHANISMS[:-1]
        self.ports: dict[str, int] = {}
        self.metrics_port = 0
        self.broker: BrokerProcess
        self.center: KeyDistributionCenter | None = None
        self.keytab: Path | None = None
        self.provider = IdentityProvider()
        folder.mkdir(parents=True, exist_ok=True)
        self.stores = Stores(folder / "stores")
        self.trusted = self.stores.ca
        self.token_file = folder / "token.jwt"

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            modules = {
                "PLAIN": f'user_{USER}="{PASSWORD}"',
                "SCRAM-SHA-256": "",
                "SCRAM-SHA-512": "",
                "OAUTHBEARER": "",
            }
            if self._has_kerberos:
                self.center = undo.enter_context(KeyDistributionCenter(self.folder / "kerberos"))
                # Clients name the host as their bootstrap servers do.
                server = self.center.keytab("server", [f"{SERVICE}/localhost"])
                self.keytab = self.center.keytab("alice", [USER])
                modules["GSSAPI"] = f'useKeyTab="true" keyTab="{server}" principal="{SERVICE}/localhost@{REALM}"'
                cache = self.center.cache(self.keytab, USER)
                self._change_environment(undo, {**self.center.environment, "KRB5CCNAME": f"FILE:{cache}"})
            settings = {
                "listeners": ",".join(f"{name}://localhost:0" for name in PROTOCOLS),
                "inter.broker.listener.name": "PLAINTEXT",
                "metrics.http.listener": "127.0.0.1:0",
                "sasl.enabled.mechanisms": ",".join(self.mechanisms),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.stores.issue("server", "server")),
                "sasl.kerberos.service.name": SERVICE,
                "sasl.oauthbearer.jwks.endpoint.url": self.provider.publish(self.folder / "keys.json"),
                "sasl.oauthbearer.expected.audience": "kafka",
                "connection.failed.authentication.delay.ms": "50",
                **{
                    f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config": (
                        f"{LOGIN_MODULES[mechanism]} required {options};"
                    )
                    for name in PROTOCOLS[2:]
                    for mechanism, options in modules.items()
                },
                **self._settings,
            }
            self.broker = undo.enter_context(BrokerProcess(self.folder / "broker", settings))
            # The broker opens its listeners in their order, so their descriptors are in that order too.
            *ports, self.metrics_port = dict.fromkeys(listening_ports(self.broker.pid))  # a port may have two
            self.ports = dict(zip(PROTOCOLS, ports, strict=True))
            admin = confluent.AdminClient({"bootstrap.servers": f"localhost:{self.ports['PLAINTEXT']}"})
            upsertions = [
                confluent.UserScramCredentialUpsertion(
                    USER, confluent.ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
                )
                for mechanism in (confluent.ScramMechanism.SCRAM_SHA_256, confluent.ScramMechanism.SCRAM_SHA_512)
            ]
            admin.alter_user_scram_credentials(upsertions)[USER].result(DEADLINE_S)
            self.token_file.write_text(self.token())
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._undo.close()

    def token(self, **changes: Any) -> str:
        return self.provider.token({"sub": USER, "exp": int(time.time()) + 3600, "aud": "kafka", **changes})

    def bootstrap(self, protocol: str) -> str:
        return f"localhost:{self.ports[protocol]}"

    def java(self, protocol: str, mechanism: str = "", password: str = PASSWORD) -> dict[str, str]:
        """Settings of Java's clients, and of Milena's tools."""
        settings = {"bootstrap.servers": self.bootstrap(protocol), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trusted)}
        if mechanism:
            options = f'username="{USER}" password="{password}"'
            if mechanism == "GSSAPI":
                options = f'useKeyTab="true" storeKey="true" keyTab="{self.keytab}" principal="{USER}@{REALM}"'
                settings["sasl.kerberos.service.name"] = SERVICE
            elif mechanism == "OAUTHBEARER":
                options = ""
            settings["sasl.mechanism"] = mechanism
            settings["sasl.jaas.config"] = f"{LOGIN_MODULES[mechanism]} required {options};"
        return settings

    def librdkafka(self, protocol: str, mechanism: str = "", password: str = PASSWORD) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap(protocol), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.trusted)
        if mechanism:
            settings["sasl.mechanism"] = mechanism
        if mechanism == "GSSAPI":
            settings |= {
                "sasl.kerberos.service.name": SERVICE,
                "sasl.kerberos.keytab": str(self.keytab),
                "sasl.kerberos.principal": f"{USER}@{REALM}",
            }
        elif mechanism == "OAUTHBEARER":
            settings["oauth_cb"] = lambda _: (self.token(), time.time() + 3000)
        elif mechanism:
            settings |= {"sasl.username": USER, "sasl.password": password}
        return settings

    def python(self, protocol: str, mechanism: str = "", password: str = PASSWORD) -> dict[str, Any]:
        """Settings of kafka-python and aiokafka, without those of OAUTHBEARER, which are objects of each."""
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap(protocol), "security_protocol": protocol}
        if protocol.endswith("SSL"):
            settings["ssl_context"] = ssl.create_default_context(cafile=str(self.trusted))
        if mechanism:
            settings["sasl_mechanism"] = mechanism
        if mechanism == "GSSAPI":
            settings |= {"sasl_kerberos_service_name": SERVICE, "sasl_kerberos_domain_name": "localhost"}
        elif mechanism and mechanism != "OAUTHBEARER":
            settings |= {"sasl_plain_username": USER, "sasl_plain_password": password}
        return settings

    @staticmethod
    def _change_environment(undo: ExitStack, variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            before = os.environ.get(name)
            os.environ[name] = value
            if before is None:
                undo.callback(os.environ.pop, name, None)
            else:
                undo.callback(os.environ.__setitem__, name, before)
