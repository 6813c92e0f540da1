"""How a tool reaches ZooKeeper: TLS from the file of `--zk-tls-config-file`, the login from KAFKA_OPTS.

Owns the translation of both. Must not know any tool.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import Final

from broker.settings.client_login import Surroundings
from broker.settings.listener_security import InvalidSecurityError
from broker.settings.zookeeper_settings import zookeeper_security
from config import properties
from config.broker import BrokerConfig
from config.definition import ConfigErrors
from controller.zookeeper.security import ZooKeeperSecurity
from tools.command_line import CommandLine, UsageError
from tools.java_options import system_properties

TLS_OPTION: Final = "--zk-tls-config-file"
_PREFIXES: Final = ("zookeeper.ssl.", "zookeeper.sasl.")


def add_tls_option(line: CommandLine) -> None:
    """Add `--zk-tls-config-file`."""
    line.add_option(
        TLS_OPTION,
        value="ZooKeeper TLS configuration",
        help_text="Properties file with zookeeper.ssl.* settings, as in the broker's file; other settings are ignored.",
    )


def security_of(tls_file: str | None, variables: Mapping[str, str] = os.environ) -> ZooKeeperSecurity:
    """Return TLS and login for ZooKeeper. Raises UsageError."""
    settings = system_properties(variables)
    if tls_file is not None:
        try:
            given = properties.load(tls_file)
        except (OSError, ValueError) as error:
            raise UsageError(f"Cannot read {tls_file}: {error}") from None
        settings |= {key: value for key, value in given.items() if key.startswith(_PREFIXES)}
    try:
        return zookeeper_security(BrokerConfig.from_properties(settings), Surroundings(random.SystemRandom(), _now_ms))
    except (ConfigErrors, InvalidSecurityError) as error:
        raise UsageError(str(error)) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
