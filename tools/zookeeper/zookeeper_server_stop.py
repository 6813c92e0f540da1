"""zookeeper-server-stop: stops the ZooKeeper servers that were started from this installation."""

import argparse
from collections.abc import Sequence

from tools.base.command_line import CommandLine, WithoutArguments, run_tool
from tools.launch.running_servers import running_zookeepers
from tools.launch.server_stop import send_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Send SIGTERM, or the signal in the environment variable SIGNAL, and return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    purpose = "This tool stops the ZooKeeper servers that were started from this installation."
    return CommandLine("zookeeper-server-stop", purpose, without_arguments=WithoutArguments.RUN)


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    pids = running_zookeepers()
    if not pids:
        print("No zookeeper server to stop")
        return 1
    return send_signal(pids)


if __name__ == "__main__":
    raise SystemExit(main())
