"""Java programs that run one after another in one JVM, so that only the first one waits for the JVM and its classes.

Owns: the JVM that runs `ProgramHost.java` on a class path, the lines that it reads and writes, and compiling a program
in a JVM whose compiler is warm. Must not know: what the programs do, and which version of which library they use.
"""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.java import compiled, java_command

SOURCE = Path(__file__).with_name("ProgramHost.java")
STOP_TIMEOUT_S = 10.0


class Outcome(NamedTuple):
    """The exit status and output of a program."""

    status: int
    stdout: str
    stderr: str


class ProgramHost:
    """One JVM; started by the first `run`, ended by `close`."""

    def __init__(
        self,
        classpath: Sequence[Path],
        classes: Path,
        *,
        options: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """
        Args:
            classpath: libraries of the programs.
            classes: the folder for compiled programs; see `tests.support.java.compiled`.
            folder: the working folder of the programs; None for that of this process.
        """
        self._classpath = classpath
        self._classes = classes
        self._options = options
        self._properties = properties
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._one_program = threading.Lock()

    def run(
        self, main: str, *arguments: str, timeout_s: float, classes: Path | None = None, stdin: bytes = b""
    ) -> Outcome:
        """Run the main method of a class, after the programs of other threads; return when the program has ended.

        Args:
            main: the name of a class, or `javac`.
            timeout_s: ends the JVM when the program takes longer.
            classes: a folder of classes that only this program uses.
            stdin: what the program reads from its standard input.

        Raises:
            RuntimeError: the JVM ended before the program did; the text has the end of the JVM's own output.
        """
        with self._one_program:
            return self._run(main, arguments, timeout_s, classes, stdin)

    def _run(
        self, main: str, arguments: Sequence[str], timeout_s: float, classes: Path | None, stdin: bytes
    ) -> Outcome:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        fields = (str(classes or "").encode(), stdin, main.encode(), *map(str.encode, arguments))
        process.stdin.write(b" ".join(map(base64.b64encode, fields)) + b"\n")
        process.stdin.flush()
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            response = process.stdout.readline()
        finally:
            timer.cancel()
        if not response.endswith(b"\n"):
            status = process.wait()
            self._process = None
            self._log.seek(0)
            output = self._log.read()[-4000:].decode(errors="replace")
            raise RuntimeError(f"the JVM of {main} ended with {status} (limit: {timeout_s} s):\n{output}")
        status_field, *texts = response.rstrip(b"\n").split(b" ")
        stdout, stderr = (base64.b64decode(text).decode() for text in texts)
        return Outcome(int(status_field), stdout, stderr)

    def close(self) -> None:
        """End the JVM."""
        if self._process is not None:
            process, self._process = self._process, None
            try:
                process.communicate(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            host = compiled(SOURCE, None, self._classes)
            command = java_command(
                [*self._classpath, host], SOURCE.stem, options=self._options, properties=self._properties
            )
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                process_group=0,
                # Java writes text in the encoding of the locale.
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        return self._process
