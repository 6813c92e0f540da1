"""zookeeper-server-start: replaces itself by a ZooKeeper server, if this machine has Java and ZooKeeper's jars."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tools.base.command_line import run_usage_tool
from tools.launch.running_servers import register_zookeeper
from tools.launch.zookeeper_jars import NoZooKeeperError, server_command

USAGE = "USAGE: zookeeper-server-start [-daemon] zookeeper.properties"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status if no server can be started; otherwise the server continues this process."""
    return run_usage_tool(USAGE, _run, sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 1
    settings = Path(arguments[0])
    try:
        with settings.open("rb"):
            command = server_command(settings)
    except OSError as error:
        print(f"Cannot read {settings}: {error.strerror}", file=sys.stderr)
        return 1
    except NoZooKeeperError as error:
        print(error, file=sys.stderr)
        return 1
    return _continue_as(command)


def _continue_as(command: list[str]) -> NoReturn:
    try:
        register_zookeeper()
    except OSError as error:
        print(f"WARNING: zookeeper-server-stop will not find this server: {error}", file=sys.stderr)
    sys.stdout.flush()
    os.execv(command[0], command)


if __name__ == "__main__":
    raise SystemExit(main())
