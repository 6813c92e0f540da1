"""connect-mirror-maker: a dedicated MirrorMaker, which runs all flows between the clusters of one file.

Each flow to a cluster has a herder, which is a member of the group `SOURCE-mm2` at that cluster. So several processes
with the same file share the work. The leader of a group configures the three connectors of its flow, unless they have
these settings already.

Without `dedicated.mode.enable.internal.rest` there is no REST interface: the members of a group then cannot ask their
leader for new tasks.

Owns the parts of the process. Must not know what connectors do.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from aiohttp import web

from protocol.errors import KafkaError
from spark_jobs.connect.base.connector_settings import NAME
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.cli.running import cluster_id, command_line, names, run_until_stopped, run_worker
from spark_jobs.connect.herders.assembly import distributed_herder
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.herders.leader import NO_URL
from spark_jobs.connect.herders.validation import raise_problems, validate
from spark_jobs.connect.mirror.settings import Flow, MirrorMakerSettings
from spark_jobs.connect.rest.app import RestApp
from spark_jobs.connect.rest.server import RestServer, Sockets, listeners
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from tools.base.command_line import CommandLine, UnreachableError, UsageError
from tools.client.admin_client import CallTimedOut

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorMaker")

CLUSTERS: Final = "--clusters"
_OF_CONNECTORS: Final = ("tasks.max", "replication.policy.")
"""What a worker is given and does not use."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    line = command_line(
        "connect-mirror-maker",
        "Mirrors topics, positions of groups and heartbeats between clusters (MirrorMaker 2).",
        "mm2.properties [--clusters CLUSTER ...]",
    )
    line.add_option(
        CLUSTERS,
        value="CLUSTER",
        help_text="The clusters near this process: it runs the flows to them. Without the option it runs all flows.",
        default=[],
        takes_several=True,
    )
    return run_worker(line, _run, with_file_first(sys.argv[1:] if arguments is None else arguments))


def with_file_first(arguments: Sequence[str]) -> list[str]:
    """Move the file before the clusters if it is behind them: the option would take it for a cluster."""
    found = list(arguments)
    return [found[-1], *found[:-1]] if len(found) > 2 and found[0] == CLUSTERS else found


def _run(_line: CommandLine, options: argparse.Namespace) -> None:
    if len(options.files) > 1:
        raise UsageError(f"{options.files[1]} is one file too many: expected mm2.properties")
    settings = MirrorMakerSettings.from_file(options.files[0])
    MirrorMakerProcess(settings, settings.flows_to(options.clusters)).run()


class MirrorMakerProcess:
    """The herders of some flows, and the REST interface between processes."""

    def __init__(self, mirror: MirrorMakerSettings, flows: Sequence[Flow]) -> None:
        """Raises ConfigError for settings of a worker or connector, and ConnectError for a target that is down."""
        self._mirror = mirror
        workers = {flow: self._worker(flow) for flow in flows}
        plugins = {flow: Plugins([Path(each) for each in worker["plugin.path"]]) for flow, worker in workers.items()}
        connectors = {flow: self._connectors(flow, workers[flow], plugins[flow]) for flow in flows}
        sockets = Sockets(listeners(workers[flows[0]])) if mirror.enables_internal_rest else None
        for alias, worker in {flow.target: worker for flow, worker in workers.items()}.items():
            _require_reachable(alias, worker)
        self._herders = {flow: _herder(flow, workers[flow], plugins[flow], connectors[flow], sockets) for flow in flows}
        self._rest = None if sockets is None else RestServer(_application(self._herders), sockets)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        run_until_stopped("Kafka MirrorMaker", self._start, self._stop)

    def _start(self) -> None:
        logger.info("Kafka MirrorMaker starting with %d herders: %s", len(self._herders), _listed(self._herders))
        for herder in self._herders.values():
            herder.start()
        if self._rest is not None:
            self._rest.start()

    def _stop(self) -> None:
        for herder in self._herders.values():
            herder.stop()
        if self._rest is not None:
            self._rest.stop()

    def _worker(self, flow: Flow) -> WorkerSettings:
        rest = self._mirror.rest() if self._mirror.enables_internal_rest else {}
        given = {**self._mirror.worker(flow), **rest}
        used = {key: value for key, value in given.items() if not key.startswith(_OF_CONNECTORS)}
        try:
            return WorkerSettings(used, is_distributed=True)
        except ConfigError as error:
            raise ConfigError(f"{flow}: {error}") from error

    def _connectors(self, flow: Flow, worker: WorkerSettings, plugins: Plugins) -> dict[str, dict[str, str]]:
        """Return the settings of the connectors of a flow. Raises ConfigError if they are invalid."""
        found = {name: {**config, NAME: name} for name, config in self._mirror.connectors(flow).items()}
        for name, config in found.items():
            try:
                raise_problems(validate(config, worker, plugins))
            except ConfigError as error:
                raise ConfigError(f"{flow}, {name}: {error}") from error
        return found


def _require_reachable(alias: str, worker: WorkerSettings) -> None:
    """Raises ConnectError. A source that is down is waited for: its connectors try again."""
    try:
        cluster_id(worker)
    except (OSError, KafkaError, CallTimedOut, UnreachableError) as error:
        raise ConnectError(f"cluster {alias} is not reached: {error}") from error


def _herder(
    flow: Flow,
    worker: WorkerSettings,
    plugins: Plugins,
    connectors: Mapping[str, Mapping[str, str]],
    sockets: Sockets | None,
) -> Herder:
    worker_id, url = (str(flow), NO_URL) if sockets is None else names(worker, sockets)
    return distributed_herder(
        worker,
        plugins,
        worker_id=worker_id,
        url=url,
        namespace=_path(flow),
        on_lead=lambda herder: _configure(herder, flow, connectors),
    )


def _configure(herder: Herder, flow: Flow, connectors: Mapping[str, Mapping[str, str]]) -> None:
    """Store the settings of connectors that differ from what is stored. An error is logged."""
    for name, config in connectors.items():
        try:
            if herder.configs.state.connectors.get(name) == config:
                logger.info("%s of %s is up to date", name, flow)
                continue
            herder.put_connector(name, config, replaces=True)
        except ConnectError as error:
            logger.error("%s of %s could not be configured: %s", name, flow, error)
        else:
            logger.info("%s of %s has been configured", name, flow)


def _application(herders: Mapping[Flow, Herder]) -> web.Application:
    app = web.Application()
    for flow, herder in herders.items():
        app.add_subapp(_path(flow), RestApp(herder, lambda: None).internal_application())
    return app


def _path(flow: Flow) -> str:
    return "".join(f"/{quote(alias, safe='')}" for alias in flow)


def _listed(flows: Mapping[Flow, Herder]) -> str:
    return ", ".join(map(str, flows))


if __name__ == "__main__":
    raise SystemExit(main())
