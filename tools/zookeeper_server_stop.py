"""zookeeper-server-stop: stops the ZooKeeper servers that were started from this installation."""

import argparse
from collections.abc import Sequence

from tools.running_servers import running_zookeepers
from tools.server_stop import send_signal
from tools.version import version_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Send SIGTERM, or the signal in the environment variable SIGNAL, and return the exit status."""
    parser = argparse.ArgumentParser("zookeeper-server-stop", description=__doc__)
    parser.add_argument("--version", action="version", version=version_line())
    parser.parse_args(arguments)
    pids = running_zookeepers()
    if not pids:
        print("No zookeeper server to stop")
        return 1
    return send_signal(pids)


if __name__ == "__main__":
    raise SystemExit(main())
