"""kafka-server-start: reads and checks the settings, and runs a broker until it is stopped."""

import gc
import logging
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from config import properties
from config.addresses import LOOPBACK, PORT_MAX, host_and_port_problem
from config.broker import BrokerConfig, base_row
from config.broker_properties import BROKER_ID, LOG_FILES_KEEP, METRICS_HTTP_LISTENER
from config.definition import ConfigError, ConfigErrors
from config.versions import KAFKA_COMMIT_ID, KAFKA_VERSION
from milena_broker import __version__
from tools.java_options import system_properties
from tools.running_servers import registered
from tools.server_logging import start_logging
from tools.version import version_line

USAGE = "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*"


logger = logging.getLogger("kafka.server.KafkaConfig")


class UsageError(Exception):
    """The command line is invalid; the text says what is missing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker; return its exit status: 0 after a requested stop, else 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--version" in arguments:
        print(version_line())
        print(f"Milena {__version__}")
        return 0
    try:
        path, overrides = _parse(arguments)
        config = BrokerConfig.from_properties({**_of_environment(os.environ), **properties.load(path)}, overrides)
    except UsageError as error:
        print(f"{error}{USAGE}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(_load_failure(path, error), file=sys.stderr)
        return 1
    if (exposed := _exposed_secrets(Path(path))) is not None:
        config.warnings.append(exposed)
    return _run(config)


def _exposed_secrets(path: Path) -> str | None:
    """Return a warning if other users of the machine can read passwords in the settings file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    secrets = [key for key in properties.load(str(path)) if (row := base_row(key)) is not None and row.is_sensitive]
    if not secrets or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    return (
        f"{path} has passwords ({', '.join(secrets)}) and other users can read it: chmod 600 {path}, or refer to "
        "another file with config.providers"
    )


def _parse(arguments: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the path of the settings file and the overrides. Raises UsageError."""
    if not arguments or "--help" in arguments:
        raise UsageError("")
    path, *rest = arguments
    overrides: dict[str, str] = {}
    while rest:
        option = rest.pop(0)
        name, equals, assignment = option.partition("=")
        if name != "--override":
            raise UsageError(f"{name.lstrip('-')} is not a recognized option\n")
        if not equals:
            if not rest:
                raise UsageError("Option override requires an argument\n")
            assignment = rest.pop(0)
        key, equals, value = assignment.partition("=")
        if not key or not equals:
            raise UsageError(f"--override expects property=value, found '{assignment}'\n")
        overrides[key.strip()] = value
    return path, overrides


def _of_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return settings from the environment, as Kafka's launchers set them; the file wins. Raises ConfigError."""
    settings = {}
    if port := variables.get("JMX_PORT"):
        if host_and_port_problem(f":{port}") is not None:
            raise ConfigError("JMX_PORT (environment)", port, f"Expected a port from 0 to {PORT_MAX}")
        settings[METRICS_HTTP_LISTENER.name] = f"{LOOPBACK}:{port}"
    return settings | system_properties(variables)


def _load_failure(path: str, error: OSError | ValueError) -> str:
    match error:
        case OSError():
            return f"Cannot read {path}: {error.strerror}"
        case ConfigError() | ConfigErrors():
            return str(error)
        case _:
            return f"Cannot read {path}: {error}"


def _run(config: BrokerConfig) -> int:
    start_logging(os.environ, config[LOG_FILES_KEEP])
    for notice in config.notices:
        logger.info(notice)
    for warning in config.warnings:
        logger.warning(warning)
    values = (f"\t{name} = {'null' if value is None else value}" for name, value in config.effective_values())
    logger.info("KafkaConfig values:\n%s", "\n".join(values))
    logger.info("Kafka version: %s", KAFKA_VERSION)
    logger.info("Kafka commitId: %s", KAFKA_COMMIT_ID)

    # Imports make hardly any garbage, and collections would take a tenth of the start. `run` enables them again.
    gc.disable()
    from broker.server import StartupError, run  # after the settings were checked, because it imports the whole broker

    with ExitStack() as stack:
        try:
            stack.enter_context(registered(config[BROKER_ID]))
        except OSError as error:
            logger.warning("kafka-server-stop will not find this broker: %s", error)
        try:
            return run(config)
        except StartupError as error:
            logger.error("%s", error)
            return 1


if __name__ == "__main__":
    raise SystemExit(main())
