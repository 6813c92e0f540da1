"""connect-standalone: one worker, and the connectors whose files its command line names."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from spark_jobs.connect.base.connector_settings import NAME
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.cli.running import WorkerProcess, command_line, load, run_worker
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.herders.validation import raise_problems, validate
from spark_jobs.connect.worker.settings import WorkerSettings
from tools.base.command_line import CommandLine

logger = logging.getLogger("org.apache.kafka.connect.cli.ConnectStandalone")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    line = command_line(
        "connect-standalone",
        "Runs one worker alone, with the connectors of the files, and those that are created over its REST interface.",
        "connect-standalone.properties [connector1.properties connector2.json ...]",
    )
    return run_worker(line, _run, arguments)


def _run(_line: CommandLine, options: argparse.Namespace) -> None:
    worker_file, *connector_files = options.files
    configs = [_connector(path) for path in connector_files]
    settings = WorkerSettings(load(worker_file), is_distributed=False)
    WorkerProcess(settings).run(lambda herder: _create(herder, connector_files, configs))


def _create(herder: Herder, files: Sequence[str], configs: Sequence[dict[str, str]]) -> None:
    """Create the connectors. Raises ConnectError for the first that is invalid."""
    for path, config in zip(files, configs, strict=True):
        name = config.get(NAME, "")
        try:
            raise_problems(validate(config, herder.settings, herder.plugins))
            herder.submit(partial(herder.put_connector, name, config, replaces=False)).result()
        except ConnectError as error:
            raise ConfigError(f"Failed to create the connector of {path}: {error}") from error
        logger.info("Created connector %s", name)


def _connector(path: str) -> dict[str, str]:
    """Return the configuration in a file of properties, or in one of JSON: an object of texts, or one with `name` and
    `config` as for the REST interface (KIP-1041). Raises ConfigError."""
    if not path.endswith(".json"):
        return load(path)
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if isinstance(found, dict) and isinstance(found.get("config"), dict):
        found = {NAME: found.get(NAME), **found["config"]}
    if not isinstance(found, dict) or any(isinstance(value, dict | list) or value is None for value in found.values()):
        raise ConfigError(f"{path} is not the configuration of a connector: expected a JSON object of texts")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()}


if __name__ == "__main__":
    raise SystemExit(main())
