"""How a tool reaches ZooKeeper: TLS from the file of `--zk-tls-config-file`, the login from KAFKA_OPTS.

Owns the translation of both. Must not know any tool.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from base import properties
from tools.base.command_line import CommandLine, UsageError
from tools.launch.java_options import system_properties

if TYPE_CHECKING:
    from controller.zookeeper.security import ZooKeeperSecurity

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
    # Most runs of a tool with the option do not use ZooKeeper.
    import random
    import time

    from broker.settings.client_login import Surroundings
    from broker.settings.security_sources import InvalidSecurityError
    from broker.settings.zookeeper_settings import zookeeper_security
    from config.broker import BrokerConfig
    from config.definition import ConfigErrors

    surroundings = Surroundings(random.SystemRandom(), lambda: time.time_ns() // 1_000_000)
    settings = system_properties(variables)
    if tls_file is not None:
        try:
            given = properties.load(tls_file)
        except (OSError, ValueError) as error:
            raise UsageError(f"Cannot read {tls_file}: {getattr(error, 'strerror', None) or error}") from None
        settings |= {key: value for key, value in given.items() if key.startswith(_PREFIXES)}
    try:
        return zookeeper_security(BrokerConfig.from_properties(settings), surroundings)
    except (ConfigErrors, InvalidSecurityError) as error:
        raise UsageError(str(error)) from None
