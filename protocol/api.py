"""The table of APIs: keys, versions, and the classes of their messages.

Owns the registry; code that depends on an API key looks it up here. Must not know which APIs this broker serves: what
it advertises follows from its handlers.

Invariant: request and response of an API have the same key, versions and first flexible version.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    envelope,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from protocol.schema import message_info


class Api(NamedTuple):
    """One API. `cluster_action` means that only brokers may call it: it requires ClusterAction on the cluster.

    Through the table a message has type Any; code that names the class gets its type.
    """

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    versions: range
    flexible: int | None
    cluster_action: bool
    deprecated: range
    """The versions that Kafka 3.9 serves and 4.0 does not (KIP-896)."""

    def is_flexible_in(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


def _api(request: type[Any], response: type[Any], *, cluster_action: bool = False) -> Api:
    info = message_info(request)
    response_info = message_info(response)
    assert (response_info.api_key, response_info.versions, response_info.flexible) == (
        info.api_key,
        info.versions,
        info.flexible,
    )
    name = request.__name__.removesuffix("Request")
    deprecated = range(_FIRST_NOT_DEPRECATED.get(name, 0))
    return Api(info.api_key, name, request, response, info.versions, info.flexible, cluster_action, deprecated)


_FIRST_NOT_DEPRECATED: Mapping[str, int] = MappingProxyType(
    {
        "Produce": 7,
        "Fetch": 4,
        "ListOffsets": 1,
        "Metadata": 4,
        "OffsetCommit": 2,
        "OffsetFetch": 1,
        "FindCoordinator": 1,
        "JoinGroup": 2,
        "SaslHandshake": 1,
        "CreateTopics": 2,
        "DeleteTopics": 1,
        "OffsetForLeaderEpoch": 2,
        "DescribeAcls": 1,
        "CreateAcls": 1,
        "DeleteAcls": 1,
        "DescribeConfigs": 1,
        "AlterReplicaLogDirs": 1,
        "DescribeLogDirs": 1,
        "CreateDelegationToken": 1,
        "RenewDelegationToken": 1,
        "ExpireDelegationToken": 1,
        "DescribeDelegationToken": 1,
        "DeleteGroups": 1,
    }
)
"""By API, the first version that KIP-896 does not deprecate. All versions of the others stay."""


_ROWS = (
    _api(produce.ProduceRequest, produce.ProduceResponse),
    _api(fetch.FetchRequest, fetch.FetchResponse),
    _api(list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    _api(metadata.MetadataRequest, metadata.MetadataResponse),
    _api(leader_and_isr.LeaderAndIsrRequest, leader_and_isr.LeaderAndIsrResponse, cluster_action=True),
    _api(stop_replica.StopReplicaRequest, stop_replica.StopReplicaResponse, cluster_action=True),
    _api(update_metadata.UpdateMetadataRequest, update_metadata.UpdateMetadataResponse, cluster_action=True),
    _api(
        controlled_shutdown.ControlledShutdownRequest,
        controlled_shutdown.ControlledShutdownResponse,
        cluster_action=True,
    ),
    _api(offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse),
    _api(offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse),
    _api(find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse),
    _api(join_group.JoinGroupRequest, join_group.JoinGroupResponse),
    _api(heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse),
    _api(leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse),
    _api(sync_group.SyncGroupRequest, sync_group.SyncGroupResponse),
    _api(describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse),
    _api(list_groups.ListGroupsRequest, list_groups.ListGroupsResponse),
    _api(sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse),
    _api(api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    _api(create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
    _api(delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse),
    _api(delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse),
    _api(init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse),
    _api(offset_for_leader_epoch.OffsetForLeaderEpochRequest, offset_for_leader_epoch.OffsetForLeaderEpochResponse),
    _api(add_partitions_to_txn.AddPartitionsToTxnRequest, add_partitions_to_txn.AddPartitionsToTxnResponse),
    _api(add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse),
    _api(end_txn.EndTxnRequest, end_txn.EndTxnResponse),
    _api(write_txn_markers.WriteTxnMarkersRequest, write_txn_markers.WriteTxnMarkersResponse, cluster_action=True),
    _api(txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse),
    _api(describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse),
    _api(create_acls.CreateAclsRequest, create_acls.CreateAclsResponse),
    _api(delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse),
    _api(describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse),
    _api(alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    _api(alter_replica_log_dirs.AlterReplicaLogDirsRequest, alter_replica_log_dirs.AlterReplicaLogDirsResponse),
    _api(describe_log_dirs.DescribeLogDirsRequest, describe_log_dirs.DescribeLogDirsResponse),
    _api(sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse),
    _api(create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse),
    _api(create_delegation_token.CreateDelegationTokenRequest, create_delegation_token.CreateDelegationTokenResponse),
    _api(renew_delegation_token.RenewDelegationTokenRequest, renew_delegation_token.RenewDelegationTokenResponse),
    _api(expire_delegation_token.ExpireDelegationTokenRequest, expire_delegation_token.ExpireDelegationTokenResponse),
    _api(
        describe_delegation_token.DescribeDelegationTokenRequest,
        describe_delegation_token.DescribeDelegationTokenResponse,
    ),
    _api(delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse),
    _api(elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse),
    _api(
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    _api(
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    ),
    _api(
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
    ),
    _api(offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    _api(describe_client_quotas.DescribeClientQuotasRequest, describe_client_quotas.DescribeClientQuotasResponse),
    _api(alter_client_quotas.AlterClientQuotasRequest, alter_client_quotas.AlterClientQuotasResponse),
    _api(
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    ),
    _api(
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    ),
    _api(alter_partition.AlterPartitionRequest, alter_partition.AlterPartitionResponse, cluster_action=True),
    _api(update_features.UpdateFeaturesRequest, update_features.UpdateFeaturesResponse, cluster_action=True),
    _api(envelope.EnvelopeRequest, envelope.EnvelopeResponse, cluster_action=True),
    _api(describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse),
    _api(describe_producers.DescribeProducersRequest, describe_producers.DescribeProducersResponse),
    _api(describe_transactions.DescribeTransactionsRequest, describe_transactions.DescribeTransactionsResponse),
    _api(list_transactions.ListTransactionsRequest, list_transactions.ListTransactionsResponse),
    _api(
        allocate_producer_ids.AllocateProducerIdsRequest,
        allocate_producer_ids.AllocateProducerIdsResponse,
        cluster_action=True,
    ),
    _api(
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
    ),
    _api(consumer_group_describe.ConsumerGroupDescribeRequest, consumer_group_describe.ConsumerGroupDescribeResponse),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ROWS})
