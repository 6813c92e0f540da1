"""The life of a process: from its settings to the end by a signal. A worker has it, and a dedicated MirrorMaker.

Owns garbage collection, and the order: the address of the REST interface is taken first, so that a second worker at
the same address fails before it does anything; connectors start when the herder does, and end before the process does.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from base import properties
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.cli.apache_kafka import HOME, JAVA, run_apache_kafka
from spark_jobs.connect.herders.assembly import distributed_herder, standalone_herder
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.rest.app import RestApp
from spark_jobs.connect.rest.server import RestServer, Sockets, advertised, listeners
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from tools.base.command_line import CommandLine, StopRequest, UsageError, run_tool, wait_for_signal
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_security import client_security
from tools.log_output.logging_setup import start_logging

logger = logging.getLogger("org.apache.kafka.connect.cli.AbstractConnectCli")

LOGS_TO_KEEP: Final = 7
REACH_TIMEOUT_MS: Final = 30_000
# Python's default, 700 new objects, is less than the records that are under way: each would be scanned several times.
GC_THRESHOLDS: Final = (10_000, 10, 10)


def command_line(name: str, purpose: str, files: str) -> CommandLine:
    """Return the command line of a worker; `files` is how its arguments are shown."""
    line = CommandLine(name, f"{purpose}\n\nUSAGE: {name} [-daemon] [{JAVA}] {files}")
    line.add_flag(JAVA, f"Run Apache Kafka's own worker, from the folder that {HOME} names.")
    line.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    return line


def run_worker(
    line: CommandLine, run: Callable[[CommandLine, argparse.Namespace], None], arguments: Sequence[str] | None
) -> int:
    """Run a worker, which logs as a server does; return its exit status. Errors are one line on stderr."""

    def reported(line: CommandLine, options: argparse.Namespace) -> int:
        if not options.files:
            raise UsageError("")
        # Below, the log is that of a tool, which knows errors only.
        logging.getLogger().handlers.clear()
        log = start_logging(os.environ, LOGS_TO_KEEP)
        try:
            if options.java:
                run_apache_kafka(line.prog, sys.argv[1:] if arguments is None else arguments)
            run(line, options)
        except ConnectError as error:
            print(f"{line.prog}: {error}", file=sys.stderr)
            return 1
        finally:
            log.close()
        return 0

    return run_tool(line, reported, arguments)


def load(path: str) -> dict[str, str]:
    """Return the settings of a file. Raises ConfigError."""
    try:
        return properties.load(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


class WorkerProcess:
    """A worker with its REST interface."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Raises ConfigError."""
        self._sockets = Sockets(listeners(settings))
        worker_id, self.url = names(settings, self._sockets)
        plugins = Plugins([Path(each) for each in settings["plugin.path"]])
        build = distributed_herder if settings.is_distributed else standalone_herder
        self._cluster_id = cluster_id(settings)
        self.herder: Herder = build(settings, plugins, worker_id=worker_id, url=self.url)
        self._rest = RestServer(RestApp(self.herder, lambda: self._cluster_id).application(), self._sockets)

    def run(self, started: Callable[[Herder], None] = lambda herder: None) -> None:
        """Run until SIGTERM or SIGINT. `started` is called when connectors may be created."""

        def start() -> None:
            self.herder.start()
            self._rest.start()
            logger.info("REST server listening at %s, advertising URL %s", self._sockets.first, self.url)
            started(self.herder)

        def stop() -> None:
            self.herder.stop()
            self._rest.stop()

        run_until_stopped("Kafka Connect", start, stop)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often, and none of modules and classes, which live as long as the process."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def run_until_stopped(name: str, start: Callable[[], None], stop: Callable[[], None]) -> None:
    """Start, wait for SIGTERM or SIGINT, and stop, which has to be possible after a `start` that has failed."""
    with _rare_collections():
        ended = threading.Event()
        with StopRequest(ended.set):
            try:
                start()
                logger.info("%s started", name)
                wait_for_signal(ended)
            finally:
                logger.info("%s stopping", name)
                stop()
        logger.info("%s stopped", name)


def names(settings: WorkerSettings, sockets: Sockets) -> tuple[str, str]:
    """Return the id of a worker, HOST:PORT, and the address of its REST interface."""
    host, port = advertised(settings, sockets.first)
    return f"{host}:{port}", f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def cluster_id(settings: WorkerSettings) -> str | None:
    """Return the id of the broker's cluster. Raises ConnectError if no broker is reached."""
    client = settings.client("admin")
    with AdminClient(
        parse_bootstrap(client["bootstrap.servers"]), timeout_ms=REACH_TIMEOUT_MS, security=client_security(client)
    ) as admin:
        return admin.metadata([]).cluster_id
