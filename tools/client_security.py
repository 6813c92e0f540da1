"""TLS and SASL of the administration tools, from the settings of Kafka's Java clients.

Owns which settings say how a connection is encrypted and who logs in. Must not know requests: the caller sends the
tokens of a login.
"""

import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.jaas import JaasError, LoginModule, parse_entries
from tools.command_line import UsageError

if TYPE_CHECKING:
    from broker.network.sasl.clients import SaslClient

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
KNOWN_KEYS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
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
    new_login: "Callable[[], SaslClient] | None" = None

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """Return the encrypted socket after its handshake, or `plain` without TLS. Raises ssl.SSLError."""
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=host)


def client_security(settings: Mapping[str, str]) -> Security:
    """Raises UsageError."""
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"Invalid value {protocol} for configuration security.protocol: expected one of {', '.join(PROTOCOLS)}"
        )
    tls = _tls_context(settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    return Security(tls, mechanism, _login(mechanism, settings))


def _login(mechanism: str, settings: Mapping[str, str]) -> "Callable[[], SaslClient]":
    from broker.network.sasl.clients import PlainClient, ScramClient  # only clients that log in need them
    from broker.network.sasl.scram import Digest

    digests = {digest.mechanism: digest for digest in Digest}
    if mechanism != "PLAIN" and mechanism not in digests:
        known = ", ".join(("PLAIN", *digests))
        raise UsageError(f"Invalid value {mechanism} for configuration sasl.mechanism: expected one of {known}")
    options = _module(settings).options
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise UsageError("Invalid value [hidden] for configuration sasl.jaas.config: expected username and password")
    if mechanism == "PLAIN":
        return lambda: PlainClient(user, password)
    uses_token = options.get("tokenauth", "").lower() == "true"
    return lambda: ScramClient(digests[mechanism], user, password, secrets.token_urlsafe(24), uses_token=uses_token)


def _module(settings: Mapping[str, str]) -> LoginModule:
    try:
        modules = parse_entries(settings.get("sasl.jaas.config", ""))
    except JaasError as error:
        raise UsageError(f"Invalid value [hidden] for configuration sasl.jaas.config: {error}") from None
    if len(modules) != 1:
        raise UsageError(
            f"Invalid value [hidden] for configuration sasl.jaas.config: expected 1 login module, found {len(modules)}"
        )
    return modules[0]


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    from cryptography.hazmat.primitives.serialization import Encoding  # only clients with TLS need its library

    from broker.network.tls import TlsError, TlsParameters, client_context
    from broker.security.stores.material import InvalidStoreError, StoreSource, read_identity, read_trusted

    def source(store: str, certificates: str) -> StoreSource:
        return StoreSource(
            settings.get(f"ssl.{store}.type", "JKS").strip().upper(),
            settings.get(f"ssl.{store}.location"),
            settings.get(f"ssl.{store}.password"),
            settings.get("ssl.key.password"),
            settings.get("ssl.keystore.key") if store == "keystore" else None,
            settings.get(certificates),
        )

    key_store = source("keystore", "ssl.keystore.certificate.chain")
    trust_store = source("truststore", "ssl.truststore.certificates")
    versions = settings.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")
    suites = [suite.strip() for suite in settings.get("ssl.cipher.suites", "").split(",") if suite.strip()]
    try:
        identity = read_identity(key_store).pem if key_store.is_given else None
        trusted = None
        if trust_store.is_given:
            trusted = "".join(one.public_bytes(Encoding.PEM).decode() for one in read_trusted(trust_store))
        return client_context(
            identity,
            trusted,
            TlsParameters([version.strip() for version in versions], suites),
            checks_host=settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "https",
        )
    except (InvalidStoreError, TlsError) as error:
        raise UsageError(str(error)) from error
