"""kafka-cluster: prints the id of a cluster."""

import argparse
import sys
from collections.abc import Sequence

from protocol.errors import KafkaError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_client_options, admin_client

CLUSTER_ID, UNREGISTER = "cluster-id", "unregister"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-cluster", "Print the id of a cluster.", help_succeeds=True)
    line.add_argument("command", nargs="?", help=f"{CLUSTER_ID}, or {UNREGISTER}, which needs KRaft")
    add_client_options(line, "--command-config", "--config", bootstrap_names=BOOTSTRAP_SERVER_ONLY)
    line.add_option("--id", value="id", help_text=f"The id of a broker, for {UNREGISTER}.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.command not in (CLUSTER_ID, UNREGISTER):
        raise UsageError(f"Expected the command {CLUSTER_ID} or {UNREGISTER}, found {options.command!r}")
    line.require(options, "--bootstrap-server")
    if options.command == UNREGISTER:
        line.require(options, "--id")
        # The registration of a broker in ZooKeeper ends with its session. Kafka's tool exits with 0 here, too.
        print("The target cluster does not support the broker unregistration API.")
        return 0
    try:
        with admin_client(options) as admin:
            print(f"Cluster ID: {_cluster_id(admin)}")
    except (KafkaError, CallTimedOut) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _cluster_id(admin: AdminClient) -> str:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    response = admin.call(request, DescribeClusterResponse)
    raise_for(response.error_code, response.error_message)
    return response.cluster_id


if __name__ == "__main__":
    raise SystemExit(main())
