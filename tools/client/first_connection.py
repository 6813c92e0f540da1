"""The check of a tool before it creates a client of the client library, which reports each failed connection without
end and never says why.

Owns when a tool gives up at its first connection. Must not know how a listener is probed, or any tool.
"""

from __future__ import annotations

from collections.abc import Mapping

from tools.base.command_line import UnreachableError
from tools.client.bootstrap import REACH_TIMEOUT_S, parse_bootstrap, require_reachable
from tools.client.client_security import security_protocol
from tools.client.listener_probe import wrong_listener

_PLAINTEXT = "PLAINTEXT"


def require_served(settings: Mapping[str, str], option: str) -> None:
    """Return if one of `bootstrap.servers` accepts connections and may serve a client with these settings.

    Args:
        settings: under the names of Kafka's Java clients.
        option: the option of the command line whose file has them.

    Raises:
        UnreachableError: with the reason: nothing listens, wrong protocol, certificate not trusted, login failed.
        UsageError: for settings that are no addresses, stores or logins.
    """
    require_reachable(parse_bootstrap(settings["bootstrap.servers"]))
    require_right_listener(settings, option)


def require_right_listener(settings: Mapping[str, str], option: str) -> None:
    """Do the same for a tool that waits for brokers: an address where nothing responds is no error."""
    endpoints = parse_bootstrap(settings["bootstrap.servers"])
    protocol = security_protocol(settings)
    if protocol != _PLAINTEXT:
        _require_trust(settings, option)
        return
    reasons: list[str] = []
    for endpoint in endpoints:
        if (reason := wrong_listener(endpoint, protocol, option)) is None:
            return
        reasons.append(reason)
    raise UnreachableError(reasons[0])


def _require_trust(settings: Mapping[str, str], option: str) -> None:
    """Connect as the tool will, with handshake and login."""
    # Only clients with TLS or a login need the codec here.
    from protocol.errors import KafkaError
    from tools.client.admin_client import AdminClient, CallTimedOut
    from tools.client.client_security import client_security

    addresses = settings["bootstrap.servers"]
    security = client_security(settings)
    timeout_ms = int(1000 * REACH_TIMEOUT_S)
    try:
        with AdminClient(
            parse_bootstrap(addresses), timeout_ms=timeout_ms, security=security, settings_option=option
        ) as client:
            client.metadata([])
    except CallTimedOut:
        pass  # a slow broker: the client library waits longer
    except KafkaError as error:
        reason = f"No connection to {addresses} with security.protocol={security.protocol}: {error.message}"
        raise UnreachableError(reason) from error
