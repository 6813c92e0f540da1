"""The settings of a broker, for tools that work on its directories or its host.

Owns the messages about a file that cannot be used. Must not know what the settings mean.
"""

from __future__ import annotations

from base import properties
from config.broker import BrokerConfig
from config.definition import ConfigErrors
from tools.base.command_line import UsageError


class SettingsError(Exception):
    """A file with invalid settings; the text names the file and all errors."""


def read_broker_config(path: str) -> BrokerConfig:
    """Return the settings of a server.properties.

    Raises:
        UsageError: The file cannot be read.
        SettingsError: A setting is invalid.
    """
    try:
        settings = properties.load(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return BrokerConfig.from_properties(settings)
    except ConfigErrors as error:
        raise SettingsError(f"{path}: {error}") from None
