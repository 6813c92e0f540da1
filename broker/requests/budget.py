"""How much of the broker one request may use.

Owns the limits. Dispatch applies them; must not know requests.

A peer announces many things in few bytes: an element of a list takes one or two bytes and becomes an object of about a
hundred. So the elements of a request are counted while it is decoded. A request with more than `ELEMENTS_ON_LOOP_MAX`
is decoded, and its response encoded, in a thread, so that the other connections are served at the same time. A request
with more than `elements_max` closes its connection.
"""

from __future__ import annotations

ELEMENTS_AT_ONCE_MAX = 50
"""Lists, list elements and tagged fields of a request that is served as soon as it has arrived. A request with more
shares the slice of works that are new in this turn of the event loop with those of all other connections: what arrives
when the slice is over waits in the queue of works."""

ELEMENTS_ON_LOOP_MAX = 4_000
"""Lists, list elements and tagged fields that are decoded, or encoded, in one step on the event loop: about 2 ms."""

# An element of a request takes about 75 bytes of memory, and its part of the response up to 300. The largest requests
# of use are within these limits: offsets of 100,000 partitions, 18 bytes each; descriptions of 60,000 groups.
_BULK_ELEMENTS_BASE = 64_000
_FRAME_SIZE_PER_BULK_ELEMENT = 32
_ELEMENTS_MAX = 10_000

BULK_APIS = frozenset(
    {
        0,  # Produce
        1,  # Fetch
        2,  # ListOffsets
        3,  # Metadata
        8,  # OffsetCommit
        9,  # OffsetFetch
        10,  # FindCoordinator
        15,  # DescribeGroups
        19,  # CreateTopics
        21,  # DeleteRecords
        23,  # OffsetForLeaderEpoch
        27,  # WriteTxnMarkers
        28,  # TxnOffsetCommit
        32,  # DescribeConfigs
        33,  # AlterConfigs
        34,  # AlterReplicaLogDirs
        35,  # DescribeLogDirs
        42,  # DeleteGroups
        43,  # ElectLeaders
        44,  # IncrementalAlterConfigs
        45,  # AlterPartitionReassignments
        46,  # ListPartitionReassignments
        47,  # OffsetDelete
        61,  # DescribeProducers
        65,  # DescribeTransactions
    }
)
"""APIs whose requests may name everything that a large cluster has: each topic, each partition, each group. Their
handlers work in slices. MirrorMaker 2 alters the configurations of all topics that it replicates in one request, some
thirty of each. Requests of the others name what one person or one transaction changes."""

LARGE_REQUESTS_MAX = 2
"""Requests with more elements than `ELEMENTS_ON_LOOP_MAX` that are decoded and served at a time, of all connections.
The others wait. A request that waits for something else, such as data or replicas, does not count."""

REQUESTS_IN_TURN_MAX = 16
"""Requests that waited for their turn in the queue of works and are decoded and served at a time, of all connections.
Decoded, one takes about a megabyte."""

RESPONSE_SIZE_MAX = 100 << 20
"""Bytes of a response, as many as socket.request.max.bytes lets a request have; clients refuse longer ones."""


def elements_max(api_key: int, frame_size: int) -> int:
    """Lists, list elements and tagged fields that a request of this API and of `frame_size` bytes may have."""
    if api_key not in BULK_APIS:
        return _ELEMENTS_MAX
    return _BULK_ELEMENTS_BASE + frame_size // _FRAME_SIZE_PER_BULK_ELEMENT
