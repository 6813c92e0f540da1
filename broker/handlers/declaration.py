"""What is true of one API beside its messages. Each handler module declares it as `API`.

Owns the form of a declaration. Dispatch, budgets, authorization, quotas, admission and docs/security.md read the
declarations; none of them names an API to decide about it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple, cast

from broker.security.acls import Operation, ResourceType
from protocol.api_key import ApiKey

CONTROLLER, METADATA_STORE, COORDINATOR_LOG = "controller", "metadata store", "coordinator log"
MEMBERS, REPLICAS = "members", "replicas"


class Elements(Enum):
    """How many lists, list elements and tagged fields the requests of an API may have."""

    FEW = "what one user or one transaction changes"
    BULK = "every topic, partition or group of a large cluster; the handler works in slices"
    CONTROL = "every partition of a broker; only brokers may send it"


class Permissions(NamedTuple):
    """What an API needs; None: no permission of this kind.

    A check of the cluster, of a group or of a transactional id concerns the whole request, unless the request names
    several of them; then each has its own result. A check of topics always has one result per topic.
    """

    cluster: Operation | None = None
    """On the cluster, for the whole request."""
    transactional_id: Operation | None = None
    group: Operation | None = None
    topic: Operation | None = None
    cluster_instead: Operation | None = None
    """On the cluster, in place of the permissions on each resource."""
    note: str = ""


class Each(NamedTuple):
    """Where a request lists resources that each have a result."""

    resource_type: ResourceType
    items: str
    """The field of the request."""
    results: str
    """The field of the response."""
    name_of: Callable[[Any], str] = attrgetter("name")
    """Returns the resource's name of an item."""


def itself(item: Any) -> str:
    """Return an item that is its name."""
    return cast(str, item)


class Names(NamedTuple):
    """Where the requests of an API name their resources."""

    group: str = ""
    transactional_id: str = ""
    each: Each | None = None


class PartitionChanges(NamedTuple):
    """What the quota of changes to partitions needs to know of an API that creates or deletes some."""

    strict_from: int
    """The first version whose clients know the error code of the quota."""
    items: Callable[[int], str]
    """Returns the field of the request that lists the changes, by version."""
    results: str
    """The field of the response."""
    count_of: Callable[[Any, Any], int]
    """Returns how many partitions an item creates or deletes, given the services; 0 if it is going to fail."""
    key_of: Callable[[Any], Hashable] = attrgetter("name")
    """Returns what an item and its result have in common, of either."""


class Declaration(NamedTuple):
    """What is true of one API."""

    key: ApiKey
    permissions: Permissions = Permissions()
    names: Names = Names()
    waits_for: str = ""
    """What an awaited response waits for; this counts as remote time. It is empty if the handler names its waits
    itself, and if its responses wait only for disks and threads of this broker, which is local time."""
    elements: Elements = Elements.FEW
    is_served_before_login: bool = False
    """Whether everybody may send it, also before the broker serves clients."""
    is_served_before_clients: bool = False
    """Whether it is served as soon as the broker listens, because the controller sends it."""
    may_be_long: bool = False
    """Whether a request may have more than `SIZE_IN_STEPS_MAX` bytes. Its handler works in steps of one element."""
    has_records: bool = False
    """Whether its requests carry records, which are not copied. They may have any size, and are served to the end also
    if their client has closed its connection, because it expects no response."""
    partition_changes: PartitionChanges | None = None
