"""The table of APIs: keys, versions, and the classes of their messages.

Owns the registry; code that depends on an API key looks it up here. Must not know which APIs this broker serves: what
it advertises follows from its handlers.

A module of messages is imported when its classes are first asked for: most brokers never serve half of the APIs.

Invariant: request and response have the key, the versions and the first flexible version of their row.
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from protocol.dataclass import dataclass
from protocol.schema import message_info


@dataclass(frozen=True)
class Api:
    """One API. `cluster_action` means that only brokers may call it: it requires ClusterAction on the cluster.

    Through the table a message has type Any; code that names the class gets its type.
    """

    key: int
    module: str
    """The module in `protocol.messages`."""
    name: str
    versions: range
    flexible: int | None
    cluster_action: bool
    deprecated: range
    """The versions that Kafka 3.9 serves and 4.0 does not (KIP-896)."""

    def is_flexible_in(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    @cached_property
    def request(self) -> type[Any]:
        """The class of requests."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Any]:
        """The class of responses."""
        return self._message("Response")

    def _message(self, kind: str) -> type[Any]:
        declared: type[Any] = getattr(import_module(f"protocol.messages.{self.module}"), self.name + kind)
        info = message_info(declared)
        assert (info.api_key, info.flexible) == (self.key, self.flexible), declared
        assert set(self.versions) <= set(info.versions), declared
        return declared


def _api(key: int, module: str, versions: range, flexible: int | None, *, cluster_action: bool = False) -> Api:
    name = module.title().replace("_", "")
    deprecated = range(_FIRST_NOT_DEPRECATED.get(name, 0))
    return Api(key, module, name, versions, flexible, cluster_action, deprecated)


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
    _api(0, "produce", range(0, 12), 9),
    _api(1, "fetch", range(0, 18), 12),
    _api(2, "list_offsets", range(0, 10), 6),
    _api(3, "metadata", range(0, 13), 9),
    _api(4, "leader_and_isr", range(0, 8), 4, cluster_action=True),
    _api(5, "stop_replica", range(0, 5), 2, cluster_action=True),
    _api(6, "update_metadata", range(0, 9), 6, cluster_action=True),
    _api(7, "controlled_shutdown", range(0, 4), 3, cluster_action=True),
    _api(8, "offset_commit", range(0, 10), 8),
    _api(9, "offset_fetch", range(0, 10), 6),
    _api(10, "find_coordinator", range(0, 7), 3),
    _api(11, "join_group", range(0, 10), 6),
    _api(12, "heartbeat", range(0, 5), 4),
    _api(13, "leave_group", range(0, 6), 4),
    _api(14, "sync_group", range(0, 6), 4),
    _api(15, "describe_groups", range(0, 6), 5),
    _api(16, "list_groups", range(0, 6), 3),
    _api(17, "sasl_handshake", range(0, 2), None),
    _api(18, "api_versions", range(0, 5), 3),
    _api(19, "create_topics", range(0, 8), 5),
    _api(20, "delete_topics", range(0, 7), 4),
    _api(21, "delete_records", range(0, 3), 2),
    _api(22, "init_producer_id", range(0, 6), 2),
    _api(23, "offset_for_leader_epoch", range(0, 5), 4),
    _api(24, "add_partitions_to_txn", range(0, 6), 3),
    _api(25, "add_offsets_to_txn", range(0, 5), 3),
    _api(26, "end_txn", range(0, 5), 3),
    _api(27, "write_txn_markers", range(0, 2), 1, cluster_action=True),
    _api(28, "txn_offset_commit", range(0, 5), 3),
    _api(29, "describe_acls", range(0, 4), 2),
    _api(30, "create_acls", range(0, 4), 2),
    _api(31, "delete_acls", range(0, 4), 2),
    _api(32, "describe_configs", range(0, 5), 4),
    _api(33, "alter_configs", range(0, 3), 2),
    _api(34, "alter_replica_log_dirs", range(0, 3), 2),
    _api(35, "describe_log_dirs", range(0, 5), 2),
    _api(36, "sasl_authenticate", range(0, 3), 2),
    _api(37, "create_partitions", range(0, 4), 2),
    _api(38, "create_delegation_token", range(0, 4), 2),
    _api(39, "renew_delegation_token", range(0, 3), 2),
    _api(40, "expire_delegation_token", range(0, 3), 2),
    _api(41, "describe_delegation_token", range(0, 4), 2),
    _api(42, "delete_groups", range(0, 3), 2),
    _api(43, "elect_leaders", range(0, 3), 2),
    _api(44, "incremental_alter_configs", range(0, 2), 1),
    _api(45, "alter_partition_reassignments", range(0, 1), 0),
    _api(46, "list_partition_reassignments", range(0, 1), 0),
    _api(47, "offset_delete", range(0, 1), None),
    _api(48, "describe_client_quotas", range(0, 2), 1),
    _api(49, "alter_client_quotas", range(0, 2), 1),
    _api(50, "describe_user_scram_credentials", range(0, 1), 0),
    _api(51, "alter_user_scram_credentials", range(0, 1), 0),
    _api(56, "alter_partition", range(0, 4), 0, cluster_action=True),
    _api(57, "update_features", range(0, 2), 0, cluster_action=True),
    _api(58, "envelope", range(0, 1), 0, cluster_action=True),
    _api(60, "describe_cluster", range(0, 2), 0),
    _api(61, "describe_producers", range(0, 1), 0),
    _api(65, "describe_transactions", range(0, 1), 0),
    _api(66, "list_transactions", range(0, 2), 0),
    _api(67, "allocate_producer_ids", range(0, 1), 0, cluster_action=True),
    _api(68, "consumer_group_heartbeat", range(0, 1), 0),
    _api(69, "consumer_group_describe", range(0, 1), 0),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ROWS})
