"""Kafka Streams applications in JVMs that tests control.

Owns: the process that runs `java/streams/StreamsHost.java`, its commands and its output, and the folders of the
applications' state, in memory where possible. Must not know what the programs compute.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.interop.conftest import JAVA_PROGRAMS
from tests.support.apache_kafka import VERSION, streams_command
from tests.support.parts import skip_when_unavailable
from tests.support.supervisor import memory_folder

PROGRAMS = JAVA_PROGRAMS / "streams"
STOP_TIMEOUT_S = 60
_RESPONSE_TIMEOUT_S = 60


class StreamsHost:
    """A JVM that runs applications; a context manager that starts it, and kills it at the end of the block."""

    def __init__(self, folder: Path, *programs: str, version: str = VERSION) -> None:
        """
        Args:
            folder: for the log.
            programs: the names of the programs that applications may run.
        """
        sources = [PROGRAMS / f"{name}.java" for name in ("StreamsHost", *programs)]
        with skip_when_unavailable():
            self._command = streams_command(version, *sources)
        self._log = folder / "streams.log"
        self._state = tempfile.TemporaryDirectory(prefix="streams-", dir=memory_folder(), ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        self._spawn()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._state.cleanup()

    def _spawn(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def start(
        self,
        application: str,
        program: str,
        bootstrap: str,
        prefix: str,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Start an application; `running` waits for it.

        Args:
            program: the name of its class.
            prefix: the beginning of the names of its topics.
            settings: of Kafka Streams, without blanks.
        """
        given = {"bootstrap.servers": bootstrap, "state.dir": self._state.name, **(settings or {})}
        self._send("start", application, program, prefix, *(f"{name}={value}" for name, value in given.items()))

    def running(self, *applications: str) -> None:
        """Return when every application has its tasks."""
        waiting = set(applications)
        while waiting:
            name, _, state = self._read().partition(" ")
            assert state != "ERROR", f"{name} failed\n{self._errors()}"
            if state == "RUNNING":
                waiting.discard(name)

    def count(self, application: str, store: str, key: str) -> int | None:
        """Return the count of a key in a store of counts of this JVM; None if the key is not in it."""
        found = self._ask("count", application, store, key)
        return None if found == "none" else int(found)

    def where(self, application: str, store: str, key: str) -> list[int]:
        """Return the ports (`application.server`) of the instances with a key: the active one, then the standbys."""
        return [int(port) for port in self._ask("where", application, store, key).split()]

    def stop(self, application: str) -> None:
        """Stop an application cleanly; its state on disk remains."""
        self._send("stop", application)
        while self._read() != f"{application} NOT_RUNNING":
            continue

    def forget(self, application: str) -> None:
        """Delete the state on disk of an application that does not run."""
        shutil.rmtree(Path(self._state.name) / application)

    def end(self) -> None:
        """Stop all applications cleanly, and the JVM, which must exit with 0."""
        self._process.communicate(timeout=STOP_TIMEOUT_S)
        assert self._process.returncode == 0, self._errors()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        """Kill the JVM and start another one, which finds the state on disk of its applications."""
        self.kill()
        self._spawn()

    def _ask(self, *words: str) -> str:
        self._send(*words)
        while True:
            kind, _, response = self._read().partition(" ")
            if kind == words[0]:
                return response

    def _send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        """Return the next line; ends the JVM when there is none in time."""
        assert self._process.stdout is not None
        timer = threading.Timer(_RESPONSE_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert line, f"the JVM ended, or was silent for {_RESPONSE_TIMEOUT_S} s\n{self._errors()}"
        return line.rstrip("\n")

    def _errors(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
