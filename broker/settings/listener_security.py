"""What the configuration says about the security of listeners: which are encrypted, which are open, who may do what.

Owns this translation, and what mechanisms of authentication need of the broker. Must not know connections, or how a
mechanism is configured: that is in `sasl_settings`, which is imported only if a listener uses SASL.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.network.sasl.session import SaslListener
from broker.security.authorizer import Authorizer
from broker.security.delegation_tokens import TokenTimes
from broker.settings.security_sources import SASL_PROTOCOLS, TLS_PROTOCOLS, Sources
from config import broker_properties as rows
from config.addresses import LOOPBACK, HostAndPort, is_loopback
from config.broker import BrokerConfig
from config.listeners import Listener, SecurityProtocol

HTTP_LISTENER = "METRICS_HTTP"
"""The name under which the HTTP port has settings of its own, as listeners of Kafka's protocol have."""

SECRET_SIZE = 32


def encrypted_listeners(config: BrokerConfig) -> list[Listener]:
    """Return the listeners with TLS, the HTTP port among them."""
    listeners = [listener for listener in config.listeners if listener.security_protocol in TLS_PROTOCOLS]
    address = config[rows.METRICS_HTTP_LISTENER]
    if address is not None and config[rows.METRICS_HTTP_SSL_ENABLE]:
        host, port = HostAndPort.parse(address)
        listeners.append(Listener(HTTP_LISTENER, host, port, SecurityProtocol.SSL))
    return listeners


def new_authorizer(config: BrokerConfig) -> Authorizer:
    """Return the configured authorizer, which has no ACLs yet."""
    users = (user.strip() for user in (config[rows.SUPER_USERS] or "").split(";"))
    return Authorizer(
        is_active=bool(config[rows.AUTHORIZER_CLASS_NAME]),
        super_users=[user for user in users if user],
        allow_everyone_if_no_acl_found=config[rows.ALLOW_EVERYONE_IF_NO_ACL_FOUND],
    )


def open_listeners(config: BrokerConfig) -> list[str]:
    """Return a line for the log about each listener that lets everyone do everything, and about an open HTTP port."""
    lines = []
    address = config[rows.METRICS_HTTP_LISTENER]
    if address is not None and config[rows.METRICS_HTTP_USERS] is None:
        host, port = HostAndPort.parse(address)
        if not is_loopback(host):
            lines.append(
                f"{rows.METRICS_HTTP_LISTENER.name} {address} is open: every client that reaches it can read metrics; "
                f"set {rows.METRICS_HTTP_LISTENER.name}={LOOPBACK}:{port}, or "
                f"{rows.METRICS_HTTP_USERS.name} and {rows.METRICS_HTTP_SSL_ENABLE.name}"
            )
    if config[rows.AUTHORIZER_CLASS_NAME]:
        return lines
    return lines + [
        f"listener {listener} is open: every client that reaches it may do everything, and nothing is encrypted; "
        "bin/milena-certs makes certificates, docs/security.md describes the other steps"
        for listener in config.listeners
        if listener.security_protocol is SecurityProtocol.PLAINTEXT
    ]


def delegation_token_secret(config: BrokerConfig) -> str | None:
    """Return the secret of delegation tokens; None if there are none."""
    secret = config[rows.DELEGATION_TOKEN_SECRET_KEY] or config[rows.DELEGATION_TOKEN_MASTER_KEY]
    return None if secret is None else secret.value


def delegation_token_times(config: BrokerConfig) -> TokenTimes:
    return TokenTimes(config[rows.DELEGATION_TOKEN_MAX_LIFETIME_MS], config[rows.DELEGATION_TOKEN_EXPIRY_TIME_MS])


def sasl_listeners(
    config: BrokerConfig, sources: Sources, listeners: Iterable[Listener] | None = None
) -> dict[str, SaslListener]:
    """Return how the clients of each listener with SASL authenticate themselves; of all, or of some `listeners`.

    Raises InvalidSecurityError.
    """
    chosen = config.listeners if listeners is None else list(listeners)
    # Drawn in any case: what comes later, such as replicas of new topics, is the same for a seed with and without SASL.
    secret = sources.random.randbytes(SECRET_SIZE)
    has_login_settings = config[rows.JAVA_SECURITY_AUTH_LOGIN_CONFIG] or config[rows.SASL_JAAS_CONFIG] is not None
    if not has_login_settings and not any(listener.security_protocol in SASL_PROTOCOLS for listener in chosen):
        return {}
    from broker.settings import sasl_settings  # all mechanisms take time and memory to load

    return sasl_settings.sasl_listeners(config, sources, chosen, secret)
