"""Options of every administration tool: the addresses of the brokers and the client's settings.

Owns their names, defaults and checks. Must not know any tool.
"""

import argparse
from collections.abc import Sequence

from base import properties
from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, InvalidSettingsError, warn
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_security import KNOWN_KEYS, client_security

_KNOWN = ("client.id", "request.timeout.ms", "default.api.timeout.ms", "bootstrap.servers")


def add_admin_options(line: CommandLine, bootstrap_names: Sequence[str] = BOOTSTRAP_SERVER) -> None:
    """Add `--bootstrap-server` and `--command-config`.

    `bootstrap_names` are the names of the first one: some tools use `--broker-list` with another meaning.
    """
    add_client_options(line, "--command-config", bootstrap_names=bootstrap_names)


def add_client_options(line: CommandLine, *names: str, bootstrap_names: Sequence[str] = BOOTSTRAP_SERVER) -> None:
    """Add the same two options; `names` are those of the second."""
    line.add_option(
        *bootstrap_names,
        value="server to connect to",
        help_text="REQUIRED: brokers to connect to, as host:port,host:port.",
    )
    line.add_option(
        *names,
        value="command config property file",
        help_text="Settings of the client, as a properties file.",
    )


def admin_client(options: argparse.Namespace, *, timeout_ms: int | None = None) -> AdminClient:
    """Return the client that the options describe. Raises UsageError."""
    path = getattr(options, "command_config", None) or getattr(options, "admin_config", None)
    settings = _settings(path)
    for key in settings:
        if key not in _KNOWN and key not in KNOWN_KEYS:
            warn(f"{key} of {path} is ignored")
    return AdminClient(
        parse_bootstrap(options.bootstrap_server),
        client_id=settings.get("client.id", "adminclient-1"),
        timeout_ms=timeout_ms if timeout_ms is not None else _number(settings, "default.api.timeout.ms", 60_000),
        request_timeout_ms=_number(settings, "request.timeout.ms", 30_000),
        security=client_security(settings),
    )


def _settings(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return properties.load(path)
    except (OSError, ValueError) as error:
        raise InvalidSettingsError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _number(settings: dict[str, str], key: str, default: int) -> int:
    text = settings.get(key, str(default)).strip()
    if not text.isdecimal():
        raise InvalidSettingsError(f"Invalid value {text} for configuration {key}: Not a number of type INT")
    return int(text)
