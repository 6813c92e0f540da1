"""kafka-configs: describes and alters configurations of topics, brokers, loggers, users, clients and addresses."""

import argparse
import re
import sys
from collections.abc import Sequence

from base import properties
from protocol.errors import KafkaError
from tools.admin.configuration.entities import DEFAULT_NAME, Entity, add_entity_options, parse_entities
from tools.admin.configuration.quotas import alter_quotas, describe_quotas
from tools.admin.configuration.resources import RESOURCE_TYPES, InvalidConfigs, alter_resource, describe_resources
from tools.base.command_line import CommandLine, UsageError, is_given, run_tool, warn
from tools.base.java_names import exception_text
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client
from tools.zookeeper.legacy_zookeeper import DEPRECATED
from tools.zookeeper.zookeeper_options import add_tls_option, security_of

# A comma inside brackets belongs to the value.
_BETWEEN_CONFIGS = re.compile(r",(?=[^\]]*(?:\[|$))")
_CHANGES = ("--add-config", "--add-config-file", "--delete-config")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run_tool(_command_line(), lambda line, options: _run(line, options, given), given)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-configs",
        "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, "
        "client-metrics or group",
        [
            "--bootstrap-server localhost:9092 --describe --topic orders --all",
            "--bootstrap-server localhost:9092 --alter --topic orders --add-config retention.ms=86400000",
        ],
    )
    add_admin_options(line)
    line.add_option(
        "--zookeeper",
        value="urls",
        help_text="ZooKeeper (host:port/chroot), or all log directories of a stopped broker without it "
        "(sqlite:DIRECTORY,DIRECTORY), in place of brokers: for SCRAM credentials and settings of brokers before the "
        "first one starts. DEPRECATED for topics, clients, quotas and ips.",
    )
    add_tls_option(line)
    line.add_flag("--alter", "Alter the configuration of the entity.")
    line.add_flag("--describe", "List the configurations of the entity.")
    add_entity_options(line)
    line.add_option("--add-config", value="k=v,k2=[a,b]", help_text="Configurations to set; brackets protect commas.")
    line.add_option("--add-config-file", value="file", help_text="Configurations to set, as a properties file.")
    line.add_option("--delete-config", value="k,k2", repeatable=True, help_text="Configurations to remove.")
    line.add_flag("--all", "Describe defaults as well.")
    line.add_flag("--force", "Accepted; there is no prompt.")
    return line


def _run(line: CommandLine, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    entities = _check(line, options)
    if options.zookeeper is not None:
        return _run_stored(options, entities)
    try:
        with admin_client(options) as admin:
            if options.describe:
                _describe(admin, entities, describe_all=options.all)
            else:
                _alter(admin, entities, options)
    except InvalidConfigs as error:
        print(error, file=sys.stderr)
        return 1
    except (KafkaError, CallTimedOut) as error:
        sys.stdout.flush()
        reason = exception_text(error) if isinstance(error, KafkaError) else str(error)
        print(f"Error while executing config command with args '{' '.join(arguments)}'\n{reason}", file=sys.stderr)
        return 1
    return 0


def _run_stored(options: argparse.Namespace, entities: Sequence[Entity]) -> int:
    """Read or change the metadata store, without a broker."""
    # Imported for this alone.
    from tools.admin.configuration.stored import StoreFailed, alter_stored, describe_stored
    from tools.zookeeper.znode_trees import EMBEDDED

    if not options.zookeeper.startswith(EMBEDDED):
        warn(DEPRECATED)
    security = security_of(options.zk_tls_config_file)
    try:
        if options.describe:
            for line in describe_stored(options.zookeeper, security, entities):
                print(line)
        else:
            print(alter_stored(options.zookeeper, security, entities, _added(options), _deleted(options)))
    except (InvalidConfigs, StoreFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _check(line: CommandLine, options: argparse.Namespace) -> list[Entity]:
    """Return the entities to describe or alter. Raises UsageError."""
    if options.alter == options.describe:
        raise UsageError("Command must include exactly one action: --describe, --alter")
    line.forbid(options, "--zookeeper", "--bootstrap-server", "--command-config")
    if options.zookeeper is None:
        line.require(options, "--bootstrap-server")
    elif options.all:
        raise UsageError("--bootstrap-server must be specified for --all")
    entities = parse_entities(options.entities)
    if options.alter:
        if not any(is_given(options, name) for name in _CHANGES):
            raise UsageError(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
            )
        if options.add_config and options.add_config_file:
            raise UsageError("Only one of --add-config or --add-config-file must be specified")
        if any(entity.name is None for entity in entities):
            raise UsageError(f"an entity name must be specified with --alter of {', '.join(e.type for e in entities)}")
    return entities


def _describe(admin: AdminClient, entities: Sequence[Entity], *, describe_all: bool) -> None:
    if entities[0].type in RESOURCE_TYPES:
        lines = describe_resources(admin, entities[0], describe_all=describe_all)
    else:
        lines = describe_quotas(admin, entities)
    for line in lines:
        print(line)


def _alter(admin: AdminClient, entities: Sequence[Entity], options: argparse.Namespace) -> None:
    added = _added(options)
    deleted = _deleted(options)
    if entities[0].type in RESOURCE_TYPES:
        alter_resource(admin, entities[0], added, deleted)
    else:
        alter_quotas(admin, entities, added, deleted)
    first = entities[0]
    if first.name == DEFAULT_NAME:
        print(f"Completed updating default config for {first.type} in the cluster.")
    else:
        print(f"Completed updating config for {first.singular} {first.name}.")


def _deleted(options: argparse.Namespace) -> list[str]:
    return [key.strip() for text in options.delete_config for key in text.split(",") if key.strip()]


def _added(options: argparse.Namespace) -> dict[str, str]:
    """Return the keys and values to set. Raises UsageError."""
    if options.add_config_file is not None:
        try:
            return properties.load(options.add_config_file)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"Cannot read {options.add_config_file}: {getattr(error, 'strerror', None) or error}"
            ) from None
    return parse_configs(options.add_config or "")


def parse_configs(text: str) -> dict[str, str]:
    """Return keys and values of `k=v,k2=[a,b],k3=`. Raises UsageError."""
    configs: dict[str, str] = {}
    for config in filter(None, (part.strip() for part in _BETWEEN_CONFIGS.split(text))):
        key, equals, value = config.partition("=")
        if not equals or not key.strip():
            raise UsageError('Invalid entity config: all configs to be added must be in the format "key=val".')
        configs[key.strip()] = re.sub(r"^\[|\]$", "", value.strip())
    return configs


if __name__ == "__main__":
    raise SystemExit(main())
