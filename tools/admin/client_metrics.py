"""kafka-client-metrics: subscriptions to metrics of clients (KIP-714), which need KRaft.

The command line is parsed and the broker is asked, so that scripts get the error that Kafka in ZooKeeper mode gives.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from typing import Final

from protocol.errors import ErrorCode, KafkaError
from protocol.ids import id_text, random_id
from tools.admin.config_entities import CLIENT_METRICS, Entity
from tools.admin.config_resources import read_configs, write_configs
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, is_given, run_tool
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client

_ACTIONS: Final = ("--alter", "--delete", "--describe", "--list")
_SETTINGS: Final = {"--interval": "interval.ms", "--match": "match", "--metrics": "metrics"}
_UNSUPPORTED: Final = "The node does not support LIST_CLIENT_METRICS_RESOURCES"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-client-metrics",
        "This tool helps to manipulate and describe configurations for client metrics resources.",
    )
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_flag("--alter", "Alter the configuration for the client metrics resource.")
    line.add_flag("--delete", "Delete the configuration for the client metrics resource.")
    line.add_flag("--describe", "List configurations for the client metrics resource.")
    line.add_flag("--list", "List the client metrics resources.")
    line.add_option("--name", value="name", help_text="Name of the client metrics resource.")
    line.add_flag("--generate-name", "Generate a UUID to use as the name.")
    line.add_option(
        "--interval", value="push interval", help_text="The push interval in milliseconds; empty resets it."
    )
    line.add_option("--match", value="k=v,k2=v2", help_text="Which clients push; empty resets it.")
    line.add_option("--metrics", value="m1,m2", help_text="Prefixes of the metrics to push; empty resets it.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server")
    actions = [name for name in _ACTIONS if is_given(options, name)]
    if len(actions) != 1:
        raise UsageError("Command must include exactly one action: --alter, --delete, --describe or --list.")
    (action,) = actions
    line.forbid(options, "--name", "--generate-name")
    if action in ("--alter", "--delete") and options.name is None and not options.generate_name:
        raise UsageError(f"A client metrics resource name must be specified with {action}.")
    for name in ("--generate-name", *_SETTINGS):
        if action != "--alter":
            line.forbid(options, action, name)
    try:
        with admin_client(options) as admin:
            _perform(admin, action, options)
    except (KafkaError, CallTimedOut) as error:
        text = error.message if isinstance(error, KafkaError) else str(error)
        print(f"Error while executing client metrics command : {text}")
        return 1
    return 0


def _perform(admin: AdminClient, action: str, options: argparse.Namespace) -> None:
    """Raises KafkaError."""
    if action == "--list" or (action == "--describe" and options.name is None):
        admin.metadata([])  # so that an unreachable broker is reported as such
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _UNSUPPORTED)
    if action == "--describe":
        print(f"Client metrics configs for {options.name} are:")
    if action == "--alter":
        name = options.name or id_text(random_id(secrets.randbits))
        given = {key: getattr(options, option.lstrip("-")) for option, key in _SETTINGS.items()}
        added = {key: value for key, value in given.items() if value}
        write_configs(admin, Entity(CLIENT_METRICS, name), added, [key for key, value in given.items() if value == ""])
        print(f"Altered client metrics config for {name}.")
        return
    for config in read_configs(admin, Entity(CLIENT_METRICS, options.name), describe_all=True):
        print(f"  {config.name}={config.value}")


if __name__ == "__main__":
    raise SystemExit(main())
