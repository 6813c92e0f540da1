"""The permissions that each API needs: one table, from which checks, documentation and tests derive.

Owns the table (docs/security.md shows it). Must not know how a check is made, or where a request has its names.

A check of the cluster, of a group or of a transactional id concerns the whole request, unless the request names several
of them; then each has its own result. A check of topics always has one result per topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from broker.security.acls import Operation, ResourceType
from protocol.errors import ErrorCode

DENIED: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code of a denied request by the type of the resource."""


class Permissions(NamedTuple):
    """What an API needs; None: no permission of this kind."""

    cluster: Operation | None = None
    """On the cluster, for the whole request."""
    transactional_id: Operation | None = None
    group: Operation | None = None
    topic: Operation | None = None
    cluster_instead: Operation | None = None
    """On the cluster, in place of the permissions on each resource."""
    note: str = ""


_NONE = Permissions()
_CLUSTER_ACTION = Permissions(cluster=Operation.CLUSTER_ACTION)
_READ_GROUP = Permissions(group=Operation.READ)
_ALTER_CLUSTER = Permissions(cluster=Operation.ALTER)
_DESCRIBE_CLUSTER = Permissions(cluster=Operation.DESCRIBE)
_ALTER_CONFIGS = Permissions(topic=Operation.ALTER_CONFIGS, note="AlterConfigs on the cluster for brokers and loggers")

PERMISSIONS: Mapping[int, Permissions] = MappingProxyType(
    {
        0: Permissions(topic=Operation.WRITE, transactional_id=Operation.WRITE),
        1: Permissions(topic=Operation.READ, note="ClusterAction on the cluster for followers"),
        2: Permissions(topic=Operation.DESCRIBE),
        3: Permissions(topic=Operation.DESCRIBE, note="to create a topic: Create on the topic or the cluster"),
        4: _CLUSTER_ACTION,
        5: _CLUSTER_ACTION,
        6: _CLUSTER_ACTION,
        7: _CLUSTER_ACTION,
        8: Permissions(group=Operation.READ, topic=Operation.READ),
        9: Permissions(group=Operation.DESCRIBE, topic=Operation.DESCRIBE),
        10: Permissions(group=Operation.DESCRIBE, transactional_id=Operation.DESCRIBE, note="by the kind of the key"),
        11: _READ_GROUP,
        12: _READ_GROUP,
        13: _READ_GROUP,
        14: _READ_GROUP,
        15: Permissions(group=Operation.DESCRIBE),
        16: Permissions(
            group=Operation.DESCRIBE, cluster_instead=Operation.DESCRIBE, note="other groups are not listed"
        ),
        17: _NONE,
        18: _NONE,
        19: Permissions(
            topic=Operation.CREATE,
            cluster_instead=Operation.CREATE,
            note="DescribeConfigs on the topic to get its configuration",
        ),
        20: Permissions(topic=Operation.DELETE, note="by topic id also Describe on the topic"),
        21: Permissions(topic=Operation.DELETE),
        22: Permissions(
            transactional_id=Operation.WRITE,
            note="without transactional id: IdempotentWrite on the cluster, or Write on any topic",
        ),
        23: Permissions(topic=Operation.DESCRIBE, cluster_instead=Operation.CLUSTER_ACTION),
        24: Permissions(
            topic=Operation.WRITE, transactional_id=Operation.WRITE, note="from version 4 ClusterAction on the cluster"
        ),
        25: Permissions(transactional_id=Operation.WRITE, group=Operation.READ),
        26: Permissions(transactional_id=Operation.WRITE),
        27: Permissions(cluster=Operation.CLUSTER_ACTION, note="or Alter on the cluster"),
        28: Permissions(transactional_id=Operation.WRITE, group=Operation.READ, topic=Operation.READ),
        29: _DESCRIBE_CLUSTER,
        30: _ALTER_CLUSTER,
        31: _ALTER_CLUSTER,
        32: Permissions(
            topic=Operation.DESCRIBE_CONFIGS, note="DescribeConfigs on the cluster for brokers and loggers"
        ),
        33: _ALTER_CONFIGS,
        34: _ALTER_CLUSTER,
        35: _DESCRIBE_CLUSTER,
        36: _NONE,
        37: Permissions(topic=Operation.ALTER),
        38: Permissions(note="CreateTokens on the user for a token of another owner"),
        39: Permissions(note="by owner, requester or renewer of the token"),
        40: Permissions(note="by owner, requester or renewer of the token"),
        41: Permissions(note="own tokens; others with Describe on the token or DescribeTokens on the user"),
        42: Permissions(group=Operation.DELETE),
        43: _ALTER_CLUSTER,
        44: _ALTER_CONFIGS,
        45: _ALTER_CLUSTER,
        46: _DESCRIBE_CLUSTER,
        47: Permissions(group=Operation.DELETE, topic=Operation.READ),
        48: Permissions(cluster=Operation.DESCRIBE_CONFIGS),
        49: Permissions(cluster=Operation.ALTER_CONFIGS),
        50: _DESCRIBE_CLUSTER,
        51: _ALTER_CLUSTER,
        56: _CLUSTER_ACTION,
        57: _ALTER_CLUSTER,
        60: _NONE,
        61: Permissions(topic=Operation.READ),
        65: Permissions(
            transactional_id=Operation.DESCRIBE, note="topics of the transaction: those with Describe are listed"
        ),
        66: Permissions(transactional_id=Operation.DESCRIBE, note="other transactions are not listed"),
        67: _CLUSTER_ACTION,
        68: _NONE,
        69: _NONE,
    }
)
