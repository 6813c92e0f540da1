"""coordination-server-start: runs the coordination server of brokers on this machine until it is stopped.

    coordination-server-start --data var/coordination --port 2181

For brokers that something else starts, such as systemd; `kafka-cluster-start` has a server of its own. Owns the command
line. Must not know what the server does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.base.command_line import CommandLine, StopRequest, run_tool
from tools.launch.coordination_thread import CoordinationThread

HOST: Final = "127.0.0.1"
POLL_INTERVAL_S: Final = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 after SIGINT or SIGTERM, 1 if the server could not start or has failed."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "coordination-server-start",
        "This tool runs the coordination server of brokers on this machine, which speaks ZooKeeper's protocol, until "
        "SIGTERM or Ctrl-C.",
        help_succeeds=True,
    )
    line.add_option("--data", value="folder", help_text="REQUIRED: The folder of the tree and the log.")
    line.add_option(
        "--port",
        value="port",
        parse=int,
        default=2181,
        help_text="The port on the loopback interface. 0 for a free one (default: 2181).",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--data")
    server = CoordinationThread(Path(options.data).resolve(), HOST, options.port)
    with StopRequest() as stop:
        server.spawn()
        if server.is_ready():
            print(f"serves at {HOST}:{server.port}, log {server.log}", flush=True)
        while server.is_ready() and not stop.is_made and server.poll() is None:
            time.sleep(POLL_INTERVAL_S)
        server.stop()
    if server.problem:
        print(f"The coordination server in {server.folder} has ended: {server.problem}", file=sys.stderr)
    return 1 if server.problem else 0


if __name__ == "__main__":
    raise SystemExit(main())
