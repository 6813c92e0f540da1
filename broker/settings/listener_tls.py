"""Builds the TLS side of each listener from the broker's configuration, and renews it when stores change.

Owns the translation, what a new key store must have in common with the old one, and when stores are read again. Must
not know connections. It is imported only if a listener has TLS, because the library for certificates takes time and
memory to load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509

from base.dataclass import dataclass
from base.key_stores.material import (
    TYPES,
    Identity,
    InvalidStoreError,
    StoreSource,
    as_pem,
    read_identity,
    read_trusted,
    weaknesses,
)
from broker.network.tls import (
    VERSIONS,
    ClientAuth,
    ClientContext,
    NotAuthenticated,
    ServerContext,
    TlsError,
    TlsListener,
    TlsParameters,
    WeakIdentityError,
    check_handshake,
    client_context,
    server_context,
)
from broker.security.distinguished_names import rfc2253_name, subject_of
from broker.settings.listener_security import encrypted_listeners
from broker.settings.security_sources import SASL_PROTOCOLS, InvalidSecurityError
from config import broker_properties as rows
from config.broker import BrokerConfig
from config.definition import Password, Property
from config.listeners import Listener
from config.principal_rules import NoRuleApplies, parse_rules, principal_name

logger = logging.getLogger("kafka.security.ssl.SslFactory")

_STORE_ROWS: tuple[Property[Any], ...] = (
    rows.SSL_KEYSTORE_TYPE,
    rows.SSL_KEYSTORE_LOCATION,
    rows.SSL_KEYSTORE_PASSWORD,
    rows.SSL_KEY_PASSWORD,
    rows.SSL_KEYSTORE_KEY,
    rows.SSL_KEYSTORE_CERTIFICATE_CHAIN,
    rows.SSL_TRUSTSTORE_TYPE,
    rows.SSL_TRUSTSTORE_LOCATION,
    rows.SSL_TRUSTSTORE_PASSWORD,
    rows.SSL_TRUSTSTORE_CERTIFICATES,
    rows.SSL_CLIENT_AUTH,
    rows.SSL_PROTOCOL,
    rows.SSL_ENABLED_PROTOCOLS,
    rows.SSL_CIPHER_SUITES,
    rows.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
)
"""Settings from which the contexts of a listener are made."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A context with what it was made from."""

    context: ServerContext
    identity: Identity
    client: ClientContext | None
    """The context of connections to this listener of other brokers; None if brokers do not use it."""
    origin: object
    """Equal as long as neither settings nor files have changed."""


class ListenerTls:
    """The TLS sides of all listeners of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises InvalidSecurityError."""
        self._made: dict[str, _Made] = {}
        self.listeners: dict[str, TlsListener] = {}
        for listener in encrypted_listeners(config):
            made = self._made[listener.name] = _make(config, listener)
            self.listeners[listener.name] = TlsListener(made.context, _names(config, listener))

    def broker_context(self, listener: str) -> ClientContext:
        """Return the present context of connections to other brokers; `listener` is the one that brokers use."""
        context = self._made[listener].client
        assert context is not None, "only the inter-broker listener has one"
        return context

    def forget(self, listener: str) -> None:
        """Release the stores of a listener that is no more."""
        self._made.pop(listener, None)
        self.listeners.pop(listener, None)

    def check(self, config: BrokerConfig) -> None:
        """Check that `reload` with `config` would succeed. Raises InvalidSecurityError."""
        for listener in encrypted_listeners(config):
            if self._changed(config, listener) is not None:
                _names(config, listener)

    def reload(self, config: BrokerConfig) -> None:
        """Use changed stores for new connections, and read those of new listeners.

        A listener whose stores are invalid keeps its old ones; a new one is missing in `listeners`.
        """
        for listener in encrypted_listeners(config):
            try:
                made = self._changed(config, listener)
                if made is not None:
                    _names(config, listener)
            except InvalidSecurityError as error:
                logger.error("listener %s keeps its key store and trust store: %s", listener, error)
                continue
            if made is None:
                continue
            self._made[listener.name] = made
            if listener.name in self.listeners:
                self.listeners[listener.name].context = made.context
                logger.info("listener %s has read its key store and trust store again", listener)
            else:
                self.listeners[listener.name] = TlsListener(made.context, _names(config, listener))

    def _changed(self, config: BrokerConfig, listener: Listener) -> _Made | None:
        """Return a new context if settings or files have changed. Raises InvalidSecurityError."""
        before = self._made.get(listener.name)
        if before is None:
            return _make(config, listener)
        if before.origin == _origin(config, listener):
            return None
        made = _make(config, listener)
        _check_same_owner(config, listener, before.identity, made.identity)
        return made


def _origin(config: BrokerConfig, listener: Listener) -> object:
    values = [config.for_listener(listener.name, row) for row in _STORE_ROWS]
    locations = (rows.SSL_KEYSTORE_LOCATION, rows.SSL_TRUSTSTORE_LOCATION)
    return values, [_version_of_file(config.for_listener(listener.name, row)) for row in locations]


def _version_of_file(location: str | None) -> object:
    if location is None:
        return None
    try:
        status = Path(location).stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_size, status.st_mtime_ns


def _make(config: BrokerConfig, listener: Listener) -> _Made:
    origin = _origin(config, listener)
    key_store, trust_store = _sources(config, listener)
    if not key_store.is_given:
        raise InvalidSecurityError(
            f"listener {listener} needs a key store with its certificate, expected "
            f"{rows.SSL_KEYSTORE_LOCATION.name}; bin/milena-certs makes one for development"
        )
    parameters = TlsParameters(_versions(config, listener), config.for_listener(listener.name, rows.SSL_CIPHER_SUITES))
    try:
        identity = read_identity(key_store)
        trusted = as_pem(read_trusted(trust_store)) if trust_store.is_given else None
        context = _server_context(config, listener, identity, trusted, parameters, key_store)
        client = None
        if listener.name == config.inter_broker_listener.name:
            client = client_context(identity.pem, trusted, parameters, checks_host=_checks_host(config, listener))
            if trusted is not None:
                check_handshake(context, client_context(identity.pem, trusted, parameters, checks_host=False))
    except (InvalidStoreError, TlsError) as error:
        raise InvalidSecurityError(f"listener {listener}: {error}") from error
    return _Made(context, identity, client, origin)


def _server_context(
    config: BrokerConfig,
    listener: Listener,
    identity: Identity,
    trusted: str | None,
    parameters: TlsParameters,
    key_store: StoreSource,
) -> ServerContext:
    """Return the context of a listener. A weak identity is served, as on Java, if no certificates are checked with it.

    Raises TlsError.
    """
    client_auth = _client_auth(config, listener)
    try:
        return server_context(identity.pem, trusted, client_auth, parameters)
    except WeakIdentityError:
        weak = f"the {key_store}: {'; '.join(weaknesses(identity))}"
        remedy = "replace it by a certificate with an RSA key of 2048 bits, signed with SHA-256"
        if client_auth is not ClientAuth.NONE or listener.name == config.inter_broker_listener.name:
            raise TlsError(
                f"{weak}; {remedy}, or set {rows.SSL_CLIENT_AUTH.name}=none and another listener for brokers: "
                "weak certificates of clients and brokers would be accepted as well"
            ) from None
        logger.warning("listener %s: %s; many clients reject it, %s", listener, weak, remedy)
        return server_context(identity.pem, trusted, client_auth, parameters, accepts_weak_identity=True)


def _checks_host(config: BrokerConfig, listener: Listener) -> bool:
    """Raises InvalidSecurityError."""
    row = rows.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM
    algorithm = config.for_listener(listener.name, row)
    if algorithm.lower() not in ("https", ""):
        raise InvalidSecurityError(f"listener {listener}: {row.name} is {algorithm}, expected https or an empty value")
    return bool(algorithm)


def _versions(config: BrokerConfig, listener: Listener) -> list[str]:
    """Return the enabled versions up to `ssl.protocol`; a name such as `TLS` sets no limit."""
    newest = VERSIONS.get(config.for_listener(listener.name, rows.SSL_PROTOCOL))
    enabled = config.for_listener(listener.name, rows.SSL_ENABLED_PROTOCOLS)
    return [name for name in enabled if newest is None or VERSIONS.get(name, newest) <= newest]


def _client_auth(config: BrokerConfig, listener: Listener) -> ClientAuth:
    """With SASL, only a setting of the listener itself counts (KIP-684)."""
    own = config.of_listener(listener.name, rows.SSL_CLIENT_AUTH)
    if own is None:
        own = "none" if listener.security_protocol in SASL_PROTOCOLS else config[rows.SSL_CLIENT_AUTH]
    return ClientAuth[own.upper()]


def _sources(config: BrokerConfig, listener: Listener) -> tuple[StoreSource, StoreSource]:
    """Return where key store and trust store are. Raises InvalidSecurityError."""

    def text(row: Property[str | None]) -> str | None:
        return config.for_listener(listener.name, row)

    def secret(row: Property[Password | None]) -> str | None:
        password = config.for_listener(listener.name, row)
        return None if password is None else password.value

    return (
        StoreSource(
            _store_type(config, listener, rows.SSL_KEYSTORE_TYPE),
            text(rows.SSL_KEYSTORE_LOCATION),
            secret(rows.SSL_KEYSTORE_PASSWORD),
            secret(rows.SSL_KEY_PASSWORD),
            secret(rows.SSL_KEYSTORE_KEY),
            secret(rows.SSL_KEYSTORE_CERTIFICATE_CHAIN),
        ),
        StoreSource(
            _store_type(config, listener, rows.SSL_TRUSTSTORE_TYPE),
            text(rows.SSL_TRUSTSTORE_LOCATION),
            secret(rows.SSL_TRUSTSTORE_PASSWORD),
            inline_certificates=secret(rows.SSL_TRUSTSTORE_CERTIFICATES),
        ),
    )


def _store_type(config: BrokerConfig, listener: Listener, row: Property[str]) -> str:
    value = config.for_listener(listener.name, row).upper()
    if value not in TYPES:
        raise InvalidSecurityError(
            f"Invalid value {value} for configuration {row.name} of listener {listener}: expected one of "
            f"{', '.join(TYPES)}"
        )
    return value


def _names(config: BrokerConfig, listener: Listener) -> Callable[[bytes], str]:
    """Return `TlsListener.name_in`. Raises InvalidSecurityError."""
    row = rows.SSL_PRINCIPAL_MAPPING_RULES
    text = config.for_listener(listener.name, row)
    try:
        rules = parse_rules(text)
    except ValueError as error:
        raise InvalidSecurityError(f"Invalid value {text} for configuration {row.name}: {error}") from error

    def name_in(certificate: bytes) -> str:
        try:
            return principal_name(rules, subject_of(certificate))
        except NoRuleApplies as error:
            raise NotAuthenticated(str(error)) from error
        except ValueError as error:
            raise NotAuthenticated(f"the client's certificate cannot be read: {error}") from error

    return name_in


def _check_same_owner(config: BrokerConfig, listener: Listener, before: Identity, after: Identity) -> None:
    """Reject a key store of another owner unless the settings allow it. Raises InvalidSecurityError."""
    old_name, new_name = (rfc2253_name(one.chain[0].subject) for one in (before, after))
    if old_name != new_name and not config.for_listener(listener.name, rows.SSL_ALLOW_DN_CHANGES):
        raise InvalidSecurityError(
            f"Keystore DistinguishedName does not match: existing={old_name}, new={new_name}; "
            f"{rows.SSL_ALLOW_DN_CHANGES.name} would allow it"
        )
    missing = _alternative_names(before) - _alternative_names(after)
    if missing and not config.for_listener(listener.name, rows.SSL_ALLOW_SAN_CHANGES):
        raise InvalidSecurityError(
            f"Keystore SubjectAltNames do not contain all of the existing ones, missing: "
            f"{', '.join(sorted(missing))}; {rows.SSL_ALLOW_SAN_CHANGES.name} would allow it"
        )


def _alternative_names(identity: Identity) -> set[str]:
    try:
        names = identity.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}
