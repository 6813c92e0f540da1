"""The server of the REST interface: its addresses, and the thread with its event loop.

Owns the syntax of listeners. Must not know routes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.worker.settings import WorkerSettings

DEFAULT_PORT: Final = 8083
CLOSE_S: Final = 1.0


class Listener(NamedTuple):
    host: str
    port: int


def listeners(settings: WorkerSettings) -> list[Listener]:
    """Return the addresses to listen at. Raises ConfigError."""
    if "listeners" not in settings.given and (settings["rest.port"] is not None or settings["rest.host.name"]):
        port = settings["rest.port"]
        return [Listener(settings["rest.host.name"] or "", DEFAULT_PORT if port is None else port)]
    found = [_parse(each) for each in settings["listeners"]]
    if not found:
        raise ConfigError("Invalid value [] for configuration listeners: expected http://HOST:PORT")
    return found


def _parse(text: str) -> Listener:
    parts = urlsplit(text.strip().lower())
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or port is None:
        raise ConfigError(f"Invalid value {text} for configuration listeners: expected http://HOST:PORT")
    return Listener(parts.hostname or "", port)


def advertised(settings: WorkerSettings, bound: Listener) -> Listener:
    """Return the address by which other workers reach this one."""
    host = settings["rest.advertised.host.name"] or bound.host
    if host in ("", "0.0.0.0", "::"):
        host = socket.getfqdn() if settings.is_distributed else "localhost"
    return Listener(host, settings["rest.advertised.port"] or bound.port)


class Sockets:
    """Bound sockets: the port of a worker is known before it joins its group."""

    def __init__(self, wanted: Sequence[Listener]) -> None:
        """Raises ConfigError for an address that cannot be used."""
        self.all: list[socket.socket] = []
        for host, port in wanted:
            try:
                self.all.append(_bound(host, port))
            except OSError as error:
                self.close()
                reason = error.strerror or error
                raise ConfigError(f"The REST interface cannot use {host or '*'}:{port}: {reason}") from error
        self.first = Listener(wanted[0].host, self.all[0].getsockname()[1])

    def close(self) -> None:
        for each in self.all:
            each.close()


def _bound(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


class RestServer:
    """Serves an application in a thread of its own."""

    def __init__(self, app: web.Application, sockets: Sockets) -> None:
        self._app = app
        self._sockets = sockets
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Close the sockets, also if the server was not started."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._sockets.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=CLOSE_S)
        await runner.setup()
        for each in self._sockets.all:
            await web.SockSite(runner, each).start()
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()
