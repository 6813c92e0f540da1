"""Names of the metrics of requests, of those APIs that have more than one.

Owns the names, so that a start needs no handler for them. Must not know how a request gets its name: the handler does.
"""

from collections.abc import Mapping
from types import MappingProxyType

FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"
ADD_PARTITIONS, VERIFY_PARTITIONS = "AddPartitionsToTxn", "AddPartitionsToTxnVerification"

BESIDE_API: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {1: (FETCH_CONSUMER, FETCH_FOLLOWER), 24: (ADD_PARTITIONS, VERIFY_PARTITIONS)}
)
"""By API key, the names that its requests may have beside that of the API."""
