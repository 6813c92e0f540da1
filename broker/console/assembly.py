"""Builds the console of one broker and connects it with the broker's HTTP server.

Owns the order of its start and stop. Imported only by a broker with `metrics.http.listener`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from broker.console.console import Console, Measures
from broker.console.http import ConsoleHttp
from broker.console.sampling import sampling_jobs
from broker.loop.periodic_jobs import PeriodicJobs
from broker.network.connection import Dispatcher
from broker.network.socket_server import SocketServer
from broker.requests.services import Services


def open_console(
    services: Services, dispatcher: Dispatcher, sockets: SocketServer, measures: Measures, undo: AsyncExitStack
) -> ConsoleHttp:
    """Return the console, ready to be added to the HTTP server; `undo` stops what it has started."""
    console = Console(services, dispatcher, sockets, measures)
    undo.push_async_callback(console.stop)
    jobs = PeriodicJobs(sampling_jobs(console))
    jobs.start()
    undo.push_async_callback(jobs.stop)
    return ConsoleHttp(console)
