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


server_start = partial(run, "tools.launch.server_start")
server_stop = partial(run, "tools.launch.server_stop")
cluster_start = partial(run, "tools.launch.cluster_start")
coordination_server_start = partial(run, "tools.launch.coordination_server_start")
acls = partial(run, "tools.admin.acls")
delegation_tokens = partial(run, "tools.admin.delegation_tokens")
milena = partial(run, "tools.launch.background.milena")
certs = partial(run, "tools.launch.certs")
completion = partial(run, "tools.launch.completion")
topics = partial(run, "tools.admin.topics")
configs = partial(run, "tools.admin.configs")
console_producer = partial(run, "tools.records.console_producer")
console_consumer = partial(run, "tools.records.console_consumer")
console_share_consumer = partial(run, "tools.records.console_share_consumer")
groups = partial(run, "tools.admin.groups")
consumer_groups = partial(run, "tools.admin.consumer_groups")
share_groups = partial(run, "tools.admin.share_groups")
delete_records = partial(run, "tools.admin.delete_records")
dump_log = partial(run, "tools.files.dump_log")
jmx = partial(run, "tools.monitoring.jmx")
lag = partial(run, "tools.monitoring.lag")
monitor = partial(run, "tools.monitoring.monitor")
broker_api_versions = partial(run, "tools.admin.broker_api_versions")
cluster = partial(run, "tools.admin.cluster")
get_offsets = partial(run, "tools.admin.get_offsets")
log_dirs = partial(run, "tools.admin.log_dirs")
transactions = partial(run, "tools.admin.transactions")
reassign_partitions = partial(run, "tools.admin.reassign_partitions")
leader_election = partial(run, "tools.admin.leader_election")
replica_verification = partial(run, "tools.monitoring.replica_verification")
producer_perf_test = partial(run, "tools.records.producer_performance")
consumer_perf_test = partial(run, "tools.records.consumer_performance")
share_consumer_perf_test = partial(run, "tools.records.share_consumer_performance")
e2e_latency = partial(run, "tools.records.e2e_latency")
features = partial(run, "tools.admin.features")
metadata_quorum = partial(run, "tools.admin.metadata_quorum")
client_metrics = partial(run, "tools.admin.client_metrics")
check = partial(run, "tools.launch.check")
storage = partial(run, "tools.files.storage_tool")
streams_application_reset = partial(run, "tools.admin.streams_application_reset")
preferred_replica_election = partial(run, "tools.legacy.preferred_replica_election")
mirror_maker = partial(run, "tools.records.mirror_maker")
connect_standalone = partial(run, "spark_jobs.connect.cli.standalone")
connect_distributed = partial(run, "spark_jobs.connect.cli.distributed")
connect_mirror_maker = partial(run, "spark_jobs.connect.cli.mirror_maker")
connect_plugin_path = partial(run, "spark_jobs.connect.cli.plugin_path")
verifiable_producer = partial(run, "tools.records.verifiable_producer")
verifiable_consumer = partial(run, "tools.records.verifiable_consumer")
zookeeper_server_start = partial(run, "tools.zookeeper.zookeeper_server_start")
zookeeper_server_stop = partial(run, "tools.zookeeper.zookeeper_server_stop")
zookeeper_security_migration = partial(run, "tools.zookeeper.zookeeper_security_migration")
zookeeper_shell = partial(run, "tools.zookeeper.zookeeper_shell")
metadata_copy = partial(run, "tools.zookeeper.metadata_copy")
