"""The Python processes that start queries with state in Python, as forks of one that has imported what they need.

Spark starts one for each start of such a query, to learn what state it has. It would import pandas and pyspark, which
takes seconds of processor time. `worker_python` has it made by `worker_request.py`, which sends its environment and its
output streams to a server of this module, and waits for the end of the fork.

    python -m tests.spark_jobs.warm_workers DESCRIPTOR

serves at a listening socket that it has inherited, until its standard input ends. It imports nothing before the first
request: most tests need none.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

PROJECT = Path(__file__).parents[2]
ADDRESS = "MILENA_WARM_WORKERS"
"""The variable with the path of the server's socket, for `worker_request.py`."""
_WARM = "tests.spark_jobs.warm_daemon"
"""The module that imports what the processes need."""
_REQUEST_BYTES_MAX = 65_536


@contextmanager
def warm_workers() -> Iterator[dict[str, str]]:
    """Run a server; yield the variables with which Spark's JVM uses it."""
    with tempfile.TemporaryDirectory(prefix="workers-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        command = [sys.executable, "-P", "-m", __spec__.name, str(listener.fileno())]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        ):
            yield {ADDRESS: f"{folder}/socket"}


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        client, _ = listener.accept()
        import_module(_WARM)
        gc.freeze()
        if os.fork() == 0:
            listener.close()
            _run(client)
            return
        client.close()


def _run(client: socket.socket) -> None:
    """Run what a client asks for; its end closes the connection, for which the client waits."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, *_ = socket.recv_fds(client, _REQUEST_BYTES_MAX, 2)
    request = json.loads(message)
    os.environ.update(request["environment"])
    for target, stream in zip((sys.stdout, sys.stderr), streams, strict=True):
        os.dup2(stream, target.fileno())
        os.close(stream)
    runpy.run_module(request["module"], run_name="__main__")


if __name__ == "__main__":
    main()
