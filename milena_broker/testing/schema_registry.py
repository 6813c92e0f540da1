"""A schema registry for tests, as a process that ends with this one.

Owns the process. What it serves is `spark_jobs.schema_registry`: Confluent's HTTP API over schemas in memory. The test
process opens the listening socket and passes it on, and holds the standard input, whose end is that of the registry.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

from milena_broker.commands import modules
from milena_broker.testing.hosted_process import BrokerError

__tracebackhide__ = True

HOST = "127.0.0.1"
BACKLOG = 128
TIMEOUT_S = 60.0
_OUTPUT_LENGTH_MAX = 2000


class SchemaRegistry:
    """A schema registry. Use as a context manager. Methods raise BrokerError."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._port = 0
        self._in_order = threading.Lock()

    @property
    def url(self) -> str:
        """The address, for the setting `schema.registry.url` of any client."""
        if not self._port:
            raise BrokerError("the schema registry was not started")
        return f"http://{HOST}:{self._port}"

    def start(self) -> Self:
        """Start the process; return when it serves."""
        if self._process is not None:
            raise BrokerError("the schema registry is running")
        path = os.pathsep.join(filter(None, [str(modules()), os.environ.get("PYTHONPATH")]))
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - `stop` closes it
        with socket.create_server((HOST, 0), backlog=BACKLOG) as listening:
            self._port = listening.getsockname()[1]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "spark_jobs.schema_registry", "--inherited", str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[listening.fileno()],
            )
        try:
            self._ask("GET", "/subjects")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the process. Its schemas are lost."""
        process, self._process, self._port = self._process, None, 0
        if process is not None:
            process.kill()
            process.communicate()
        if self._output is not None:
            self._output.close()

    def reset(self) -> None:
        """Delete all subjects. Compatibility levels stay."""
        for subject in self._ask("GET", "/subjects"):
            self._ask("DELETE", f"/subjects/{quote(subject, safe='')}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, method: str, path: str) -> Any:
        if self._process is None:
            raise BrokerError("the schema registry is not running")
        connection = HTTPConnection(HOST, self._port, timeout=TIMEOUT_S)
        try:
            with self._in_order:
                connection.request(method, path)
                response = connection.getresponse()
                content = json.loads(response.read())
        except (OSError, HTTPException) as error:
            raise BrokerError(f"the schema registry does not respond: {error!r}{self._printed()}") from None
        finally:
            connection.close()
        if response.status != 200:
            raise BrokerError(f"the schema registry refuses {method} {path}: {content}")
        return content

    def _printed(self) -> str:
        """Return what the process has printed, in a form that ends a message."""
        if self._output is None or not self._output.seek(0, os.SEEK_END):
            return ""
        self._output.seek(0)
        return "; it printed:\n" + self._output.read()[-_OUTPUT_LENGTH_MAX:].decode(errors="replace")
