"""How clients log in to each listener with SASL, and how this broker logs in to others, from the configuration.

Owns the translation: which mechanisms a listener offers, where their credentials come from, and the configuration of
JAAS. Must not know connections, or how a mechanism works. Only brokers that use SASL or ZooKeeper import this module:
all mechanisms with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from base.jaas import JaasError, LoginModule, is_true, parse_entry, parse_file
from base.small_file import read_small_file
from broker.network.sasl import gssapi, oauthbearer, plain
from broker.network.sasl.broker_login import BrokerLogin, Run
from broker.network.sasl.exchange import Exchange, Login
from broker.network.sasl.gssapi import GssapiExchange
from broker.network.sasl.oauthbearer import InvalidToken, OauthBearerExchange
from broker.network.sasl.plain import PlainExchange, by_table
from broker.network.sasl.scram import Digest, ScramExchange, ScramUser
from broker.network.sasl.session import SaslListener, SaslMechanism
from broker.security.kerberos import KerberosError, KeyTab, Renewal, default_realm, new_acceptor
from broker.security.remote_keys import SCHEMES, RemoteKeys
from broker.security.retry_pauses import RetryPauses
from broker.security.token_source import TIMEOUT_S, TokenRenewal
from broker.security.web_tokens import TokenRules, UnknownKeyError, unsecured_login, verified_login
from broker.settings.client_login import MECHANISMS, SCRAM, InvalidLoginError, LoginSettings, Surroundings, new_clients
from broker.settings.plug_ins import InvalidPlugInError, configured_plug_in
from broker.settings.security_sources import SASL_PROTOCOLS, InvalidSecurityError, Sources
from config import broker_properties as rows
from config.broker import LISTENER_PREFIX, BrokerConfig
from config.definition import Property
from config.kerberos_rules import local_name, parse_kerberos_rules
from config.listeners import Listener, SecurityProtocol

logger = logging.getLogger("kafka.security.JaasContext")

LOGIN_MODULES: Mapping[str, str] = {
    plain.NAME: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    oauthbearer.NAME: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    gssapi.NAME: "com.sun.security.auth.module.Krb5LoginModule",
}
"""The login module of each mechanism. No other class has a meaning here (CVE-2025-27818)."""

OWN_CREDENTIALS: Mapping[Property[str | None], Collection[str]] = {
    rows.SASL_LOGIN_CALLBACK_HANDLER_CLASS: (oauthbearer.NAME,),
    rows.SASL_CLIENT_CALLBACK_HANDLER_CLASS: (plain.NAME, *SCRAM),
}
"""The plug-ins that supply what a broker logs in with, and their mechanisms."""

_USER_PREFIX = "user_"
_SECTION = "KafkaServer"

_UNSECURED_OPTION = "allowUnsecuredTokens"
"""Option of the login module that lets tokens without signature be sent unencrypted."""

T = TypeVar("T")


class Checker(Protocol):
    """A plug-in of `sasl.server.callback.handler.class`. It runs in a thread, and may wait."""

    def check(self, *credentials: str) -> object:
        """PLAIN: return True if the password (second) is that of the user (first).

        OAUTHBEARER: return the user whom the token (the only one) is about; an exception or an empty user refuses it.
        """
        ...


def sasl_listeners(
    config: BrokerConfig, sources: Sources, listeners: Iterable[Listener], secret: bytes
) -> dict[str, SaslListener]:
    """Return how the clients of those `listeners` that use SASL authenticate themselves.

    `secret` makes the decoys of unknown users; it must be unpredictable.

    Raises InvalidSecurityError.
    """
    jaas_file = read_jaas_file(config)
    if config[rows.SASL_JAAS_CONFIG] is not None:
        logger.warning(
            "%s is ignored: it needs the prefix of a listener and a mechanism, such as %ssasl_ssl.plain.",
            rows.SASL_JAAS_CONFIG.name,
            LISTENER_PREFIX,
        )
    return {
        listener.name: SaslListener(
            _mechanisms(config, listener, jaas_file, sources, secret),
            receive_size_max=config.for_listener(listener.name, rows.SASL_SERVER_MAX_RECEIVE_SIZE),
            failure_delay_ms=config[rows.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS],
        )
        for listener in listeners
        if listener.security_protocol in SASL_PROTOCOLS
    }


def _mechanisms(
    config: BrokerConfig,
    listener: Listener,
    jaas_file: Mapping[str, list[LoginModule]],
    sources: Sources,
    secret: bytes,
) -> dict[str, SaslMechanism]:
    names = config.for_listener(listener.name, rows.SASL_ENABLED_MECHANISMS)
    if not names:
        raise InvalidSecurityError(
            f"Invalid value for configuration {rows.SASL_ENABLED_MECHANISMS.name}: listener {listener} offers none, "
            f"expected some of {', '.join(MECHANISMS)}"
        )
    mechanisms = {}
    for name in names:
        if name not in MECHANISMS:
            raise InvalidSecurityError(
                f"Invalid value {name} for configuration {rows.SASL_ENABLED_MECHANISMS.name} of listener {listener}: "
                f"expected some of {', '.join(MECHANISMS)}"
            )
        module = _login_module(config, listener, name, jaas_file)
        checker = _checker(config, listener, name)
        if checker is not None:
            new_exchange = _checked_by(checker, name)
        elif name in SCRAM:
            new_exchange = _scram(SCRAM[name], sources, secret)
        elif name == oauthbearer.NAME:
            new_exchange = _oauthbearer(config, listener, module, sources)
        elif name == gssapi.NAME:
            new_exchange = _gssapi(config, listener, module)
        else:
            new_exchange = _plain(listener, module)
        session_ms_max = config.for_listener(listener.name, rows.CONNECTIONS_MAX_REAUTH_MS, name)
        may_block = checker is not None or name == gssapi.NAME  # that reads the keytab at each login
        in_thread = sources.in_thread if may_block else None
        mechanisms[name] = SaslMechanism(new_exchange, session_ms_max, in_thread)
    return mechanisms


def _checker(config: BrokerConfig, listener: Listener, mechanism: str) -> Checker | None:
    """Return the plug-in that checks the credentials of a mechanism; None if the broker does.

    Raises InvalidSecurityError.
    """
    row = rows.SASL_SERVER_CALLBACK_HANDLER_CLASS
    name = config.for_listener(listener.name, row, mechanism)
    if not name or name in rows.TOKEN_VALIDATORS:
        return None
    if mechanism not in (plain.NAME, oauthbearer.NAME):
        if config.of_listener(listener.name, row, mechanism) is None:
            return None  # it is meant for the other mechanisms
        raise InvalidSecurityError(
            f"Invalid value {name} for configuration {row.name} of listener {listener}: {mechanism} has none, expected "
            f"it for {plain.NAME} or {oauthbearer.NAME}"
        )
    try:
        return cast(Checker, configured_plug_in(config, row, name, "check"))
    except InvalidPlugInError as error:
        raise InvalidSecurityError(f"listener {listener}: {error}") from error


def _checked_by(checker: Checker, mechanism: str) -> Callable[[], Exchange]:
    def is_right(user: str, password: str) -> bool:
        try:
            return checker.check(user, password) is True
        except Exception:
            logger.exception("the plug-in for %s fails, so the user is refused", mechanism)
            return False

    def verify(token: str) -> Login:
        try:
            user = checker.check(token)
        except Exception as error:
            raise InvalidToken(f"the plug-in refuses the token: {error!r}") from error
        if not isinstance(user, str) or not user:
            raise InvalidToken("the plug-in refuses the token")
        return Login(user)

    return (lambda: PlainExchange(is_right)) if mechanism == plain.NAME else (lambda: OauthBearerExchange(verify))


def _plain(listener: Listener, module: LoginModule | None) -> Callable[[], Exchange]:
    if module is None:
        raise InvalidSecurityError(
            f"listener {listener} offers PLAIN without users, expected {_jaas_key(listener, plain.NAME)}="
            f'{LOGIN_MODULES[plain.NAME]} required user_NAME="PASSWORD";'
        )
    if listener.security_protocol is SecurityProtocol.SASL_PLAINTEXT:
        logger.warning("listener %s: clients of PLAIN send their passwords unencrypted, use SASL_SSL", listener)
    passwords = {
        key.removeprefix(_USER_PREFIX): value for key, value in module.options.items() if key.startswith(_USER_PREFIX)
    }
    return lambda: PlainExchange(by_table(passwords.get))


def _oauthbearer(
    config: BrokerConfig, listener: Listener, module: LoginModule | None, sources: Sources
) -> Callable[[], Exchange]:
    name = listener.name
    audiences = config.for_listener(name, rows.SASL_OAUTHBEARER_EXPECTED_AUDIENCE, oauthbearer.NAME)
    rules = TokenRules(
        issuer=config.for_listener(name, rows.SASL_OAUTHBEARER_EXPECTED_ISSUER, oauthbearer.NAME),
        audiences=audiences or (),
        clock_skew_s=config.for_listener(name, rows.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS, oauthbearer.NAME),
        scope_claim=config.for_listener(name, rows.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME, oauthbearer.NAME),
        subject_claim=config.for_listener(name, rows.SASL_OAUTHBEARER_SUB_CLAIM_NAME, oauthbearer.NAME),
    )
    row = rows.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
    url = config.for_listener(name, row, oauthbearer.NAME)
    if url is not None:
        if not url.startswith(SCHEMES):
            raise InvalidSecurityError(
                f"Invalid value {url} for configuration {row.name}: expected an address with {', '.join(SCHEMES)}"
            )
        remote = sources.remote_keys.setdefault(url, RemoteKeys(url))

        def verify(token: str) -> Login:
            try:
                return verified_login(token, remote.keys, rules, sources.now_ms() / 1000)
            except UnknownKeyError:
                remote.report_missing_key()
                raise

        return lambda: OauthBearerExchange(verify)
    is_allowed = module is not None and is_true(module.options.get(_UNSECURED_OPTION))
    if module is None or (listener.security_protocol is SecurityProtocol.SASL_PLAINTEXT and not is_allowed):
        raise InvalidSecurityError(
            f"listener {listener} offers {oauthbearer.NAME} without keys, expected {row.name}. For development, "
            f"{_jaas_key(listener, oauthbearer.NAME)}={LOGIN_MODULES[oauthbearer.NAME]} required "
            f'{_UNSECURED_OPTION}="true"; accepts unsigned tokens'
        )
    logger.warning("listener %s: tokens are not verified, everyone may be anyone; set %s", listener, row.name)
    return lambda: OauthBearerExchange(lambda token: unsecured_login(token, rules, sources.now_ms() / 1000))


def _gssapi(config: BrokerConfig, listener: Listener, module: LoginModule | None) -> Callable[[], Exchange]:
    key = _jaas_key(listener, gssapi.NAME)
    if module is None or not is_true(module.options.get("useKeyTab")):
        raise InvalidSecurityError(
            f"listener {listener} offers {gssapi.NAME} without a keytab, expected {key}={LOGIN_MODULES[gssapi.NAME]} "
            'required useKeyTab="true" keyTab="FILE" principal="SERVICE/HOST@REALM";'
        )
    row = rows.SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES
    texts = config.for_listener(listener.name, row, gssapi.NAME)
    try:
        rules = parse_kerberos_rules(texts)
    except ValueError as error:
        raise InvalidSecurityError(f"Invalid value {','.join(texts)} for configuration {row.name}: {error}") from error
    try:
        new_context = new_acceptor(KeyTab(module.options.get("principal"), module.options.get("keyTab")))
        realm = default_realm()
    except KerberosError as error:
        raise InvalidSecurityError(f"listener {listener} offers {gssapi.NAME} by {key}: {error}") from error
    return lambda: GssapiExchange(new_context(), lambda principal: local_name(rules, principal, realm))


def _scram(digest: Digest, sources: Sources, secret: bytes) -> Callable[[], Exchange]:
    def lookup(name: str, is_by_token: bool) -> ScramUser | None:
        if is_by_token:
            return sources.token_user(name, digest)
        credential = sources.credential_of(name, digest.mechanism)
        return None if credential is None else ScramUser(credential, Login(name))

    return lambda: ScramExchange(digest, lookup, f"{sources.random.getrandbits(160):040x}", secret)


def _jaas_key(listener: Listener, mechanism: str) -> str:
    return f"{LISTENER_PREFIX}{listener.name.lower()}.{mechanism.lower()}.{rows.SASL_JAAS_CONFIG.name}"


def _login_module(
    config: BrokerConfig, listener: Listener, mechanism: str, jaas_file: Mapping[str, list[LoginModule]]
) -> LoginModule | None:
    """Return the configured login module of a mechanism, or None."""
    text = config.of_listener(listener.name, rows.SASL_JAAS_CONFIG, mechanism)
    expected = LOGIN_MODULES[mechanism]
    if text is None:
        entries = jaas_file.get(f"{listener.name.lower()}.{_SECTION}") or jaas_file.get(_SECTION) or []
        return next((entry for entry in entries if entry.name == expected), None)
    key = _jaas_key(listener, mechanism)
    try:
        module = parse_entry(text.value)
    except JaasError as error:
        raise InvalidSecurityError(f"Invalid value [hidden] for configuration {key}: {error}") from error
    if module.name != expected:
        raise InvalidSecurityError(
            f"Invalid value [hidden] for configuration {key}: the login module {module.name} is not available, "
            f"expected {expected}"
        )
    return module


def read_jaas_file(config: BrokerConfig) -> Mapping[str, list[LoginModule]]:
    """Return the sections of the file of `java.security.auth.login.config`. Raises InvalidSecurityError."""
    path = config[rows.JAVA_SECURITY_AUTH_LOGIN_CONFIG]
    if not path:
        return {}
    try:
        return parse_file(read_small_file(path).decode())
    except (OSError, ValueError) as error:
        raise InvalidSecurityError(
            f"Invalid value {path} for configuration {rows.JAVA_SECURITY_AUTH_LOGIN_CONFIG.name}: {error}"
        ) from error


def broker_login(config: BrokerConfig, surroundings: Surroundings, run: Run) -> BrokerLogin | None:
    """Return how this broker logs in to others; None if it need not. `run` runs in a thread what may block.

    Raises InvalidSecurityError.
    """
    listener = config.inter_broker_listener
    if listener.security_protocol not in SASL_PROTOCOLS:
        return None
    row = rows.SASL_MECHANISM_INTER_BROKER_PROTOCOL
    mechanism = config.for_listener(listener.name, row)
    if mechanism not in config.for_listener(listener.name, rows.SASL_ENABLED_MECHANISMS) or mechanism not in MECHANISMS:
        raise InvalidSecurityError(
            f"Invalid value {mechanism} for configuration {row.name}: expected one of the mechanisms that "
            f"{rows.SASL_ENABLED_MECHANISMS.name} enables for listener {listener}"
        )
    module = _login_module(config, listener, mechanism, read_jaas_file(config))
    options = {} if module is None else module.options
    settings = replace(
        login_settings(config, listener, mechanism),
        own_token=_own(config, listener, mechanism, rows.SASL_LOGIN_CALLBACK_HANDLER_CLASS, "token"),
        own_credentials=_own(config, listener, mechanism, rows.SASL_CLIENT_CALLBACK_HANDLER_CLASS, "credentials"),
    )
    try:
        new_client = new_clients(mechanism, options, settings, surroundings)
    except InvalidLoginError as error:
        raise InvalidSecurityError(
            f"brokers log in to each other on listener {listener} by {_jaas_key(listener, mechanism)}: {error}"
        ) from error
    return BrokerLogin(mechanism, new_client, run)


def _own(
    config: BrokerConfig, listener: Listener, mechanism: str, row: Property[str | None], method: str
) -> Callable[[], Any] | None:
    """Return the method of the plug-in that supplies what this broker logs in with; None if none is named.

    Raises InvalidSecurityError.
    """
    name = config.for_listener(listener.name, row, mechanism)
    if not name or name in rows.TOKEN_LOGINS:
        return None
    if mechanism not in (expected := OWN_CREDENTIALS[row]):
        raise InvalidSecurityError(
            f"Invalid value {name} for configuration {row.name}: brokers log in to each other by {mechanism}, "
            f"expected it for {', '.join(expected)}"
        )
    try:
        return cast(Callable[[], Any], getattr(configured_plug_in(config, row, name, method), method))
    except InvalidPlugInError as error:
        raise InvalidSecurityError(str(error)) from error


def login_settings(config: BrokerConfig, listener: Listener, mechanism: str) -> LoginSettings:
    """Return the settings of this broker's login; those of renewals are read at each renewal."""

    def value(row: Property[T]) -> T:
        return config.for_listener(listener.name, row, mechanism)

    timeouts_ms = [
        timeout_ms
        for row in (rows.SASL_LOGIN_CONNECT_TIMEOUT_MS, rows.SASL_LOGIN_READ_TIMEOUT_MS)
        if (timeout_ms := value(row)) is not None
    ]
    return LoginSettings(
        kerberos_service_name=value(rows.SASL_KERBEROS_SERVICE_NAME),
        kerberos_renewal=lambda: Renewal(
            value(rows.SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR),
            value(rows.SASL_KERBEROS_TICKET_RENEW_JITTER),
            value(rows.SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN),
        ),
        token_endpoint_url=value(rows.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL),
        token_renewal=lambda: TokenRenewal(
            value(rows.SASL_LOGIN_REFRESH_WINDOW_FACTOR),
            value(rows.SASL_LOGIN_REFRESH_WINDOW_JITTER),
            value(rows.SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS),
            value(rows.SASL_LOGIN_REFRESH_BUFFER_SECONDS),
        ),
        token_timeout_s=max(timeouts_ms) / 1000 if timeouts_ms else TIMEOUT_S,
        token_pauses=RetryPauses(value(rows.SASL_LOGIN_RETRY_BACKOFF_MS), value(rows.SASL_LOGIN_RETRY_BACKOFF_MAX_MS)),
    )
