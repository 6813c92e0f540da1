"""The table of APIs: keys, versions, and the classes of their messages.

Owns the registry; code that depends on an API key looks it up here, and which versions only brokers outside of a
cluster with ZooKeeper serve. Must not know which kind of broker this is: what it serves follows from its settings.

A module of messages is imported when its classes are first asked for: most brokers never serve half of the APIs.

Invariant: request and response have the key, the versions and the first flexible version of their row.
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

from base.dataclass import dataclass
from protocol.api_key import ApiKey
from protocol.schema import message_info


@dataclass(frozen=True)
class Api:
    """One API. `cluster_action` means that only brokers may call it: it requires ClusterAction on the cluster.

    Through the table a message has type Any; code that names the class gets its type.
    """

    key: ApiKey
    module: str
    """The module in `protocol.messages`."""
    name: str
    versions: range
    flexible: int | None
    cluster_action: bool
    deprecated: range
    """The versions that Kafka 3.9 serves and 4.0 does not (KIP-896)."""
    newer: range
    """The last versions, which Kafka 3.9 in ZooKeeper mode does not list, or all; most APIs have none."""

    @property
    def with_zookeeper(self) -> range:
        """The versions that a broker in a cluster with ZooKeeper serves, as Kafka 3.9 does."""
        return range(self.versions.start, self.versions.stop - len(self.newer))

    @property
    def usual_version(self) -> int:
        """The newest version that every broker serves; for an API that is newer as a whole, its newest version."""
        return (self.with_zookeeper or self.versions)[-1]

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


def _api(key: ApiKey, versions: range, flexible: int | None, *, cluster_action: bool = False) -> Api:
    module = key._name_.lower()  # the property `name` takes two calls, which a start has no time for
    name = module.title().replace("_", "")
    deprecated = range(_FIRST_NOT_DEPRECATED.get(key, 0))
    newer = range(_FIRST_NEWER.get(key, versions.stop), versions.stop)
    return Api(key, module, name, versions, flexible, cluster_action, deprecated, newer)


_FIRST_NOT_DEPRECATED: Mapping[ApiKey, int] = MappingProxyType(
    {
        ApiKey.PRODUCE: 7,
        ApiKey.FETCH: 4,
        ApiKey.LIST_OFFSETS: 1,
        ApiKey.METADATA: 4,
        ApiKey.OFFSET_COMMIT: 2,
        ApiKey.OFFSET_FETCH: 1,
        ApiKey.FIND_COORDINATOR: 1,
        ApiKey.JOIN_GROUP: 2,
        ApiKey.SASL_HANDSHAKE: 1,
        ApiKey.CREATE_TOPICS: 2,
        ApiKey.DELETE_TOPICS: 1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
        ApiKey.DESCRIBE_ACLS: 1,
        ApiKey.CREATE_ACLS: 1,
        ApiKey.DELETE_ACLS: 1,
        ApiKey.DESCRIBE_CONFIGS: 1,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
        ApiKey.DESCRIBE_LOG_DIRS: 1,
        ApiKey.CREATE_DELEGATION_TOKEN: 1,
        ApiKey.RENEW_DELEGATION_TOKEN: 1,
        ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
        ApiKey.DELETE_GROUPS: 1,
    }
)
"""By API, the first version that KIP-896 does not deprecate. All versions of the others stay."""

_FIRST_NEWER: Mapping[ApiKey, int] = MappingProxyType(
    {
        ApiKey.PRODUCE: 12,
        ApiKey.LIST_OFFSETS: 10,
        ApiKey.END_TXN: 5,
        ApiKey.DESCRIBE_GROUPS: 6,
        ApiKey.LIST_TRANSACTIONS: 2,
        ApiKey.TXN_OFFSET_COMMIT: 5,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
        ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
        ApiKey.METADATA: 13,
        ApiKey.DESCRIBE_CLUSTER: 2,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
        ApiKey.LIST_CONFIG_RESOURCES: 0,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
        ApiKey.SHARE_GROUP_HEARTBEAT: 1,
        ApiKey.SHARE_GROUP_DESCRIBE: 1,
        ApiKey.SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE: 0,
        ApiKey.WRITE_SHARE_GROUP_STATE: 0,
        ApiKey.DELETE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    }
)
"""By API, the first version that Kafka 3.9 in ZooKeeper mode does not list.

A broker with a metadata store of its own serves these versions to clients of Kafka 4.x. A broker in a cluster with
ZooKeeper does not, so that it can stand beside brokers of Kafka 3.9, unless settings say that it need not.
"""

OF_CONSUMER_GROUPS = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE})
"""The APIs of the consumer protocol: a broker without it lists the versions of Kafka 3.9, and refuses them."""
OF_SHARE_GROUPS = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The APIs of share groups (KIP-932): a broker without them lists none."""
OF_TRANSACTIONS_2 = frozenset({ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT})
"""The APIs whose newer versions are those of transactions of version 2 (KIP-890), which a cluster may have too."""

_ROWS = (
    _api(ApiKey.PRODUCE, range(0, 13), 9),
    _api(ApiKey.FETCH, range(0, 18), 12),
    _api(ApiKey.LIST_OFFSETS, range(0, 11), 6),
    _api(ApiKey.METADATA, range(0, 14), 9),
    _api(ApiKey.LEADER_AND_ISR, range(0, 8), 4, cluster_action=True),
    _api(ApiKey.STOP_REPLICA, range(0, 5), 2, cluster_action=True),
    _api(ApiKey.UPDATE_METADATA, range(0, 9), 6, cluster_action=True),
    _api(ApiKey.CONTROLLED_SHUTDOWN, range(0, 4), 3, cluster_action=True),
    _api(ApiKey.OFFSET_COMMIT, range(0, 10), 8),
    _api(ApiKey.OFFSET_FETCH, range(0, 10), 6),
    _api(ApiKey.FIND_COORDINATOR, range(0, 7), 3),
    _api(ApiKey.JOIN_GROUP, range(0, 10), 6),
    _api(ApiKey.HEARTBEAT, range(0, 5), 4),
    _api(ApiKey.LEAVE_GROUP, range(0, 6), 4),
    _api(ApiKey.SYNC_GROUP, range(0, 6), 4),
    _api(ApiKey.DESCRIBE_GROUPS, range(0, 7), 5),
    _api(ApiKey.LIST_GROUPS, range(0, 6), 3),
    _api(ApiKey.SASL_HANDSHAKE, range(0, 2), None),
    _api(ApiKey.API_VERSIONS, range(0, 5), 3),
    _api(ApiKey.CREATE_TOPICS, range(0, 8), 5),
    _api(ApiKey.DELETE_TOPICS, range(0, 7), 4),
    _api(ApiKey.DELETE_RECORDS, range(0, 3), 2),
    _api(ApiKey.INIT_PRODUCER_ID, range(0, 6), 2),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, range(0, 5), 4),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, range(0, 6), 3),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, range(0, 5), 3),
    _api(ApiKey.END_TXN, range(0, 6), 3),
    _api(ApiKey.WRITE_TXN_MARKERS, range(0, 2), 1, cluster_action=True),
    _api(ApiKey.TXN_OFFSET_COMMIT, range(0, 6), 3),
    _api(ApiKey.DESCRIBE_ACLS, range(0, 4), 2),
    _api(ApiKey.CREATE_ACLS, range(0, 4), 2),
    _api(ApiKey.DELETE_ACLS, range(0, 4), 2),
    _api(ApiKey.DESCRIBE_CONFIGS, range(0, 5), 4),
    _api(ApiKey.ALTER_CONFIGS, range(0, 3), 2),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, range(0, 3), 2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, range(0, 5), 2),
    _api(ApiKey.SASL_AUTHENTICATE, range(0, 3), 2),
    _api(ApiKey.CREATE_PARTITIONS, range(0, 4), 2),
    _api(ApiKey.CREATE_DELEGATION_TOKEN, range(0, 4), 2),
    _api(ApiKey.RENEW_DELEGATION_TOKEN, range(0, 3), 2),
    _api(ApiKey.EXPIRE_DELEGATION_TOKEN, range(0, 3), 2),
    _api(ApiKey.DESCRIBE_DELEGATION_TOKEN, range(0, 4), 2),
    _api(ApiKey.DELETE_GROUPS, range(0, 3), 2),
    _api(ApiKey.ELECT_LEADERS, range(0, 3), 2),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, range(0, 2), 1),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, range(0, 1), 0),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, range(0, 1), 0),
    _api(ApiKey.OFFSET_DELETE, range(0, 1), None),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, range(0, 2), 1),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, range(0, 2), 1),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, range(0, 1), 0),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, range(0, 1), 0),
    _api(ApiKey.ALTER_PARTITION, range(0, 4), 0, cluster_action=True),
    _api(ApiKey.UPDATE_FEATURES, range(0, 2), 0, cluster_action=True),
    _api(ApiKey.ENVELOPE, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.DESCRIBE_CLUSTER, range(0, 3), 0),
    _api(ApiKey.DESCRIBE_PRODUCERS, range(0, 1), 0),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, range(0, 1), 0),
    _api(ApiKey.LIST_TRANSACTIONS, range(0, 3), 0),
    _api(ApiKey.ALLOCATE_PRODUCER_IDS, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, range(0, 2), 0),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, range(0, 2), 0),
    _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, range(0, 1), 0),
    _api(ApiKey.PUSH_TELEMETRY, range(0, 1), 0),
    _api(ApiKey.LIST_CONFIG_RESOURCES, range(0, 2), 0),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, range(0, 1), 0),
    _api(ApiKey.SHARE_GROUP_HEARTBEAT, range(1, 2), 0),
    _api(ApiKey.SHARE_GROUP_DESCRIBE, range(1, 2), 0),
    _api(ApiKey.SHARE_FETCH, range(1, 2), 0),
    _api(ApiKey.SHARE_ACKNOWLEDGE, range(1, 2), 0),
    _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.READ_SHARE_GROUP_STATE, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.WRITE_SHARE_GROUP_STATE, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.DELETE_SHARE_GROUP_STATE, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, range(0, 1), 0, cluster_action=True),
    _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, range(0, 1), 0),
    _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, range(0, 1), 0),
    _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, range(0, 1), 0),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ROWS})
