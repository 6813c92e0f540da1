"""Names of the metrics of requests, of those APIs that have more than one.

Owns the names, so that a start needs no handler for them. Must not know how a request gets its name: the handler does.
"""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.api_key import ApiKey

FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"
ADD_PARTITIONS, VERIFY_PARTITIONS = "AddPartitionsToTxn", "AddPartitionsToTxnVerification"

BESIDE_API: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        ApiKey.FETCH: (FETCH_CONSUMER, FETCH_FOLLOWER),
        ApiKey.ADD_PARTITIONS_TO_TXN: (ADD_PARTITIONS, VERIFY_PARTITIONS),
    }
)
"""By API key, the names that its requests may have beside that of the API."""
