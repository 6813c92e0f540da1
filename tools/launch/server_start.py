"""kafka-server-start: reads and checks the settings, and runs a broker until it is stopped."""

from __future__ import annotations

import gc
import logging
import os
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from base import properties
from base.compiled import form
from config.addresses import is_loopback
from config.broker import BrokerConfig, base_row
from config.broker_properties import BROKER_ID, LOG_FILES_KEEP
from config.definition import ConfigError, ConfigErrors
from config.versions import KAFKA_COMMIT_ID, KAFKA_VERSION
from milena_broker import __version__
from tools.launch.java_options import settings_of_launchers
from tools.launch.running_servers import Announce, registered
from tools.launch.served_addresses import addresses_of
from tools.launch.start_options import (
    StartOptions,
    UsageError,
    applicable,
    parse,
    parser,
    places_of,
    with_place,
    without_overruled,
)
from tools.log_output.log_files import HAS_LINES
from tools.log_output.logging_setup import start_logging
from tools.log_output.state_folder import state_folder

if TYPE_CHECKING:
    from broker.server import Server
    from tools.launch.container_environment import ContainerEnvironment

logger = logging.getLogger("kafka.server.KafkaConfig")
host_logger = logging.getLogger("kafka.server.HostChecks")

DAEMON, DAEMON_LOG = "-daemon", "kafkaServer.out"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker; return its exit status: 0 after a requested stop, else 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--version" in arguments or "--help" in arguments:
        from tools.base.command_line import run_guarded  # a broker starts without it

        return run_guarded(_print_version if "--version" in arguments else _print_help)
    if arguments and arguments[0] == DAEMON:
        return _start_daemon(arguments[1:])
    try:
        options = parse(arguments)
    except UsageError as error:
        print(f"{error}\n{parser().format_usage().strip()} (--help explains)", file=sys.stderr)
        return 1
    environment: ContainerEnvironment | None = None
    try:
        if options.uses_environment:
            from tools.launch.container_environment import read_environment  # only containers have their settings there

            environment = read_environment(os.environ)
        config = _config(options, environment)
    except (OSError, ValueError) as error:
        if options.is_check and isinstance(error, ConfigErrors):
            _print_warnings(error.warnings)
        print(_load_failure(options, environment, error), file=sys.stderr)
        return 1
    if options.file is not None and (exposed := _exposed_secrets(Path(options.file))) is not None:
        config.warnings.append(exposed)
    if options.is_check:
        return _check(options, environment, config)
    return _run(config, options, environment)


def _print_version() -> int:
    from tools.base.version import version_line  # a broker starts without it

    print(version_line())
    print(f"Milena {__version__}, hot loops {form()}")
    return 0


def _print_help() -> int:
    print(parser().format_help())
    return 0


def _start_daemon(arguments: Sequence[str]) -> int:
    """Start a broker in the background. Launchers in a clone do this themselves, before they start Python."""
    from tools.launch.detached import start_detached  # other starts do not need it

    folder = Path(os.environ.get("LOG_DIR") or state_folder() / "logs")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / DAEMON_LOG
    start_detached("tools.launch.server_start", arguments, log)
    print(f"Started; it logs to {log}")
    return 0


def _config(options: StartOptions, environment: ContainerEnvironment | None) -> BrokerConfig:
    """Return the settings; later ones win: defaults, variables of Java, the file, `KAFKA_*` variables, overrides.

    Raises OSError, ValueError, and ConfigErrors with all errors.
    """
    of_file = {} if options.file is None else properties.load(options.file)
    settings = {**settings_of_launchers(os.environ), **of_file}
    if environment is None:
        defaults = applicable(options.defaults, {**settings, **options.overrides})
        return BrokerConfig.from_properties({**defaults, **settings}, options.overrides)
    from tools.launch.container_environment import derived_addresses, without_shared_id
    from tools.launch.container_users import has_sasl, settings_of_users

    settings = {**without_overruled(settings, environment.settings), **environment.settings}
    given = {**settings, **options.overrides}
    defaults = without_shared_id(applicable({**options.defaults, **environment.defaults}, given), given)
    derived = derived_addresses(given, environment.defaults)
    effective = {**defaults, **derived, **given}
    if environment.users:
        derived |= settings_of_users(environment.users, effective)
    config = BrokerConfig.from_properties({**defaults, **derived, **settings}, options.overrides)
    if environment.users and not has_sasl(effective):
        config.warnings.append("the users of the environment have no effect: no listener has a protocol with SASL")
    config.warnings = [*map(environment.with_variable, config.warnings), *environment.warnings]
    return config


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


def _places(options: StartOptions, environment: ContainerEnvironment | None) -> dict[str, str]:
    return places_of(options, {} if environment is None else environment.variables)


def _load_failure(options: StartOptions, environment: ContainerEnvironment | None, error: OSError | ValueError) -> str:
    match error:
        case OSError():
            return f"Cannot read {options.file}: {error.strerror}"
        case ConfigErrors():
            places = _places(options, environment)
            return "\n".join(with_place(one, places) for one in error.errors)
        case ConfigError():
            return str(error)
        case _:
            return f"Cannot read {options.file}: {error}"


def _check(options: StartOptions, environment: ContainerEnvironment | None, config: BrokerConfig) -> int:
    """Print what a start would report, and start nothing."""
    from broker.setting_problems import setting_problems

    name = options.file or "the settings"
    _print_warnings(config.warnings)
    places = _places(options, environment)
    problems = [with_place(problem, places) for problem in setting_problems(config)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{name}: no error")
    return 1 if problems else 0


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"WARN {warning}")


def _run(config: BrokerConfig, options: StartOptions, environment: ContainerEnvironment | None) -> int:
    start_logging(os.environ, config[LOG_FILES_KEEP])
    for notice in config.notices:
        logger.info(notice)
    for warning in config.warnings:
        logger.warning(warning)
    if options.shows_settings:
        values = (f"\t{name} = {'null' if value is None else value}" for name, value in config.effective_values())
        logger.info("KafkaConfig values:\n%s", "\n".join(values), extra={HAS_LINES: True})
    logger.info("Kafka version: %s, commitId: %s", KAFKA_VERSION, KAFKA_COMMIT_ID)
    _compile_hot_loops()

    _start_host_checks(config)
    # Imports make hardly any garbage, and collections would take a tenth of the start. `run` enables them again.
    gc.disable()
    from broker.server import StartupError, run  # after the settings were checked, because it imports the whole broker

    announce: Announce | None = None

    async def when_started(server: Server) -> None:
        if announce is not None:
            announce(map(str, addresses_of(config, server.ports, server.metrics_port)))
        if environment is not None and environment.topics:
            from tools.launch import topics_at_start  # a container creates topics, other starts do not

            await topics_at_start.create(server, config, environment.topics)
        if environment is not None and environment.users:
            from tools.launch import users_at_start

            await users_at_start.create(server, config, environment.users.all)

    with ExitStack() as stack:
        try:
            announce = stack.enter_context(registered(config[BROKER_ID], options.run_folder))
        except OSError as error:
            logger.warning("kafka-server-stop will not find this broker: %s", error)
        try:
            return run(config, when_started)
        except StartupError as error:
            logger.error("%s", error)
            return 1


def _compile_hot_loops() -> None:
    """Compile what is not compiled yet, before it is imported; log the reason if it stays interpreted."""
    if form() == "compiled":
        return
    from tools.launch import compiling  # only the first start of a clone compiles

    try:
        reason = compiling.prepare()
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    if reason is not None:
        logger.info("The hot loops run interpreted, which takes more time for each record: %s", reason)


def _start_host_checks(config: BrokerConfig) -> None:
    """Log in one line what this host misses, from a thread: counting the segments of a large broker takes a while.

    A broker that only this machine reaches is a trial, whose host need not be tuned.
    """
    if all(is_loopback(listener.host) for listener in config.listeners):
        return
    from tools.launch.check import findings_of  # a trial does not need them
    from tools.launch.host_checks import problems

    def warn() -> None:
        if found := problems(findings_of(config)):
            host_logger.warning("host check: %s (kafka-check prints all)", "; ".join(map(str, found)))

    Thread(target=warn, name="host-checks", daemon=True).start()


if __name__ == "__main__":
    raise SystemExit(main())
