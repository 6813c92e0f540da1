"""How the broker reaches ZooKeeper, from its configuration: addresses, times, TLS, and the login.

Owns the translation, and which combinations stop the start. Must not know the connection. The library for certificates
is imported only for TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from base.jaas import JaasError, LoginModule, parse_entry
from broker.network.sasl.clients import SaslClient, ServerNotTrusted
from broker.network.sasl.gssapi import NAME as GSSAPI
from broker.security.kerberos import Renewal
from broker.settings.client_login import InvalidLoginError, Surroundings, kerberos_clients
from broker.settings.sasl_settings import LOGIN_MODULES, read_jaas_file
from broker.settings.security_sources import InvalidSecurityError
from config import broker_properties as rows
from config.broker import BrokerConfig
from config.definition import Password, Property
from controller.zookeeper.digest_md5 import DigestMd5Login
from controller.zookeeper.security import LoginRefused, LoginUnavailable, SaslLogin, TlsContext, ZooKeeperSecurity
from controller.zookeeper.settings import ZooKeeperSettings

if TYPE_CHECKING:
    from base.key_stores.material import StoreSource

DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"

_TYPE_OF_SUFFIX: Mapping[str, str] = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pem": "PEM"}


def zookeeper_settings(config: BrokerConfig, around: Surroundings) -> ZooKeeperSettings | None:
    """Return None for a broker that runs alone, with the embedded store. Raises InvalidSecurityError."""
    connect = (config[rows.ZOOKEEPER_CONNECT] or "").strip()
    if not connect:
        return None
    return _settings(config, connect, zookeeper_security(config, around), {})


def authorizer_zookeeper_settings(config: BrokerConfig, around: Surroundings) -> ZooKeeperSettings | None:
    """Return how the authorizer reaches its own ensemble; None if it uses that of the cluster.

    TLS and login are those of the cluster's ensemble. Raises InvalidSecurityError.
    """
    connect = (config[rows.AUTHORIZER_ZOOKEEPER_URL] or "").strip()
    if not connect or not config[rows.AUTHORIZER_CLASS_NAME]:
        return None
    own = {
        rows.ZOOKEEPER_SESSION_TIMEOUT_MS: config[rows.AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS],
        rows.ZOOKEEPER_CONNECTION_TIMEOUT_MS: config[rows.AUTHORIZER_ZOOKEEPER_CONNECTION_TIMEOUT_MS],
        rows.ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS: config[rows.AUTHORIZER_ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS],
    }
    return _settings(config, connect, zookeeper_security(config, around), own)


def _settings(
    config: BrokerConfig, connect: str, security: ZooKeeperSecurity, own: Mapping[Property[int | None], int | None]
) -> ZooKeeperSettings:
    """Return the settings; a value of `own` that is not None wins."""

    def value(row: Property[int | None]) -> int | None:
        found = own.get(row)
        return config[row] if found is None else found

    session_timeout_ms = value(rows.ZOOKEEPER_SESSION_TIMEOUT_MS) or 0
    return ZooKeeperSettings(
        connect=connect,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=value(rows.ZOOKEEPER_CONNECTION_TIMEOUT_MS) or session_timeout_ms,
        max_in_flight_requests=value(rows.ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS) or 1,
        security=security,
        set_acl=_sets_acl(config, security),
    )


def _sets_acl(config: BrokerConfig, security: ZooKeeperSecurity) -> bool:
    if config[rows.ZOOKEEPER_SET_ACL] and not security.is_identified:
        raise InvalidSecurityError(
            f"Invalid value true for configuration {rows.ZOOKEEPER_SET_ACL.name}: ZooKeeper does not know who creates "
            f"the nodes, expected a login (section {config[rows.ZOOKEEPER_SASL_CLIENTCONFIG]} of the file of "
            f"{rows.JAVA_SECURITY_AUTH_LOGIN_CONFIG.name}, or {rows.ZOOKEEPER_SASL_JAAS_CONFIG.name}) or a client "
            f"certificate ({rows.ZOOKEEPER_SSL_KEYSTORE_LOCATION.name})"
        )
    return config[rows.ZOOKEEPER_SET_ACL]


def zookeeper_security(config: BrokerConfig, around: Surroundings) -> ZooKeeperSecurity:
    """Return TLS and login of a client of ZooKeeper. Raises InvalidSecurityError."""
    module = _login_module(config)
    new_login, user = None, ""
    if module is not None:
        if module.name not in _LOGINS:
            raise InvalidSecurityError(
                f"the login module {module.name} for ZooKeeper is not available, expected one of {', '.join(_LOGINS)}"
            )
        new_login, user = _LOGINS[module.name](module.options, config, around)
    if not config[rows.ZOOKEEPER_SSL_CLIENT_ENABLE]:
        return ZooKeeperSecurity(new_login=new_login, user=user)
    context, has_certificate = _tls(config)
    return ZooKeeperSecurity(context, has_certificate, new_login, user)


NewLogin = Callable[[str], SaslLogin]


def _digest(options: Mapping[str, str], config: BrokerConfig, around: Surroundings) -> tuple[NewLogin, str]:
    user, password = options.get("username", ""), options.get("password", "")
    if not user:
        raise InvalidSecurityError(f"the login to ZooKeeper has no user, expected {DIGEST_MODULE} with username=")
    return lambda host: DigestMd5Login(user, password, f"{around.random.getrandbits(128):032x}"), user


def _kerberos(options: Mapping[str, str], config: BrokerConfig, around: Surroundings) -> tuple[NewLogin, str]:
    try:
        new_client = kerberos_clients(config[rows.ZOOKEEPER_SASL_CLIENT_USERNAME], options, Renewal, around)
    except InvalidLoginError as error:
        raise InvalidSecurityError(f"the login to ZooKeeper: {error}") from error
    return lambda host: _ClientLogin(new_client, host), options.get("principal", "the ticket cache")


class _ClientLogin:
    """`SaslLogin` by a client of SASL that may ask a key distribution center."""

    def __init__(self, new_client: Callable[[str], SaslClient], host: str) -> None:
        self._new_client = new_client
        self._host = host
        self._client: SaslClient | None = None

    def respond(self, challenge: bytes | None) -> bytes | None:
        if self._client is None:
            try:
                self._client = self._new_client(self._host)
                return self._client.first()
            except ServerNotTrusted as error:
                raise LoginUnavailable(str(error)) from error
        try:
            return self._client.respond(challenge or b"")
        except ServerNotTrusted as error:
            raise LoginRefused(str(error)) from error


_LOGINS: Mapping[str, Callable[[Mapping[str, str], BrokerConfig, Surroundings], tuple[NewLogin, str]]] = {
    DIGEST_MODULE: _digest,
    LOGIN_MODULES[GSSAPI]: _kerberos,
}
"""How to log in by each module, and as whom."""


def _login_module(config: BrokerConfig) -> LoginModule | None:
    if not config[rows.ZOOKEEPER_SASL_CLIENT]:
        return None
    row = rows.ZOOKEEPER_SASL_JAAS_CONFIG
    text = config[row]
    if text is None:
        entries = read_jaas_file(config).get(config[rows.ZOOKEEPER_SASL_CLIENTCONFIG], [])
        return entries[0] if entries else None
    try:
        return parse_entry(text.value)
    except JaasError as error:
        raise InvalidSecurityError(f"Invalid value [hidden] for configuration {row.name}: {error}") from error


def _tls(config: BrokerConfig) -> tuple[TlsContext, bool]:
    """Return the context, and whether it has a certificate."""
    # Imported on demand: their library takes time and memory to load.
    from base.key_stores.material import InvalidStoreError, as_pem, read_identity, read_trusted
    from broker.network.tls import TlsError, TlsParameters, WeakIdentityError, client_context

    for row in (rows.ZOOKEEPER_SSL_CRL_ENABLE, rows.ZOOKEEPER_SSL_OCSP_ENABLE):
        if config[row]:
            raise InvalidSecurityError(
                f"Invalid value true for configuration {row.name}: revoked certificates are not detected, expected "
                "false; see docs/not-yet.md"
            )
    algorithm = config[rows.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM]
    key_store = _store(
        config,
        rows.ZOOKEEPER_SSL_KEYSTORE_TYPE,
        rows.ZOOKEEPER_SSL_KEYSTORE_LOCATION,
        rows.ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
    )
    trust_store = _store(
        config,
        rows.ZOOKEEPER_SSL_TRUSTSTORE_TYPE,
        rows.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION,
        rows.ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD,
    )
    enabled: Property[Sequence[str]] = rows.ZOOKEEPER_SSL_ENABLED_PROTOCOLS  # type: ignore[assignment]
    suites: Property[Sequence[str]] = rows.ZOOKEEPER_SSL_CIPHER_SUITES  # type: ignore[assignment]
    try:
        identity = read_identity(key_store).pem if key_store.is_given else None
        trusted = as_pem(read_trusted(trust_store)) if trust_store.is_given else None
        parameters = TlsParameters(config[enabled] or (config[rows.ZOOKEEPER_SSL_PROTOCOL],), config[suites] or ())
        context = client_context(identity, trusted, parameters, checks_host=algorithm.upper() == "HTTPS")
    except WeakIdentityError as error:
        raise InvalidSecurityError(f"TLS to ZooKeeper: the {key_store}: {error}") from error
    except (InvalidStoreError, TlsError) as error:
        raise InvalidSecurityError(f"TLS to ZooKeeper: {error}") from error
    return context, identity is not None


def _store(
    config: BrokerConfig, type_row: Property[str | None], row: Property[str | None], secret: Property[Password | None]
) -> StoreSource:
    from base.key_stores.material import JKS, PEM, TYPES, StoreSource

    location, password = config[row], config[secret]
    suffix = "" if location is None else location[location.rfind(".") :].lower()
    kind = (config[type_row] or _TYPE_OF_SUFFIX.get(suffix, JKS)).upper()
    if kind not in TYPES:
        raise InvalidSecurityError(
            f"Invalid value {kind} for configuration {type_row.name}: expected one of {', '.join(TYPES)}"
        )
    value = None if password is None else password.value
    # The password of a PEM file is that of its key.
    return StoreSource(kind, location, None if kind == PEM else value, value)
