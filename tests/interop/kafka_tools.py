"""The classes behind the launchers of Apache Kafka 3.9.1, and how a session of command lines runs with them.

Owns: the names of classes. Must not know: the sessions, which `tests.support.command_lines` reads.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.apache_kafka import JavaPrograms, tool_command
from tests.support.command_lines import Command, RunTool
from tests.support.program_host import Outcome

TIMEOUT_S = 120
KAFKA_SETTLES_S = 0.3
"""Pause before each command line with Kafka's broker, which applies changes some time after it has responded."""
NEEDS_OWN_JVM = frozenset({"kafka-verifiable-producer"})
"""Tools that print when their JVM ends."""
CLASSES: Mapping[str, str] = {
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def kafka_tools(programs: JavaPrograms, folder: Path) -> RunTool:
    """Return what runs command lines with Kafka's own tools in a folder. Raises UnavailableError when it is called."""

    def run(command: Command, arguments: Sequence[str]) -> Outcome:
        main = CLASSES[command.name]
        if command.name in NEEDS_OWN_JVM:
            return _in_own_jvm(main, arguments, command.stdin, folder)
        try:
            return programs.run_tool(main, *arguments, timeout_s=TIMEOUT_S, folder=folder, stdin=command.stdin)
        except RuntimeError:
            # argparse4j ends the JVM at usage errors and help, before the tool has done anything.
            return _in_own_jvm(main, arguments, command.stdin, folder)

    return run


def _in_own_jvm(main: str, arguments: Sequence[str], stdin: bytes, folder: Path) -> Outcome:
    done = subprocess.run(
        tool_command(main, *arguments), input=stdin, capture_output=True, timeout=TIMEOUT_S, cwd=folder, check=False
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
