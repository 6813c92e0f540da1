"""Tools of this project in command lines that tests type into a shell: forks, as in `tests/support/forked_programs.py`.

Owns the socket at which `typed_program.py` asks for a fork, and the threads that wait for the forks. A tool has the
streams, variables and folder that the shell gives it, but a process group of its own: for tools that read a terminal,
get signals or go on after their shell, type the launcher.
"""

from __future__ import annotations

import marshal
import os
import shlex
import socket
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.forked_programs import REQUEST_SIZE_MAX, start_program

PROGRAM = Path(__file__).with_name("typed_program.py")
STREAMS = 3


def typed(module: str) -> str:
    """Return the beginning of a command line that runs a module of this project; its arguments follow."""
    command = (sys.executable, "-I", "-S", str(PROGRAM), _socket_of_tests(), module)
    return " ".join(map(shlex.quote, command))


@cache
def _socket_of_tests() -> str:
    """Return the path of the socket, where a thread begins to listen with the first call."""
    folder = TemporaryDirectory(prefix="typed-")
    path = Path(folder.name) / "socket"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen()
    threading.Thread(target=_listen, args=(listening, folder), name="typed programs", daemon=True).start()
    return str(path)


def _listen(listening: socket.socket, _folder: TemporaryDirectory[str]) -> None:
    """Serve each shell in a thread. The folder exists as long as its object does."""
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    """Fork the program that is asked for, and say how it has ended."""
    with connection:
        request, streams, _, _ = socket.recv_fds(connection, REQUEST_SIZE_MAX, STREAMS)
        module, arguments, variables, folder = marshal.loads(request)
        stdin, stdout, stderr = streams
        process = start_program(
            module, arguments, stdin=stdin, stdout=stdout, stderr=stderr, environment=variables, folder=Path(folder)
        )
        for stream in streams:
            os.close(stream)
        with suppress(BrokenPipeError):  # the shell was killed
            connection.sendall(b"%d" % process.wait())
