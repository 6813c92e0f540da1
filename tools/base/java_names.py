"""Java details in the output of Kafka's tools that scripts and people rely on.

These are the names of exception classes, the iteration order of hash maps and sets, and the escapes of Java's JSON
library.

Owns these three. Must not know any tool.
"""

import re
import struct
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from protocol.errors import ErrorCode, KafkaError

K = TypeVar("K", bound=Hashable)

_INT32_MASK: Final = 0xFFFFFFFF
_SMALL_SET_SIZE_MAX: Final = 4  # Scala has a separate class for each size up to this
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|.)")
_PACKAGE = "org.apache.kafka.common.errors"
_IRREGULAR: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
}


def exception_text(error: KafkaError) -> str:
    """Return an error as Java prints its exception: `org.apache.kafka.common.errors.SomeException: message`."""
    return f"{exception_name(error.code)}: {error.message}"


def exception_name(code: ErrorCode) -> str:
    """Return the name of the Java class for an error code, with its package."""
    return f"{_PACKAGE}.{exception_class(code)}"


def exception_class(code: ErrorCode) -> str:
    """Return the name of the Java class for an error code."""
    if code in _IRREGULAR:
        return _IRREGULAR[code]
    words = code.name.removesuffix("_EXCEPTION").split("_")
    return "".join(word.capitalize() for word in words) + "Exception"


def hash_map_order(keys: Iterable[K], *, capacity: int = 16, hash_code: Callable[[K], int] | None = None) -> list[K]:
    """Return keys in the order of a java.util.HashMap that was created for `capacity` entries.

    `hash_code` is the keys' own in Java; without one they are strings. Keys that share a bucket keep their given order.
    """
    given = list(keys)
    buckets = 1
    while buckets < capacity or len(given) > buckets * 3 // 4:
        buckets *= 2
    return sorted(given, key=lambda key: _spread(_hash_code(key, hash_code)) % buckets)


def hash_set_order(sets: Sequence[Collection[K]], *, hash_code: Callable[[K], int]) -> list[K]:
    """Return keys in the order of a scala.collection.mutable.HashSet after adding these immutable sets in order.

    The entries of a bucket are in the order of their hashes.
    """
    buckets = _hash_set_buckets([len(keys) for keys in sets])
    hashes = {key: _spread(hash_code(key)) for keys in sets for key in keys}
    return sorted(hashes, key=lambda key: (hashes[key] % buckets, _signed(hashes[key])))


def _hash_set_buckets(sizes: Iterable[int]) -> int:
    """Return the size of such a set's table. It grows for each set as a whole, and for single entries of small sets.

    Scala adds larger sets together with their hashes, on a code path that does not check the table's size.
    """
    buckets, count = 16, 0
    for size in sizes:
        while buckets < (size + 1) * 4 // 3:
            buckets *= 2
        for number in range(count, count + size if size <= _SMALL_SET_SIZE_MAX else count):
            if number + 1 >= buckets * 3 // 4:
                buckets *= 2
        count += size
    return buckets


def topic_partition_hash(partition: tuple[str, int]) -> int:
    """Return the hashCode of a TopicPartition."""
    topic, index = partition
    return 31 * (31 + index) + string_hash(topic)


def string_hash(text: str) -> int:
    """Return the hashCode of a String, as an unsigned number."""
    code = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        code = (31 * code + unit) & _INT32_MASK
    return code


def json_text(value: object) -> str:
    """Return JSON without blanks, in the given order, with control characters escaped as by Java's library."""
    import json  # most tools print none

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda match: "\\u" + match[1].upper() if match[1] else match[0], text)


def _hash_code(key: K, hash_code: Callable[[K], int] | None) -> int:
    return string_hash(str(key)) if hash_code is None else hash_code(key)


def _spread(code: int) -> int:
    """Fold the high bits of a hash code into the low ones, which select the bucket."""
    code &= _INT32_MASK
    return code ^ code >> 16


def _signed(code: int) -> int:
    return code - (_INT32_MASK + 1) if code > _INT32_MASK >> 1 else code
