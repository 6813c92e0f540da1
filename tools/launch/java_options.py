"""Settings in the environment variables that Kafka's launchers read: KAFKA_OPTS and JMX_PORT.

Owns which system properties of Java count as settings. Must not know what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from config.addresses import LOOPBACK, PORT_MAX, host_and_port_problem
from config.broker_properties import (
    JAVA_SECURITY_AUTH_LOGIN_CONFIG,
    METRICS_HTTP_LISTENER,
    ZOOKEEPER_SASL_CLIENT,
    ZOOKEEPER_SASL_CLIENT_USERNAME,
    ZOOKEEPER_SASL_CLIENTCONFIG,
)
from config.definition import ConfigError

_PREFIX: Final = "-D"
_NAMES: Final = {
    row.name
    for row in (
        JAVA_SECURITY_AUTH_LOGIN_CONFIG,
        ZOOKEEPER_SASL_CLIENT,
        ZOOKEEPER_SASL_CLIENT_USERNAME,
        ZOOKEEPER_SASL_CLIENTCONFIG,
    )
}


def settings_of_launchers(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings from JMX_PORT and KAFKA_OPTS. Raises ConfigError."""
    port = variables.get("JMX_PORT")
    return dict([metrics_listener("JMX_PORT", port)] if port else ()) | system_properties(variables)


def metrics_listener(variable: str, port: str) -> tuple[str, str]:
    """Return the setting for the port that a variable asks for, on the loopback address. Raises ConfigError."""
    if host_and_port_problem(f":{port}") is not None:
        raise ConfigError(f"{variable} (environment)", port, f"Expected a port from 0 to {PORT_MAX}")
    return METRICS_HTTP_LISTENER.name, f"{LOOPBACK}:{port}"


def system_properties(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of `-Dname=value` in KAFKA_OPTS.

    Kafka's launchers do not quote the variable: blanks separate its words, and quotes are ordinary characters.
    """
    found = {}
    for option in variables.get("KAFKA_OPTS", "").split():
        name, equals, value = option.removeprefix(_PREFIX).partition("=")
        if equals and option.startswith(_PREFIX) and name in _NAMES:
            found[name] = value
    return found
