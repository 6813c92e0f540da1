"""The coordination server in a thread of a tool: of a supervisor, as one of its servers, or of one that reads its tree.

Owns the thread, its event loop, the log and the file. Must not know when the server is started again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from controller.coordination.settings import CoordinationSettings

COORDINATION_FILE: Final = "coordination.sqlite"
STOP_TIMEOUT_S: Final = 30.0
_LOGGER: Final = "org.apache.zookeeper.server"
_FAILED: Final = 1


class CoordinationThread:
    """`spawn` returns when the server serves or could not be started; `poll` then says which."""

    name: Final = "coordination"

    def __init__(self, folder: Path, host: str, port: int) -> None:
        """`port` 0 is any free one, which the attribute has after the start."""
        self.folder = folder
        self.port = port
        self.variables: Mapping[str, str] = {}
        self.is_serving = False
        self.problem = ""
        """Why the server has ended."""
        self._is_up = False
        self._settings = CoordinationSettings(folder / COORDINATION_FILE, host, port)
        self._thread: threading.Thread | None = None
        self._end: Callable[[], object] = _nothing
        """Makes the running thread end."""
        self._end_session_of: Callable[[str], object] = _nothing
        self._status: int | None = None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def spawn(self) -> int:
        """Start the thread and return the id of this process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._status = None
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=self.name, daemon=True)
        self._thread.start()
        started.result()
        self._is_up = self._status is None
        return os.getpid()

    def poll(self) -> int | None:
        """Return the status with which the server has ended, None while it runs or after this was reported."""
        status, self._status = self._status, None
        if status is not None:
            self._is_up = self.is_serving = False
        return status

    def is_ready(self) -> bool:
        return self._is_up

    def stop(self) -> int:
        """Stop the server and return 0."""
        self._end()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        return 0

    def kill(self) -> None:
        self.stop()

    def end_session_of(self, path: str) -> None:
        """End the session that owns a node, if there is one. Its client must be dead."""
        self._end_session_of(path)

    def _run(self, started: Future[None]) -> None:
        try:
            self._run_logged(started)
        except Exception as error:
            self.problem = str(error)
            self._status = _FAILED
        finally:
            if not started.done():
                started.set_result(None)

    def _run_logged(self, started: Future[None]) -> None:
        handler = logging.FileHandler(self.log, encoding="utf-8")
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(handler)
        logger.propagate = False
        import asyncio  # a tool that only prints its help needs no event loop

        try:
            asyncio.run(self._serve(started))
        except Exception:
            logger.exception("the coordination server ends")
            raise
        finally:
            logger.removeHandler(handler)
            handler.close()

    async def _serve(self, started: Future[None]) -> None:
        import asyncio

        from broker.loop.clock import SystemClock
        from controller.coordination.server import CoordinationServer

        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        failure: list[BaseException] = []

        def failed(error: BaseException) -> None:
            failure.append(error)
            stopping.set()

        server = CoordinationServer(self._settings, SystemClock(), on_failed=failed)
        await server.start()
        self.port = server.port
        self._end = partial(loop.call_soon_threadsafe, stopping.set)
        self._end_session_of = lambda path: loop.call_soon_threadsafe(server.end_session_of, path)
        try:
            started.set_result(None)
            await stopping.wait()
        finally:
            self._end = self._end_session_of = _nothing
            await server.stop()
        if failure:
            raise failure[0]


def _nothing(*arguments: object) -> None:
    """No thread runs."""
