"""A schema registry in a thread of the test's process, on a free port."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from spark_jobs.schema_registry import Registry, Server


class RunningRegistry:
    """Serves from entry to exit."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="schema registry", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    async def _start(self) -> None:
        self._runner = web.AppRunner(Server(Registry(), self._file).application(), access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
