"""The codes that Kafka documents for what is wrong with each field of each request.

By API and path of the field; under the empty path those of the API whatever the field, because the valid request meets
them too. A field without a row is refused in no version: what it says is ignored, unlimited or only looked up.
"""

ALWAYS = frozenset({"NONE"})
"""A response may contain these codes in its other parts too."""

_BY_FIELD: dict[str, dict[str, str]] = {
    "Produce": {
        "transactional_id": "INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE PRODUCER_FENCED TRANSACTION_ABORTABLE",
        "acks": "INVALID_REQUIRED_ACKS closed",  # the only way to report an error to a client that expects no response
        "topic_data.name": "INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION",
        "topic_data.partition_data.index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topic_data.partition_data.records": "CORRUPT_MESSAGE INVALID_RECORD TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    },
    "Fetch": {
        "replica_id": "NOT_LEADER_OR_FOLLOWER UNKNOWN_LEADER_EPOCH",
        "replica_state.replica_id": "NOT_LEADER_OR_FOLLOWER UNKNOWN_LEADER_EPOCH",
        "isolation_level": "INVALID_REQUEST",
        "topics.topic": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.fetch_offset": "OFFSET_OUT_OF_RANGE",
        "session_epoch": "FETCH_SESSION_ID_NOT_FOUND",
        "topics.partitions.current_leader_epoch": "UNKNOWN_LEADER_EPOCH",  # below 0 is none
        "topics.partitions.last_fetched_epoch": "OFFSET_OUT_OF_RANGE",
        "topics.topic_id": "UNKNOWN_TOPIC_ID",
    },
    "ListOffsets": {
        "isolation_level": "INVALID_REQUEST",
        "topics": "INVALID_REQUEST",
        "topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions": "INVALID_REQUEST",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.timestamp": "UNSUPPORTED_VERSION",
        "topics.partitions.current_leader_epoch": "FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH",
    },
    "Metadata": {
        "topics.name": "INVALID_REQUEST INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION",
        "topics.topic_id": "INVALID_REQUEST UNKNOWN_TOPIC_ID",
    },
    "OffsetCommit": {
        "group_id": "GROUP_ID_NOT_FOUND ILLEGAL_GENERATION INVALID_GROUP_ID",
        "topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.committed_metadata": "OFFSET_METADATA_TOO_LARGE",
        "generation_id_or_member_epoch": "ILLEGAL_GENERATION",
        "member_id": "UNKNOWN_MEMBER_ID",
        "group_instance_id": "UNKNOWN_MEMBER_ID",
    },
    "OffsetFetch": {
        "": "UNKNOWN_TOPIC_OR_PARTITION",
        "group_id": "INVALID_GROUP_ID",
    },
    "FindCoordinator": {
        "key_type": "INVALID_REQUEST",
    },
    "JoinGroup": {
        "group_id": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "session_timeout_ms": "INVALID_SESSION_TIMEOUT",
        "member_id": "MEMBER_ID_REQUIRED UNKNOWN_MEMBER_ID",
        "protocol_type": "INCONSISTENT_GROUP_PROTOCOL",
        "protocols": "INCONSISTENT_GROUP_PROTOCOL",
        "protocols.name": "INCONSISTENT_GROUP_PROTOCOL",
        "group_instance_id": "UNKNOWN_MEMBER_ID",
    },
    "Heartbeat": {
        "group_id": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "generation_id": "ILLEGAL_GENERATION",
        "member_id": "UNKNOWN_MEMBER_ID",
        "group_instance_id": "UNKNOWN_MEMBER_ID",
    },
    "LeaveGroup": {
        "group_id": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "member_id": "UNKNOWN_MEMBER_ID",
        "members": "UNKNOWN_MEMBER_ID",
        "members.member_id": "UNKNOWN_MEMBER_ID",
        "members.group_instance_id": "UNKNOWN_MEMBER_ID",
        "members.reason": "UNKNOWN_MEMBER_ID",
    },
    "SyncGroup": {
        "group_id": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "generation_id": "ILLEGAL_GENERATION",
        "member_id": "UNKNOWN_MEMBER_ID",
        "group_instance_id": "UNKNOWN_MEMBER_ID",
        "protocol_type": "INCONSISTENT_GROUP_PROTOCOL",
        "protocol_name": "INCONSISTENT_GROUP_PROTOCOL",
    },
    "DescribeGroups": {
        "": "GROUP_ID_NOT_FOUND",
    },
    "ListGroups": {},
    "ApiVersions": {
        "client_software_name": "INVALID_REQUEST",
        "client_software_version": "INVALID_REQUEST",
    },
    "CreateTopics": {
        "": "TOPIC_ALREADY_EXISTS",
        "topics": "INVALID_REQUEST",
        "topics.name": "INVALID_TOPIC_EXCEPTION",
        "topics.num_partitions": "INVALID_PARTITIONS INVALID_REQUEST",
        "topics.replication_factor": "INVALID_REPLICATION_FACTOR INVALID_REQUEST",
        "topics.assignments": "INVALID_REPLICA_ASSIGNMENT",
        "topics.assignments.partition_index": "INVALID_REPLICA_ASSIGNMENT",
        "topics.assignments.broker_ids": "INVALID_REPLICA_ASSIGNMENT",
        "topics.configs.name": "INVALID_CONFIG",
        "topics.configs.value": "INVALID_CONFIG",
        "timeout_ms": "REQUEST_TIMED_OUT",
    },
    "DeleteTopics": {
        "topic_names": "UNKNOWN_TOPIC_OR_PARTITION",
        "timeout_ms": "REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PARTITION",
        "topics": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.name": "UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION",
        "topics.topic_id": "INVALID_REQUEST",
    },
    "DeleteRecords": {
        "topics.name": "INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.offset": "OFFSET_OUT_OF_RANGE",
        "timeout_ms": "REQUEST_TIMED_OUT",
    },
    "InitProducerId": {
        "": "CONCURRENT_TRANSACTIONS",
        "transactional_id": "INVALID_REQUEST",
        "transaction_timeout_ms": "INVALID_TRANSACTION_TIMEOUT",
        "producer_id": "INVALID_PRODUCER_EPOCH INVALID_REQUEST PRODUCER_FENCED",
        "producer_epoch": "INVALID_PRODUCER_EPOCH INVALID_REQUEST PRODUCER_FENCED",
    },
    "OffsetForLeaderEpoch": {
        "topics.topic": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.current_leader_epoch": "FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH",
    },
    "AddPartitionsToTxn": {
        "": "CONCURRENT_TRANSACTIONS",
        "v3_and_below_transactional_id": "INVALID_PRODUCER_ID_MAPPING INVALID_REQUEST",
        "v3_and_below_producer_id": "INVALID_PRODUCER_ID_MAPPING",
        "v3_and_below_producer_epoch": "INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
        "v3_and_below_topics.name": "OPERATION_NOT_ATTEMPTED TOPIC_AUTHORIZATION_FAILED UNKNOWN_TOPIC_OR_PARTITION",
        "v3_and_below_topics.partitions": "OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION",
        "transactions.transactional_id": "INVALID_PRODUCER_ID_MAPPING INVALID_REQUEST",
        "transactions.producer_id": "INVALID_PRODUCER_ID_MAPPING",
        "transactions.producer_epoch": "INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
        "transactions.topics.name": "OPERATION_NOT_ATTEMPTED TOPIC_AUTHORIZATION_FAILED UNKNOWN_TOPIC_OR_PARTITION",
        "transactions.topics.partitions": "OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION",
        "transactions.verify_only": "INVALID_TXN_STATE TRANSACTION_ABORTABLE",
    },
    "AddOffsetsToTxn": {
        "": "CONCURRENT_TRANSACTIONS",
        "transactional_id": "INVALID_PRODUCER_ID_MAPPING INVALID_REQUEST",
        "producer_id": "INVALID_PRODUCER_ID_MAPPING",
        "producer_epoch": "INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    },
    "EndTxn": {
        "": "CONCURRENT_TRANSACTIONS INVALID_TXN_STATE",
        "transactional_id": "INVALID_PRODUCER_ID_MAPPING INVALID_REQUEST",
        "producer_id": "INVALID_PRODUCER_ID_MAPPING",
        "producer_epoch": "INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    },
    "LeaderAndIsr": {
        # An equal leader epoch is stale as well, and a lower controller epoch after the highest.
        "": "STALE_CONTROLLER_EPOCH",
        "is_kraft_controller": "INVALID_REQUEST",
        "broker_epoch": "STALE_BROKER_EPOCH",
        "topic_states.topic_name": "INVALID_TOPIC_EXCEPTION",
        "topic_states.topic_id": "INCONSISTENT_TOPIC_ID",
        "topic_states.partition_states.partition_index": "INVALID_TOPIC_EXCEPTION",
        "ungrouped_partition_states.topic_name": "INVALID_TOPIC_EXCEPTION",
        "ungrouped_partition_states.partition_index": "INVALID_TOPIC_EXCEPTION",
        # One that only other brokers have, or that was not created because it is not new.
        "topic_states.partition_states.replicas": "UNKNOWN_TOPIC_OR_PARTITION",
        "ungrouped_partition_states.replicas": "UNKNOWN_TOPIC_OR_PARTITION",
    },
    "StopReplica": {
        "": "STALE_CONTROLLER_EPOCH",
        "is_kraft_controller": "INVALID_REQUEST",
        "broker_epoch": "STALE_BROKER_EPOCH",
        "topic_states.topic_name": "INVALID_TOPIC_EXCEPTION",
        "topic_states.partition_states.partition_index": "INVALID_TOPIC_EXCEPTION",
        "topics.name": "INVALID_TOPIC_EXCEPTION",
        "topics.partition_indexes": "INVALID_TOPIC_EXCEPTION",
        "ungrouped_partitions.topic_name": "INVALID_TOPIC_EXCEPTION",
        "ungrouped_partitions.partition_index": "INVALID_TOPIC_EXCEPTION",
    },
    "UpdateMetadata": {
        "": "STALE_CONTROLLER_EPOCH",
        "is_kraft_controller": "INVALID_REQUEST",
        "broker_epoch": "STALE_BROKER_EPOCH",
        "live_brokers.endpoints.security_protocol": "INVALID_REQUEST",
    },
    "ControlledShutdown": {
        "broker_id": "BROKER_NOT_AVAILABLE",
        "broker_epoch": "STALE_BROKER_EPOCH",
    },
    "AlterPartition": {
        "": "INVALID_UPDATE_VERSION",  # a request before changed the state
        "broker_id": "STALE_BROKER_EPOCH",
        "broker_epoch": "STALE_BROKER_EPOCH",
        "topics.topic_name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.topic_id": "UNKNOWN_TOPIC_ID",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.leader_epoch": "FENCED_LEADER_EPOCH NOT_CONTROLLER",
        "topics.partitions.new_isr": "INELIGIBLE_REPLICA INVALID_REQUEST OPERATION_NOT_ATTEMPTED",
        "topics.partitions.new_isr_with_epochs": "INELIGIBLE_REPLICA INVALID_REQUEST",
        "topics.partitions.new_isr_with_epochs.broker_id": "INELIGIBLE_REPLICA INVALID_REQUEST",
        "topics.partitions.leader_recovery_state": "INVALID_REQUEST",
        "topics.partitions.partition_epoch": "INVALID_UPDATE_VERSION NOT_CONTROLLER",
    },
    "AllocateProducerIds": {
        "broker_id": "BROKER_ID_NOT_REGISTERED",
        "broker_epoch": "STALE_BROKER_EPOCH",
    },
    "Envelope": {"": "closed"},  # nothing is forwarded
    "WriteTxnMarkers": {
        "markers.producer_id": "INVALID_REQUEST",
        "markers.producer_epoch": "INVALID_PRODUCER_EPOCH INVALID_REQUEST",
        "markers.transaction_result": "INVALID_PRODUCER_EPOCH",
        "markers.topics": "INVALID_PRODUCER_EPOCH",
        "markers.topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "markers.topics.partition_indexes": "INVALID_PRODUCER_EPOCH UNKNOWN_TOPIC_OR_PARTITION",
        "markers.coordinator_epoch": "INVALID_PRODUCER_EPOCH TRANSACTION_COORDINATOR_FENCED",
    },
    "TxnOffsetCommit": {
        "": "CONCURRENT_TRANSACTIONS",
        "transactional_id": "INVALID_PRODUCER_ID_MAPPING INVALID_REQUEST",
        "group_id": "GROUP_ID_NOT_FOUND INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "producer_id": "INVALID_PRODUCER_ID_MAPPING",
        "producer_epoch": "INVALID_PRODUCER_EPOCH",
        "topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.committed_metadata": "OFFSET_METADATA_TOO_LARGE",
        "generation_id": "ILLEGAL_GENERATION",
        "member_id": "UNKNOWN_MEMBER_ID",
        "group_instance_id": "UNKNOWN_MEMBER_ID",
    },
    "DescribeAcls": {
        "": "SECURITY_DISABLED",
        # 0 is UNKNOWN in each enum: Kafka closes the connection.
        "resource_type_filter": "closed",
        "pattern_type_filter": "closed",
        "operation": "closed",
        "permission_type": "closed",
    },
    "CreateAcls": {
        "": "SECURITY_DISABLED",
        # 0 is UNKNOWN in each enum: Kafka closes the connection.
        "creations.resource_type": "closed",
        "creations.resource_pattern_type": "closed",
        "creations.operation": "closed",
        "creations.permission_type": "closed",
    },
    "DeleteAcls": {
        "": "SECURITY_DISABLED",
        # 0 is UNKNOWN in each enum: Kafka closes the connection.
        "filters.resource_type_filter": "closed",
        "filters.pattern_type_filter": "closed",
        "filters.operation": "closed",
        "filters.permission_type": "closed",
    },
    "DescribeConfigs": {
        "resources.resource_type": "INVALID_REQUEST",
        "resources.resource_name": "INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION",
    },
    "AlterConfigs": {
        "resources": "INVALID_REQUEST",
        "resources.resource_type": "INVALID_REQUEST",
        "resources.resource_name": "INVALID_REQUEST UNKNOWN_TOPIC_OR_PARTITION",
        "resources.configs": "INVALID_REQUEST",
        "resources.configs.name": "INVALID_CONFIG",
        "resources.configs.value": "INVALID_CONFIG INVALID_REQUEST",
    },
    "AlterReplicaLogDirs": {
        "dirs.path": "LOG_DIR_NOT_FOUND",
        "dirs.topics.name": "INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION",
        "dirs.topics.partitions": "UNKNOWN_TOPIC_OR_PARTITION",
    },
    "DescribeLogDirs": {},
    "CreatePartitions": {
        "topics": "INVALID_REQUEST",
        "topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.count": "INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT POLICY_VIOLATION",
        "topics.assignments": "INVALID_REPLICA_ASSIGNMENT",
        "topics.assignments.broker_ids": "INVALID_REPLICA_ASSIGNMENT",
        "timeout_ms": "REQUEST_TIMED_OUT",
    },
    "SaslHandshake": {
        "": "ILLEGAL_SASL_STATE",
    },
    "SaslAuthenticate": {
        "": "ILLEGAL_SASL_STATE",
    },
    "CreateDelegationToken": {
        "": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    },
    "RenewDelegationToken": {
        "": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    },
    "ExpireDelegationToken": {
        "": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    },
    "DescribeDelegationToken": {
        "": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    },
    "DeleteGroups": {
        "": "GROUP_ID_NOT_FOUND",
        "groups_names": "NON_EMPTY_GROUP",  # of a name under which another mutant has joined
    },
    "ElectLeaders": {
        "": "ELECTION_NOT_NEEDED",
        "topic_partitions.topic": "UNKNOWN_TOPIC_OR_PARTITION",
        "topic_partitions.partitions": "UNKNOWN_TOPIC_OR_PARTITION",
        "election_type": "INVALID_REQUEST",
        "timeout_ms": "REQUEST_TIMED_OUT",
    },
    "IncrementalAlterConfigs": {
        "resources": "INVALID_REQUEST",
        "resources.resource_type": "INVALID_REQUEST",
        "resources.resource_name": "INVALID_REQUEST UNKNOWN_TOPIC_OR_PARTITION",
        "resources.configs": "INVALID_REQUEST",
        "resources.configs.name": "INVALID_CONFIG",
        "resources.configs.config_operation": "INVALID_REQUEST",
        "resources.configs.value": "INVALID_CONFIG INVALID_REQUEST",
    },
    "AlterPartitionReassignments": {
        "topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.replicas": "INVALID_REPLICA_ASSIGNMENT NO_REASSIGNMENT_IN_PROGRESS",
    },
    "ListPartitionReassignments": {},
    "OffsetDelete": {
        "": "GROUP_SUBSCRIBED_TO_TOPIC",
        "group_id": "GROUP_ID_NOT_FOUND INVALID_GROUP_ID",
        "topics.name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
    },
    "DescribeClientQuotas": {
        "components": "INVALID_REQUEST",
        "components.entity_type": "INVALID_REQUEST UNSUPPORTED_VERSION",
        "components.match_type": "INVALID_REQUEST",
    },
    "AlterClientQuotas": {
        "entries.entity": "INVALID_REQUEST",
        "entries.entity.entity_type": "INVALID_REQUEST",
        "entries.entity.entity_name": "INVALID_REQUEST",
        "entries.ops.key": "INVALID_REQUEST",
        "entries.ops.value": "INVALID_REQUEST",
    },
    "DescribeUserScramCredentials": {
        "": "RESOURCE_NOT_FOUND",
        "users": "DUPLICATE_RESOURCE",
    },
    "AlterUserScramCredentials": {
        "": "RESOURCE_NOT_FOUND",
        "deletions": "DUPLICATE_RESOURCE",
        "deletions.name": "UNACCEPTABLE_CREDENTIAL",
        "deletions.mechanism": "UNSUPPORTED_SASL_MECHANISM",
        "upsertions": "DUPLICATE_RESOURCE",
        "upsertions.name": "UNACCEPTABLE_CREDENTIAL",
        "upsertions.mechanism": "UNSUPPORTED_SASL_MECHANISM",
        "upsertions.iterations": "UNACCEPTABLE_CREDENTIAL",
        "upsertions.salt": "UNACCEPTABLE_CREDENTIAL",
        "upsertions.salted_password": "UNACCEPTABLE_CREDENTIAL",
    },
    "UpdateFeatures": {
        "": "INVALID_REQUEST",
    },
    "DescribeCluster": {
        "endpoint_type": "MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE",
    },
    "DescribeProducers": {
        "topics.name": "INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partition_indexes": "UNKNOWN_TOPIC_OR_PARTITION",
    },
    "DescribeTransactions": {
        "transactional_ids": "INVALID_REQUEST TRANSACTIONAL_ID_NOT_FOUND",
    },
    "ListTransactions": {
        "transactional_id_pattern": "INVALID_REGULAR_EXPRESSION",
    },
    "ConsumerGroupHeartbeat": {
        "": "GROUP_ID_NOT_FOUND",  # nobody has joined the group
        "group_id": "INVALID_REQUEST",
        "member_id": "INVALID_REQUEST",
        "member_epoch": "INVALID_REQUEST",
        "instance_id": "INVALID_REQUEST",
        "rack_id": "INVALID_REQUEST",
        "subscribed_topic_regex": "INVALID_REGULAR_EXPRESSION",
        "server_assignor": "UNSUPPORTED_ASSIGNOR",
    },
    "ConsumerGroupDescribe": {
        "": "GROUP_ID_NOT_FOUND",
        "group_ids": "INVALID_GROUP_ID",
    },
    "ShareGroupHeartbeat": {
        "": "GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID",  # only member epoch 0 joins
        "group_id": "INVALID_REQUEST",
        "member_id": "INVALID_REQUEST",
        "member_epoch": "INVALID_REQUEST",
        "rack_id": "INVALID_REQUEST",
        "subscribed_topic_names": "INVALID_REQUEST",
    },
    "ShareGroupDescribe": {
        "": "GROUP_ID_NOT_FOUND",
        "group_ids": "INVALID_GROUP_ID",
    },
    "ShareFetch": {
        "": "SHARE_SESSION_NOT_FOUND",
        "group_id": "INVALID_REQUEST",
        "member_id": "INVALID_REQUEST",
        "share_session_epoch": "INVALID_REQUEST",  # the first request acknowledges nothing
        "topics.topic_id": "UNKNOWN_TOPIC_ID",
        "topics.partitions.acknowledgement_batches": "INVALID_REQUEST",
    },
    "ShareAcknowledge": {
        "": "SHARE_SESSION_NOT_FOUND",
        "group_id": "INVALID_REQUEST",
        "member_id": "INVALID_REQUEST",
        "share_session_epoch": "INVALID_SHARE_SESSION_EPOCH",
        "topics.topic_id": "UNKNOWN_TOPIC_ID",
    },
    "InitializeShareGroupState": {
        "": "FENCED_STATE_EPOCH",  # a request before has begun a later one
        "group_id": "INVALID_GROUP_ID",
        "topics.partitions.partition": "INVALID_REQUEST",
        "topics.partitions.state_epoch": "INVALID_REQUEST",
        "topics.partitions.start_offset": "INVALID_REQUEST",
    },
    "ReadShareGroupState": {
        "": "FENCED_LEADER_EPOCH UNKNOWN_TOPIC_OR_PARTITION",  # a request before has named a later one
        "group_id": "INVALID_GROUP_ID",
        "topics.partitions.partition": "INVALID_REQUEST",
    },
    "WriteShareGroupState": {
        "": "FENCED_LEADER_EPOCH FENCED_STATE_EPOCH UNKNOWN_TOPIC_OR_PARTITION",  # as above
        "group_id": "INVALID_GROUP_ID",
        "topics.partitions.partition": "INVALID_REQUEST",
        "topics.partitions.start_offset": "INVALID_REQUEST",
        "topics.partitions.state_batches.first_offset": "INVALID_REQUEST",
        "topics.partitions.state_batches.last_offset": "INVALID_REQUEST",
        "topics.partitions.state_batches.delivery_state": "INVALID_REQUEST",
        "topics.partitions.state_batches.delivery_count": "INVALID_REQUEST",
    },
    "DeleteShareGroupState": {
        "group_id": "INVALID_GROUP_ID",
        "topics.partitions.partition": "INVALID_REQUEST",
    },
    "ReadShareGroupStateSummary": {
        "group_id": "INVALID_GROUP_ID",
        "topics.partitions.partition": "INVALID_REQUEST",
    },
    "DescribeShareGroupOffsets": {
        "": "GROUP_ID_NOT_FOUND",
        "groups.group_id": "INVALID_GROUP_ID",
        "groups.topics.topic_name": "UNKNOWN_TOPIC_OR_PARTITION",
        "groups.topics.partitions": "UNKNOWN_TOPIC_OR_PARTITION",
    },
    "AlterShareGroupOffsets": {
        "": "GROUP_ID_NOT_FOUND",
        "group_id": "INVALID_GROUP_ID",
        "topics.topic_name": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.partition_index": "UNKNOWN_TOPIC_OR_PARTITION",
        "topics.partitions.start_offset": "INVALID_REQUEST",
    },
    "DeleteShareGroupOffsets": {
        "": "GROUP_ID_NOT_FOUND UNKNOWN_TOPIC_OR_PARTITION",  # the request before has deleted them
        "group_id": "INVALID_GROUP_ID",
    },
    "GetTelemetrySubscriptions": {
        "": "THROTTLING_QUOTA_EXCEEDED",
    },
    "PushTelemetry": {
        "": "INVALID_REQUEST THROTTLING_QUOTA_EXCEEDED UNKNOWN_SUBSCRIPTION_ID",  # a request before may be the last
    },
    "ListConfigResources": {
        "resource_types": "UNSUPPORTED_VERSION",
    },
    "DescribeTopicPartitions": {
        "topics": "INVALID_REQUEST",
        "topics.name": "INVALID_REQUEST INVALID_TOPIC_EXCEPTION",
        "cursor.topic_name": "INVALID_REQUEST",
        "cursor.partition_index": "INVALID_REQUEST",
    },
}

DOCUMENTED = {
    name: {path: frozenset(codes.split()) for path, codes in fields.items()} for name, fields in _BY_FIELD.items()
}

_NO_NAMES = "empty, dots, forbidden, not ascii, colon, long, longest"
_NO_INDEXES = "-1, -2, 7, lowest, highest"

# What has to be refused in every version that can say it, and with which code: API, field, values, code.
REFUSED = [
    ("Produce", "acks", "-2, 7, lowest, highest", "INVALID_REQUIRED_ACKS"),
    ("Produce", "topic_data.name", f"unknown, {_NO_NAMES}", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("Produce", "topic_data.name", "internal", "INVALID_TOPIC_EXCEPTION"),
    ("Produce", "topic_data.partition_data.index", _NO_INDEXES, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("Produce", "topic_data.partition_data.records", "wrong crc, nonsense", "CORRUPT_MESSAGE"),
    (
        "Produce",
        "topic_data.partition_data.records",
        "null, two batches, not from 0, control, no sequence, count too high, count too low, bad record",
        "INVALID_RECORD",
    ),
    (
        "Produce",
        "topic_data.partition_data.records",
        "transactional",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    ("Fetch", "topics.topic", f"unknown, {_NO_NAMES}", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("Fetch", "topics.topic_id", "zero, unknown", "UNKNOWN_TOPIC_ID"),
    ("Fetch", "isolation_level", "-1, 7, lowest, highest", "INVALID_REQUEST"),
    ("Fetch", "topics.partitions.partition", _NO_INDEXES, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("Fetch", "topics.partitions.fetch_offset", _NO_INDEXES, "OFFSET_OUT_OF_RANGE"),
    ("Fetch", "topics.partitions.current_leader_epoch", "1, 7, highest", "UNKNOWN_LEADER_EPOCH"),
    ("ListOffsets", "topics.name", f"unknown, {_NO_NAMES}", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("ListOffsets", "topics.partitions.partition_index", _NO_INDEXES, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("ListOffsets", "topics.partitions.current_leader_epoch", "1, 7, highest", "UNKNOWN_LEADER_EPOCH"),
    ("ListOffsets", "topics.partitions.current_leader_epoch", "-2, lowest", "FENCED_LEADER_EPOCH"),
    ("ListOffsets", "topics", "twice, many", "INVALID_REQUEST"),
    ("ListOffsets", "isolation_level", "-1, 7, lowest, highest", "INVALID_REQUEST"),
    ("Metadata", "topics.name", _NO_NAMES, "INVALID_TOPIC_EXCEPTION"),
    ("Metadata", "topics.name", "unknown", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("OffsetCommit", "generation_id_or_member_epoch", "0, -1, -2, 7, lowest, highest", "ILLEGAL_GENERATION"),
    ("OffsetCommit", "member_id", f"unknown, {_NO_NAMES}", "UNKNOWN_MEMBER_ID"),
    ("OffsetCommit", "topics.partitions.committed_metadata", "longest", "OFFSET_METADATA_TOO_LARGE"),
    ("OffsetCommit", "topics.partitions.partition_index", _NO_INDEXES, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("FindCoordinator", "key_type", "-1, 7, lowest, highest", "INVALID_REQUEST"),
    ("JoinGroup", "session_timeout_ms", "0, 1, -1, lowest, highest", "INVALID_SESSION_TIMEOUT"),
    ("JoinGroup", "group_id", "empty", "INVALID_GROUP_ID"),
    ("JoinGroup", "protocols", "empty", "INCONSISTENT_GROUP_PROTOCOL"),
    ("JoinGroup", "protocols.name", f"unknown, {_NO_NAMES}", "INCONSISTENT_GROUP_PROTOCOL"),
    ("Heartbeat", "generation_id", "0, -1, 7, lowest, highest", "ILLEGAL_GENERATION"),
    ("Heartbeat", "member_id", f"unknown, {_NO_NAMES}", "UNKNOWN_MEMBER_ID"),
    ("SyncGroup", "generation_id", "0, -1, 7, lowest, highest", "ILLEGAL_GENERATION"),
    ("SyncGroup", "protocol_name", "unknown", "INCONSISTENT_GROUP_PROTOCOL"),
    ("CreateTopics", "topics.name", _NO_NAMES, "INVALID_TOPIC_EXCEPTION"),
    ("DeleteTopics", "topics.name", f"unknown, {_NO_NAMES}", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("DeleteRecords", "topics.partitions.offset", "-2, lowest, highest", "OFFSET_OUT_OF_RANGE"),
    ("InitProducerId", "transaction_timeout_ms", "0, -1, lowest, highest", "INVALID_TRANSACTION_TIMEOUT"),
    ("InitProducerId", "transactional_id", "empty", "INVALID_REQUEST"),
    ("AddOffsetsToTxn", "producer_id", "0, -1, 7, lowest, highest", "INVALID_PRODUCER_ID_MAPPING"),
    ("EndTxn", "producer_id", "0, -1, 7, lowest, highest", "INVALID_PRODUCER_ID_MAPPING"),
    ("TxnOffsetCommit", "generation_id", "0, -2, 7, lowest, highest", "ILLEGAL_GENERATION"),
    ("DescribeConfigs", "resources.resource_type", "0, -1, 7, lowest, highest", "INVALID_REQUEST"),
    ("AlterConfigs", "resources.configs.name", f"unknown, {_NO_NAMES}", "INVALID_CONFIG"),
    ("IncrementalAlterConfigs", "resources.configs.config_operation", _NO_INDEXES, "INVALID_REQUEST"),
    ("IncrementalAlterConfigs", "resources.configs.value", "unknown, empty, longest", "INVALID_CONFIG"),
    ("AlterReplicaLogDirs", "dirs.path", "unknown, empty, longest", "LOG_DIR_NOT_FOUND"),
    ("CreatePartitions", "topics.count", "0, 1, -1, lowest", "INVALID_PARTITIONS"),
    ("CreatePartitions", "topics.name", f"unknown, {_NO_NAMES}", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("ElectLeaders", "election_type", "-1, 7, lowest, highest", "INVALID_REQUEST"),
    ("AlterClientQuotas", "entries.ops.value", "-1.0, inf, -inf, nan, 1e+308", "INVALID_REQUEST"),
    ("DescribeClientQuotas", "components.match_type", "-1, 7, lowest, highest", "INVALID_REQUEST"),
    ("ListConfigResources", "resource_types", "0, 1, -1, -2, 7, lowest, highest", "UNSUPPORTED_VERSION"),
    ("DescribeTopicPartitions", "cursor.partition_index", "-1, lowest", "INVALID_REQUEST"),
    ("DescribeCluster", "endpoint_type", "0, -1, 7, lowest, highest", "UNSUPPORTED_ENDPOINT_TYPE"),
]
