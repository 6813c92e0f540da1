"""kafka-run-class: runs the tool for a Java class name, with its old or new package.

Owns the names. Must not know any tool's options: it passes all further arguments on.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from tools.launch import missing

TOOLS: Mapping[str, str] = {
    "Kafka": "tools.launch.server_start",
    "TopicCommand": "tools.admin.topics",
    "ConfigCommand": "tools.admin.configs",
    "GroupsCommand": "tools.admin.groups",
    "ConsumerGroupCommand": "tools.admin.consumer_groups",
    "ShareGroupCommand": "tools.admin.share_groups",
    "ConsoleProducer": "tools.records.console_producer",
    "ConsoleConsumer": "tools.records.console_consumer",
    "ConsoleShareConsumer": "tools.records.console_share_consumer",
    "TransactionsCommand": "tools.admin.transactions",
    "DeleteRecordsCommand": "tools.admin.delete_records",
    "DumpLogSegments": "tools.files.dump_log",
    "JmxTool": "tools.monitoring.jmx",
    "BrokerApiVersionsCommand": "tools.admin.broker_api_versions",
    "ClusterTool": "tools.admin.cluster",
    "GetOffsetShell": "tools.admin.get_offsets",
    "LogDirsCommand": "tools.admin.log_dirs",
    "ReassignPartitionsCommand": "tools.admin.reassign_partitions",
    "LeaderElectionCommand": "tools.admin.leader_election",
    "ReplicaVerificationTool": "tools.monitoring.replica_verification",
    "ProducerPerformance": "tools.records.producer_performance",
    "ConsumerPerformance": "tools.records.consumer_performance",
    "ShareConsumerPerformance": "tools.records.share_consumer_performance",
    "EndToEndLatency": "tools.records.e2e_latency",
    "FeatureCommand": "tools.admin.features",
    "MetadataQuorumCommand": "tools.admin.metadata_quorum",
    "ClientMetricsCommand": "tools.admin.client_metrics",
    "StorageTool": "tools.files.storage_tool",
    "StreamsResetter": "tools.admin.streams_application_reset",
    "PreferredReplicaLeaderElectionCommand": "tools.legacy.preferred_replica_election",
    "AclCommand": "tools.admin.acls",
    "DelegationTokenCommand": "tools.admin.delegation_tokens",
    "ZkSecurityMigrator": "tools.zookeeper.zookeeper_security_migration",
    "ConsumerOffsetChecker": "tools.legacy.consumer_offset_checker",
    "ExportZkOffsets": "tools.legacy.zookeeper_offset_files:export_main",
    "ImportZkOffsets": "tools.legacy.zookeeper_offset_files:import_main",
    "UpdateOffsetsInZK": "tools.legacy.zookeeper_offset_files:update_main",
    "VerifyConsumerRebalance": "tools.legacy.verify_consumer_rebalance",
    "SimpleConsumerShell": "tools.legacy.simple_consumer_shell",
    "StateChangeLogMerger": "tools.legacy.state_change_log_merger",
    "ZooKeeperMain": "tools.zookeeper.zookeeper_shell:main_of_class",
    "ZooKeeperMainWithTlsSupportForKafka": "tools.zookeeper.zookeeper_shell:main_of_class",
    "QuorumPeerMain": "tools.zookeeper.zookeeper_server_start",
    "MirrorMaker": "tools.records.mirror_maker",
    "VerifiableProducer": "tools.records.verifiable_producer",
    "VerifiableConsumer": "tools.records.verifiable_consumer",
    "ConnectPluginPath": "spark_jobs.connect.cli.plugin_path",
}
"""By the last part of a class name: the module whose `main` runs, or another function of it after a colon."""

CONNECT: Mapping[str, str] = {
    "org.apache.kafka.connect.cli.ConnectDistributed": "spark_jobs.connect.cli.distributed",
    "org.apache.kafka.connect.cli.ConnectStandalone": "spark_jobs.connect.cli.standalone",
    "org.apache.kafka.connect.mirror.MirrorMaker": "spark_jobs.connect.cli.mirror_maker",
}
"""By the full name of a class, the last part of which another tool may have."""

MISSING: Mapping[str, str] = {
    "org.apache.kafka.shell.MetadataShell": "kafka-metadata-shell",
}
"""By class name: the launcher of a tool that Milena does not have, which prints what to use instead."""

PACKAGES = (
    "kafka",
    "kafka.admin",
    "kafka.security",
    "kafka.tools",
    "org.apache.kafka.tools",
    "org.apache.kafka.tools.reassign",
    "org.apache.kafka.tools.consumer",
    "org.apache.kafka.tools.consumer.group",
    "org.apache.kafka.clients.tools",
    "org.apache.zookeeper",
    "org.apache.zookeeper.server.quorum",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status of the tool; 1 if no tool has the name."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        print("USAGE: kafka-run-class [-daemon] [-name servicename] [-loggc] classname [opts]", file=sys.stderr)
        return 1
    class_name, *rest = given
    if class_name in MISSING:
        return missing.main([MISSING[class_name]])
    package, _, name = class_name.rpartition(".")
    module = CONNECT.get(class_name) or (TOOLS.get(name) if package in PACKAGES else None)
    if module is None:
        print(f"Error: Could not find or load main class {class_name}: no tool stands for it", file=sys.stderr)
        return 1
    name, _, function = module.partition(":")
    status: int = getattr(import_module(name), function or "main")(rest)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
