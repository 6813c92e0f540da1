"""The table of APIs that this broker serves: API key -> handler module.

Owns which APIs are served, not what they do. ApiVersions advertises exactly these; docs/not-yet.md lists the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType

_HANDLERS: Mapping[int, str] = MappingProxyType(
    {
        0: "produce",
        1: "fetch",
        2: "list_offsets",
        3: "metadata",
        4: "leader_and_isr",
        5: "stop_replica",
        6: "update_metadata",
        7: "controlled_shutdown",
        8: "offset_commit",
        9: "offset_fetch",
        10: "find_coordinator",
        11: "join_group",
        12: "heartbeat",
        13: "leave_group",
        14: "sync_group",
        15: "describe_groups",
        16: "list_groups",
        17: "sasl_handshake",
        18: "api_versions",
        19: "create_topics",
        20: "delete_topics",
        21: "delete_records",
        22: "init_producer_id",
        23: "offset_for_leader_epoch",
        24: "add_partitions_to_txn",
        25: "add_offsets_to_txn",
        26: "end_txn",
        27: "write_txn_markers",
        28: "txn_offset_commit",
        29: "describe_acls",
        30: "create_acls",
        31: "delete_acls",
        32: "describe_configs",
        33: "alter_configs",
        34: "alter_replica_log_dirs",
        35: "describe_log_dirs",
        36: "sasl_authenticate",
        37: "create_partitions",
        38: "create_delegation_token",
        39: "renew_delegation_token",
        40: "expire_delegation_token",
        41: "describe_delegation_token",
        42: "delete_groups",
        43: "elect_leaders",
        44: "incremental_alter_configs",
        45: "alter_partition_reassignments",
        46: "list_partition_reassignments",
        47: "offset_delete",
        48: "describe_client_quotas",
        49: "alter_client_quotas",
        50: "describe_user_scram_credentials",
        51: "alter_user_scram_credentials",
        56: "alter_partition",
        57: "update_features",
        60: "describe_cluster",
        61: "describe_producers",
        65: "describe_transactions",
        66: "list_transactions",
        67: "allocate_producer_ids",
        68: "consumer_group_heartbeat",
        69: "consumer_group_describe",
    }
)


class _Handlers(Mapping[int, ModuleType]):
    """The handler modules by API key, each imported at its first use: most brokers never serve half of the APIs."""

    def __getitem__(self, key: int) -> ModuleType:
        return import_module(f"broker.handlers.{_HANDLERS[key]}")

    def __iter__(self) -> Iterator[int]:
        return iter(_HANDLERS)

    def __len__(self) -> int:
        return len(_HANDLERS)

    def __contains__(self, key: object) -> bool:
        return key in _HANDLERS


TABLE: Mapping[int, ModuleType] = _Handlers()

_CONTROLLER, _STORE, _COORDINATOR_LOG = "controller", "metadata store", "coordinator log"

WAITS_FOR: Mapping[int, str] = MappingProxyType(
    {
        3: _CONTROLLER,  # creates missing topics
        7: _CONTROLLER,
        8: _COORDINATOR_LOG,
        10: _CONTROLLER,  # creates the coordinators' topics
        11: "members",
        12: "members",
        13: "members",
        14: "members",
        19: _CONTROLLER,
        20: _CONTROLLER,
        21: "replicas",
        22: _COORDINATOR_LOG,
        24: _COORDINATOR_LOG,
        25: _COORDINATOR_LOG,
        26: _COORDINATOR_LOG,
        27: "replicas",
        28: _COORDINATOR_LOG,
        33: _STORE,
        37: _CONTROLLER,
        42: _COORDINATOR_LOG,
        43: _CONTROLLER,
        44: _STORE,
        45: _CONTROLLER,
        46: _CONTROLLER,
        47: _COORDINATOR_LOG,
        48: _STORE,
        49: _STORE,
        50: _STORE,
        51: _STORE,
        56: _CONTROLLER,
        67: _CONTROLLER,
    }
)
"""What an awaited response of each API waits for; this counts as remote time. The handlers of Produce and Fetch name
their waits themselves. Responses of other APIs wait only for disks and threads of this broker, which is local time."""
