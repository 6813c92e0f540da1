"""The console scripts of an installed Milena: one function for each tool. A clone's launchers run modules the same way.

In the wheel the repository's folders (`broker`, `config`, `tools` and so on) are in `milena_broker/_modules`, so that
other projects in the environment keep these names. A command puts that folder first on the path of its process before
it imports the tool. Processes that the broker spawns inherit the path through `multiprocessing`.

Owns the path, and which module each console script runs. Must not know any tool's options.
"""

import signal
import sys
from functools import partial
from importlib import import_module
from pathlib import Path


def run(module: str) -> int:
    """Run the `main` of one of Milena's modules with the arguments of this process; return its exit status.

    SIGINT ends the process without a traceback while the module is imported; `main` has Python's handler.
    """
    if sys.path[0] != (folder := str(modules())):
        sys.path.insert(0, folder)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = import_module(module).main
    signal.signal(signal.SIGINT, handler)
    status: int = main()
    return status


def modules() -> Path:
    """Return the folder of Milena's modules: inside the package in a wheel, beside it in a clone."""
    package = Path(__file__).resolve().parent
    installed = package / "_modules"
    return installed if installed.is_dir() else package.parent


server_start = partial(run, "tools.server_start")
server_stop = partial(run, "tools.server_stop")
cluster_start = partial(run, "tools.cluster_start")
acls = partial(run, "tools.acls")
delegation_tokens = partial(run, "tools.delegation_tokens")
certs = partial(run, "tools.certs")
completion = partial(run, "tools.completion")
topics = partial(run, "tools.topics")
configs = partial(run, "tools.configs")
console_producer = partial(run, "tools.console_producer")
console_consumer = partial(run, "tools.console_consumer")
consumer_groups = partial(run, "tools.consumer_groups")
delete_records = partial(run, "tools.delete_records")
dump_log = partial(run, "tools.dump_log")
jmx = partial(run, "tools.jmx")
lag = partial(run, "tools.lag")
monitor = partial(run, "tools.monitor")
broker_api_versions = partial(run, "tools.broker_api_versions")
cluster = partial(run, "tools.cluster")
get_offsets = partial(run, "tools.get_offsets")
log_dirs = partial(run, "tools.log_dirs")
transactions = partial(run, "tools.transactions")
reassign_partitions = partial(run, "tools.reassign_partitions")
leader_election = partial(run, "tools.leader_election")
replica_verification = partial(run, "tools.replica_verification")
producer_perf_test = partial(run, "tools.producer_performance")
consumer_perf_test = partial(run, "tools.consumer_performance")
e2e_latency = partial(run, "tools.e2e_latency")
features = partial(run, "tools.features")
metadata_quorum = partial(run, "tools.metadata_quorum")
client_metrics = partial(run, "tools.client_metrics")
check = partial(run, "tools.check")
storage = partial(run, "tools.storage_tool")
streams_application_reset = partial(run, "tools.streams_application_reset")
preferred_replica_election = partial(run, "tools.preferred_replica_election")
verifiable_producer = partial(run, "tools.verifiable_producer")
verifiable_consumer = partial(run, "tools.verifiable_consumer")
zookeeper_server_start = partial(run, "tools.zookeeper_server_start")
zookeeper_server_stop = partial(run, "tools.zookeeper_server_stop")
zookeeper_security_migration = partial(run, "tools.zookeeper_security_migration")
zookeeper_shell = partial(run, "tools.zookeeper_shell")
metadata_copy = partial(run, "tools.metadata_copy")
