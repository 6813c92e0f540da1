"""kafka-client-metrics: subscriptions to metrics of clients (KIP-714).

A broker in a cluster with ZooKeeper refuses them, with the errors that Kafka in ZooKeeper mode gives.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from typing import Final

from protocol.errors import KafkaError
from protocol.ids import id_text, random_id
from protocol.messages.describe_configs import DescribeConfigsResourceResult
from tools.admin.configuration.entities import CLIENT_METRICS, Entity
from tools.admin.configuration.resources import own_names, read_configs, write_configs
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, is_given, run_tool
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client

_ACTIONS: Final = ("--alter", "--delete", "--describe", "--list")
_SETTINGS: Final = {"--interval": "interval.ms", "--match": "match", "--metrics": "metrics"}


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
    match action:
        case "--list":
            print("\n".join(own_names(admin, CLIENT_METRICS)))
        case "--describe":
            for name in [options.name] if options.name is not None else own_names(admin, CLIENT_METRICS):
                print(f"Client metrics configs for {name} are:")
                for config in _configs(admin, name):
                    print(f"  {config.name}={config.value}")
        case "--alter":
            name = options.name or id_text(random_id(secrets.randbits))
            given = {key: getattr(options, option.lstrip("-")) for option, key in _SETTINGS.items()}
            added = {key: value for key, value in given.items() if value}
            removed = [key for key, value in given.items() if value == ""]
            write_configs(admin, Entity(CLIENT_METRICS, name), added, removed)
            print(f"Altered client metrics config for {name}.")
        case "--delete":
            names = [config.name for config in _configs(admin, options.name)]
            write_configs(admin, Entity(CLIENT_METRICS, options.name), {}, names)
            print(f"Deleted client metrics config for {options.name}.")


def _configs(admin: AdminClient, name: str) -> list[DescribeConfigsResourceResult]:
    return read_configs(admin, Entity(CLIENT_METRICS, name), describe_all=True)


if __name__ == "__main__":
    raise SystemExit(main())
