"""The lines of kafka-topics --describe: one per topic, and one per partition.

Requests what Metadata does not contain (configurations, reassignments in progress) and selects the lines to print.

Must not know options.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from base.topic_partition import TopicPartition
from config.definition import Source
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import id_text
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tools.base.java_names import hash_map_order
from tools.client.admin_client import AdminClient, raise_for

_TOPIC_RESOURCE = 2
_MIN_INSYNC_REPLICAS = "min.insync.replicas"


class Partition(NamedTuple):
    """A partition with the values that printing and filters need."""

    metadata: MetadataResponsePartition
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]
    min_insync_replicas: int
    live_brokers: Collection[int]

    @property
    def is_moving(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def replication_factor(self) -> int:
        """The number of replicas without those that a reassignment adds."""
        return len(self.metadata.replica_nodes) - len(self.adding_replicas)

    @property
    def has_leader(self) -> bool:
        return self.metadata.leader_id >= 0

    @property
    def isr_count(self) -> int:
        return len(self.metadata.isr_nodes)


PARTITION_FILTERS: Mapping[str, Callable[[Partition], bool]] = {
    "--under-replicated-partitions": lambda partition: partition.isr_count < partition.replication_factor,
    "--unavailable-partitions": lambda partition: partition.metadata.leader_id not in partition.live_brokers,
    "--under-min-isr-partitions": lambda partition: (
        not partition.has_leader or partition.isr_count < partition.min_insync_replicas
    ),
    "--at-min-isr-partitions": lambda partition: partition.isr_count == partition.min_insync_replicas,
}
"""By option: the filter of partitions."""


def describe_topics(
    admin: AdminClient,
    topics: Sequence[MetadataResponseTopic],
    *,
    only_partitions: Collection[str] = (),
    only_overrides: bool = False,
    is_older_form: bool = False,
) -> Iterator[str]:
    """Return the lines of some topics, in the order of Kafka's tool.

    `only_partitions` names filters: partitions that pass one of them, and no topic lines. `only_overrides`: topics that
    have configurations of their own, and no partition lines. `is_older_form`: as the tool printed them with
    `--zookeeper`. Raises KafkaError.
    """
    by_name = {topic.name or "": topic for topic in topics}
    configs = _configs(admin, list(by_name))
    reassignments = _reassignments(admin)
    live_brokers = {broker.node_id for broker in admin.metadata([]).brokers}
    for name in hash_map_order(by_name, capacity=len(by_name)):
        overrides = [config for config in configs[name] if config.config_source != Source.DEFAULT_CONFIG]
        minimum = next((config.value for config in configs[name] if config.name == _MIN_INSYNC_REPLICAS), None)
        partitions = [
            Partition(
                metadata,
                *reassignments.get((name, metadata.partition_index), ((), ())),
                min_insync_replicas=int(minimum or 1),
                live_brokers=live_brokers,
            )
            for metadata in sorted(by_name[name].partitions, key=lambda partition: partition.partition_index)
        ]
        if not only_partitions and (overrides or not only_overrides):
            yield _topic_line(by_name[name], partitions, overrides, is_older_form=is_older_form)
        if not only_overrides:
            yield from (
                _partition_line(name, partition, is_older_form=is_older_form)
                for partition in partitions
                if not only_partitions or any(PARTITION_FILTERS[wanted](partition) for wanted in only_partitions)
            )


def _configs(admin: AdminClient, names: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
    if not names:
        return {}
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in names
    ]
    response = admin.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    for result in response.results:
        raise_for(result.error_code, result.error_message)
    return {result.resource_name: _in_java_order(result.configs) for result in response.results}


def _in_java_order(configs: Sequence[DescribeConfigsResourceResult]) -> list[DescribeConfigsResourceResult]:
    by_name = {config.name: config for config in configs}
    return [by_name[name] for name in hash_map_order(by_name)]


def _reassignments(admin: AdminClient) -> dict[TopicPartition, tuple[Sequence[int], Sequence[int]]]:
    """Return the replicas being added and removed; none if the cluster does not support reassignments."""
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=admin.request_timeout_ms)
    try:
        response = admin.call_controller(
            request, ListPartitionReassignmentsResponse, lambda response: [response.error_code]
        )
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    raise_for(response.error_code, response.error_message)
    return {
        (topic.name, partition.partition_index): (partition.adding_replicas, partition.removing_replicas)
        for topic in response.topics
        for partition in topic.partitions
    }


def _topic_line(
    topic: MetadataResponseTopic,
    partitions: Sequence[Partition],
    overrides: Sequence[DescribeConfigsResourceResult],
    *,
    is_older_form: bool,
) -> str:
    factor = partitions[0].replication_factor if partitions else 0
    configs = ",".join(f"{config.name}={config.value}" for config in overrides)
    if is_older_form:
        return f"Topic:{topic.name}\tPartitionCount:{len(partitions)}\tReplicationFactor:{factor}\tConfigs:{configs}"
    columns = (
        f"Topic: {topic.name}",
        f"TopicId: {id_text(topic.topic_id)}",
        f"PartitionCount: {len(partitions)}",
        f"ReplicationFactor: {factor}",
        f"Configs: {configs}",
    )
    return "\t".join(columns)


def _partition_line(name: str, partition: Partition, *, is_older_form: bool) -> str:
    metadata = partition.metadata
    columns = [
        f"\tTopic: {name}",
        f"Partition: {metadata.partition_index}",
        f"Leader: {metadata.leader_id if partition.has_leader else 'none'}",
        f"Replicas: {_ids(metadata.replica_nodes)}",
        f"Isr: {_ids(metadata.isr_nodes)}",
    ]
    if is_older_form:
        return "\t".join(columns)
    if partition.is_moving:
        columns.append(f"Adding Replicas: {_ids(partition.adding_replicas)}")
        columns.append(f"Removing Replicas: {_ids(partition.removing_replicas)}")
    # Kafka's ZooKeeper mode has no eligible leader replicas.
    columns += ["Elr: N/A", "LastKnownElr: N/A"]
    return "\t".join(columns)


def _ids(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))
