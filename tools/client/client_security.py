"""TLS and SASL of the administration tools, from the settings of Kafka's Java clients.

Owns which settings say how a connection is encrypted and who logs in. Must not know requests: the caller sends the
tokens of a login.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from base.jaas import JaasError, LoginModule, parse_entry
from tools.base.command_line import InvalidSettingsError

if TYPE_CHECKING:
    import ssl

    from base.key_stores.material import StoreSource
    from broker.network.sasl.clients import SaslClient
    from broker.settings.client_login import LoginSettings, Surroundings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
KNOWN_KEYS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.kerberos.service.name",
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        *(
            f"ssl.{store}.{what}"
            for store in ("keystore", "truststore")
            for what in ("type", "location", "password", "certificates", "certificate.chain", "key")
        ),
        "ssl.key.password",
    }
)


@dataclass(frozen=True)
class Security:
    """How the connections of one client are secured."""

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    new_login: Callable[[str], SaslClient] | None = None
    """Returns the client of a login to a host. Raises ServerNotTrusted."""

    @property
    def protocol(self) -> str:
        """The `security.protocol` of these connections."""
        return f"{'SASL_' if self.new_login else ''}{'SSL' if self.tls else 'PLAINTEXT'}"

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """Return the encrypted socket after its handshake, or `plain` without TLS. Raises ssl.SSLError."""
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=host)

    def tls_failure(self, error: OSError) -> str | None:
        """Return the reason if an error is one of TLS; None for others."""
        if self.tls is None:
            return None
        import ssl  # most clients connect without it

        if not isinstance(error, ssl.SSLError):
            return None
        reason = error.reason or str(error)
        return f"{reason}: {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else reason


def client_security(settings: Mapping[str, str]) -> Security:
    """Raises InvalidSettingsError."""
    protocol = security_protocol(settings)
    tls = _tls_context(settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    return Security(tls, mechanism, _login(mechanism, settings))


def security_protocol(settings: Mapping[str, str]) -> str:
    """Return one of `PROTOCOLS`. Raises InvalidSettingsError."""
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise InvalidSettingsError(
            f"Invalid value {protocol} for configuration security.protocol: expected one of {', '.join(PROTOCOLS)}"
        )
    return protocol


def _login(mechanism: str, settings: Mapping[str, str]) -> Callable[[str], SaslClient]:
    # Only clients that log in need it.
    from broker.settings.client_login import MECHANISMS, InvalidLoginError, new_clients

    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise InvalidSettingsError(
            f"Invalid value {mechanism} for configuration sasl.mechanism: expected one of {known}"
        )
    try:
        return new_clients(mechanism, login_module(settings).options, *login_settings(settings))
    except InvalidLoginError as error:
        raise InvalidSettingsError(f"Invalid value [hidden] for configuration sasl.jaas.config: {error}") from error


def login_settings(settings: Mapping[str, str]) -> tuple[LoginSettings, Surroundings]:
    """Return what a login needs beside its login module."""
    from random import SystemRandom

    from broker.settings.client_login import LoginSettings, Surroundings

    login = LoginSettings(
        kerberos_service_name=settings.get("sasl.kerberos.service.name"),
        token_endpoint_url=settings.get("sasl.oauthbearer.token.endpoint.url"),
    )
    return login, Surroundings(SystemRandom(), lambda: time.time_ns() // 1_000_000)


def login_module(settings: Mapping[str, str]) -> LoginModule:
    """Return the one module of `sasl.jaas.config`. Raises InvalidSettingsError."""
    try:
        return parse_entry(settings.get("sasl.jaas.config", ""))
    except JaasError as error:
        raise InvalidSettingsError(f"Invalid value [hidden] for configuration sasl.jaas.config: {error}") from None


def stores(settings: Mapping[str, str]) -> tuple[StoreSource, StoreSource]:
    """Return the key store and the trust store."""
    from base.key_stores.material import StoreSource  # only clients with TLS need its library

    def source(store: str, certificates: str) -> StoreSource:
        return StoreSource(
            settings.get(f"ssl.{store}.type", "JKS").strip().upper(),
            settings.get(f"ssl.{store}.location"),
            settings.get(f"ssl.{store}.password"),
            settings.get("ssl.key.password"),
            settings.get("ssl.keystore.key") if store == "keystore" else None,
            settings.get(certificates),
        )

    return source("keystore", "ssl.keystore.certificate.chain"), source("truststore", "ssl.truststore.certificates")


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    from base.key_stores.material import InvalidStoreError, as_pem, read_identity, read_trusted
    from broker.network.tls import TlsError, TlsParameters, WeakIdentityError, client_context

    key_store, trust_store = stores(settings)
    versions = settings.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")
    suites = [suite.strip() for suite in settings.get("ssl.cipher.suites", "").split(",") if suite.strip()]
    try:
        return client_context(
            read_identity(key_store).pem if key_store.is_given else None,
            as_pem(read_trusted(trust_store)) if trust_store.is_given else None,
            TlsParameters([version.strip() for version in versions], suites),
            checks_host=settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "https",
        )
    except WeakIdentityError as error:
        raise InvalidSettingsError(f"the {key_store}: {error}") from error
    except (InvalidStoreError, TlsError) as error:
        raise InvalidSettingsError(str(error)) from error
