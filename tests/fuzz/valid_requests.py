"""One request of every served API that succeeds, with a value for each field that any version of it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID, Struct

TOPIC = "topic"
READ_TOPIC = "read"
VALUE = b"what every accepted request stores"
NEVER_MS = 1_700_000_000_000
CONTROLLER_EPOCH = (1 << 31) - 1
"""Of requests that come from the controller: no wrong value makes the valid one stale."""


@dataclass(frozen=True)
class Known:
    """What the broker knows when a request is sent."""

    topic_id: UUID  # of READ_TOPIC
    member_id: str  # of GROUP, in its first generation, alone and stable
    group: str
    transactional_id: str
    producer_id: int
    log_dir: str
    new_topic: str
    own_topic: str  # of one partition; no other test changes it
    broker_epoch: int


def batch(**options: Any) -> bytes:
    return build_batch([RecordData(NEVER_MS, b"key", VALUE)] * 2, **options)


STATE_REQUESTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "InitializeShareGroupState": {"state_epoch": 0, "start_offset": 0},
        "ReadShareGroupState": {"leader_epoch": 0},
        "WriteShareGroupState": {
            "state_epoch": 0,
            "leader_epoch": 0,
            "start_offset": 0,
            "state_batches": [{"first_offset": 0, "last_offset": 0, "delivery_state": 0, "delivery_count": 1}],
        },
        "DeleteShareGroupState": {},
        "ReadShareGroupStateSummary": {"leader_epoch": 0},
    }
)
"""What is asked of a state of a share group, by the name of the API."""


def valid_requests(known: Known) -> dict[str, dict[str, Any]]:
    """The fields by the name of the API. `build` makes the request of a version from them."""
    partitions = [{"name": TOPIC, "partitions": [0]}]
    indexes = [{"name": TOPIC, "partition_indexes": [0]}]
    producer = {
        "transactional_id": known.transactional_id,
        "producer_id": known.producer_id,
        "producer_epoch": 0,
    }
    member = {
        "group_id": known.group,
        "member_id": known.member_id,
        "generation_id": 1,
    }
    controller = {
        "controller_id": 0,
        "is_kraft_controller": False,
        "controller_epoch": CONTROLLER_EPOCH,
        "broker_epoch": -1,
        "type": 0,
    }
    led = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 0,
        "leader_epoch": 0,
        "isr": [0],
        "partition_epoch": 0,
        "zk_version": 0,
        "replicas": [0],
        "adding_replicas": [],
        "removing_replicas": [],
        "offline_replicas": [],
        "is_new": True,
        "leader_recovery_state": 0,
    }
    committed = [
        {
            "name": TOPIC,
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": 3,
                    "committed_leader_epoch": 0,
                    "commit_timestamp": NEVER_MS,
                    "committed_metadata": "note",
                }
            ],
        }
    ]
    acl = {
        "resource_pattern_type": 3,
        "pattern_type_filter": 3,
        "principal_filter": "User:a",
        "host_filter": "*",
        "resource_type_filter": 2,
        "resource_name_filter": TOPIC,
        "resource_type": 2,
        "resource_name": TOPIC,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    config = {
        "resource_type": 2,
        "resource_name": TOPIC,
        "configs": [{"name": "retention.ms", "value": "3600000", "config_operation": 0}],
        "configuration_keys": ["retention.ms"],
    }
    principal = {"principal_type": "User", "principal_name": "a"}
    return {
        "Produce": {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch()}]}],
        },
        "Fetch": {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "replica_state": {"replica_id": -1, "replica_epoch": -1},
            "forgotten_topics_data": [{"topic": READ_TOPIC, "topic_id": known.topic_id, "partitions": [1]}],
            "topics": [
                {
                    "topic": READ_TOPIC,
                    "topic_id": known.topic_id,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": 0,
                            "fetch_offset": 0,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
        },
        "ListOffsets": {
            "replica_id": -1,
            "topics": [
                {"name": TOPIC, "partitions": [{"partition_index": 0, "current_leader_epoch": 0, "timestamp": -1}]}
            ],
        },
        "Metadata": {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False},
        "OffsetCommit": {**member, "generation_id_or_member_epoch": 1, "topics": committed},
        "OffsetFetch": {
            "group_id": known.group,
            "topics": indexes,
            "groups": [{"group_id": known.group, "topics": indexes}],
        },
        "FindCoordinator": {"key": known.group, "coordinator_keys": [known.group]},
        "JoinGroup": {
            "group_id": known.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": known.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"subscription"}],
            "reason": "test",
        },
        "Heartbeat": member,
        "LeaveGroup": {**member, "members": [{"member_id": known.member_id, "reason": "test"}]},
        "SyncGroup": {
            **member,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": known.member_id, "assignment": b"assigned"}],
        },
        "DescribeGroups": {"groups": [known.group]},
        "ListGroups": {"states_filter": ["Stable"], "types_filter": ["classic"]},
        "ApiVersions": {"client_software_name": "test", "client_software_version": "1.0"},
        "CreateTopics": {
            "topics": [
                {
                    "name": known.new_topic,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [{"partition_index": 0, "broker_ids": [0]}],
                    "configs": [{"name": "retention.ms", "value": "3600000"}],
                }
            ],
            "timeout_ms": 1000,
            "validate_only": True,
        },
        "DeleteTopics": {
            "topics": [{"name": known.own_topic, "topic_id": ZERO_UUID}],
            "topic_names": [known.own_topic],
            "timeout_ms": 1000,
        },
        "DeleteRecords": {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 1000,
        },
        "InitProducerId": {"transactional_id": known.transactional_id, "transaction_timeout_ms": 60_000},
        "OffsetForLeaderEpoch": {
            "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}]}]
        },
        "AddPartitionsToTxn": {
            "transactions": [{**producer, "topics": partitions}],
            **{f"v3_and_below_{name}": value for name, value in producer.items()},
            "v3_and_below_topics": partitions,
        },
        "AddOffsetsToTxn": {**producer, "group_id": known.group},
        "EndTxn": {**producer, "committed": True},
        "WriteTxnMarkers": {
            "markers": [{**producer, "transaction_result": True, "topics": indexes, "coordinator_epoch": 0}]
        },
        "TxnOffsetCommit": {**producer, **member, "topics": committed},
        "DescribeAcls": acl,
        "CreateAcls": {"creations": [acl]},
        "DeleteAcls": {"filters": [acl]},
        "DescribeConfigs": {"resources": [config]},
        "AlterConfigs": {"resources": [config], "validate_only": False},
        "AlterReplicaLogDirs": {"dirs": [{"path": known.log_dir, "topics": partitions}]},
        "DescribeLogDirs": {"topics": [{"topic": TOPIC, "partitions": [0]}]},
        "CreatePartitions": {
            "topics": [{"name": known.own_topic, "count": 2, "assignments": [{"broker_ids": [0]}]}],
            "timeout_ms": 1000,
            "validate_only": True,
        },
        "SaslHandshake": {"mechanism": "PLAIN"},
        "SaslAuthenticate": {"auth_bytes": b"\0user\0password"},
        "CreateDelegationToken": {"renewers": [principal], "max_lifetime_ms": 1000},
        "RenewDelegationToken": {"hmac": b"hmac", "renew_period_ms": 1000},
        "ExpireDelegationToken": {"hmac": b"hmac", "expiry_time_period_ms": 1000},
        "DescribeDelegationToken": {"owners": [principal]},
        "DeleteGroups": {"groups_names": ["no such group"]},
        "ElectLeaders": {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 1000},
        "IncrementalAlterConfigs": {"resources": [config], "validate_only": False},
        "AlterPartitionReassignments": {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [0]}]}],
            "timeout_ms": 1000,
        },
        "ListPartitionReassignments": {"topics": indexes, "timeout_ms": 1000},
        "OffsetDelete": {"group_id": known.group, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
        "DescribeClientQuotas": {
            "components": [{"entity_type": "client-id", "match_type": 0, "match": "a"}],
            "strict": False,
        },
        "AlterClientQuotas": {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            "validate_only": False,
        },
        "DescribeUserScramCredentials": {"users": [{"name": "a"}]},
        "AlterUserScramCredentials": {
            "deletions": [{"name": "b", "mechanism": 1}],
            "upsertions": [
                {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"password"}
            ],
        },
        "UpdateFeatures": {
            "feature_updates": [{"feature": "metadata.version", "max_version_level": 1, "upgrade_type": 1}],
            "timeout_ms": 1000,
            "validate_only": True,
        },
        "LeaderAndIsr": {
            **controller,
            "ungrouped_partition_states": [{"topic_name": "controlled", **led}],
            "topic_states": [{"topic_name": "controlled", "topic_id": known.topic_id, "partition_states": [led]}],
            "live_leaders": [{"broker_id": 0, "host_name": "localhost", "port": 1}],
        },
        "StopReplica": {
            **controller,
            "delete_partitions": True,
            "ungrouped_partitions": [{"topic_name": "controlled", "partition_index": 0}],
            "topics": [{"name": "controlled", "partition_indexes": [0]}],
            "topic_states": [
                {
                    "topic_name": "controlled",
                    "partition_states": [{"partition_index": 0, "leader_epoch": 0, "delete_partition": True}],
                }
            ],
        },
        "UpdateMetadata": {
            **controller,
            "ungrouped_partition_states": [{"topic_name": "controlled", **led}],
            "topic_states": [{"topic_name": "controlled", "topic_id": known.topic_id, "partition_states": [led]}],
            "live_brokers": [
                {
                    "id": 0,
                    "v0_host": "localhost",
                    "v0_port": 1,
                    "endpoints": [
                        {"port": 1, "host": "localhost", "listener": "PLAINTEXT", "security_protocol": 0},
                    ],
                    "rack": None,
                }
            ],
        },
        "ControlledShutdown": {"broker_id": 0, "broker_epoch": -1},
        "AlterPartition": {
            "broker_id": 0,
            "broker_epoch": known.broker_epoch,
            "topics": [
                {
                    "topic_name": READ_TOPIC,
                    "topic_id": known.topic_id,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "leader_epoch": 0,
                            "new_isr": [0],
                            "new_isr_with_epochs": [{"broker_id": 0, "broker_epoch": -1}],
                            "leader_recovery_state": 0,
                            "partition_epoch": 0,
                        }
                    ],
                }
            ],
        },
        "AllocateProducerIds": {"broker_id": 0, "broker_epoch": known.broker_epoch},
        "Envelope": {"request_data": b"", "request_principal": None, "client_host_address": b""},
        "DescribeCluster": {"include_cluster_authorized_operations": False},
        "DescribeProducers": {"topics": indexes},
        "DescribeTransactions": {"transactional_ids": [known.transactional_id]},
        "ListTransactions": {"state_filters": ["Ongoing"], "producer_id_filters": [known.producer_id]},
        "ConsumerGroupHeartbeat": {
            "group_id": "new",
            "member_id": "member",
            "member_epoch": 1,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [{"topic_id": known.topic_id, "partitions": [0]}],
        },
        "ConsumerGroupDescribe": {"group_ids": ["new"], "include_authorized_operations": False},
        "ShareGroupHeartbeat": {
            "group_id": "share",
            "member_id": "member",
            "member_epoch": 1,
            "subscribed_topic_names": [TOPIC],
        },
        "ShareGroupDescribe": {"group_ids": ["share"], "include_authorized_operations": False},
        "ShareFetch": {
            "group_id": "share",
            "member_id": "member",
            "share_session_epoch": 1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1000,
            "max_records": 10,
            "batch_size": 10,
            "topics": [
                {
                    "topic_id": known.topic_id,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                            ],
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [{"topic_id": known.topic_id, "partitions": [1]}],
        },
        "ShareAcknowledge": {
            "group_id": "share",
            "member_id": "member",
            "share_session_epoch": 1,
            "topics": [
                {
                    "topic_id": known.topic_id,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                            ],
                        }
                    ],
                }
            ],
        },
        **{
            name: {
                "group_id": "share",
                "topics": [{"topic_id": known.topic_id, "partitions": [{"partition": 0, **values}]}],
            }
            for name, values in STATE_REQUESTS.items()
        },
        "DescribeShareGroupOffsets": {
            "groups": [{"group_id": "share", "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]
        },
        "AlterShareGroupOffsets": {
            "group_id": "share",
            "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
        "DeleteShareGroupOffsets": {"group_id": "share", "topics": [{"topic_name": TOPIC}]},
        "GetTelemetrySubscriptions": {"client_instance_id": known.topic_id},
        "PushTelemetry": {
            "client_instance_id": known.topic_id,
            "subscription_id": 1,
            "terminating": False,
            "compression_type": 0,
            "metrics": b"metrics",
        },
        "ListConfigResources": {"resource_types": [2]},
        "DescribeTopicPartitions": {
            "topics": [{"name": TOPIC}],
            "response_partition_limit": 10,
            "cursor": {"topic_name": TOPIC, "partition_index": 0},
        },
    }


def build(cls: type[Struct], values: dict[str, Any], version: int) -> Any:
    """An object of a message or struct with those of `values` that `version` has; the other fields have defaults."""
    given: dict[str, Any] = {}
    for field in cls.__fields__:
        if not field.is_in(version) or field.name not in values:
            continue
        value = values[field.name]
        if field.struct is not None and value is not None:
            value = (
                [build(field.struct, element, version) for element in value]
                if field.is_array
                else build(field.struct, value, version)
            )
        given[field.name] = value
    return cls(**given)
