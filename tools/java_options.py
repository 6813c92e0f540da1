"""Settings that Kafka's programs get as system properties of Java, in the environment variable KAFKA_OPTS.

Owns which properties count as settings. Must not know what they mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from config.broker_properties import (
    JAVA_SECURITY_AUTH_LOGIN_CONFIG,
    ZOOKEEPER_SASL_CLIENT,
    ZOOKEEPER_SASL_CLIENT_USERNAME,
    ZOOKEEPER_SASL_CLIENTCONFIG,
)

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


def system_properties(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of `-Dname=value` in KAFKA_OPTS."""
    found = {}
    for option in shlex.split(variables.get("KAFKA_OPTS", "")):
        name, equals, value = option.removeprefix(_PREFIX).partition("=")
        if equals and option.startswith(_PREFIX) and name in _NAMES:
            found[name] = value
    return found
