"""What Kafka's own tools show of being Java programs, where scripts and eyes rely on it.

Two things leak into their output: the names of exception classes, and the order in which a HashMap hands out its keys.
"""

from collections.abc import Iterable, Mapping

from protocol.errors import ErrorCode, KafkaError

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
    """An error as Java prints the exception for it: `org.apache.kafka.common.errors.SomeException: message`."""
    return f"{_PACKAGE}.{exception_class(error.code)}: {error.message}"


def exception_class(code: ErrorCode) -> str:
    """The name of the Java class that stands for an error code."""
    if code in _IRREGULAR:
        return _IRREGULAR[code]
    words = code.name.removesuffix("_EXCEPTION").split("_")
    return "".join(word.capitalize() for word in words) + "Exception"


def hash_map_order(keys: Iterable[str], *, capacity: int = 16) -> list[str]:
    """Keys in the order of a java.util.HashMap that was made for `capacity` entries.

    Keys that share a bucket keep the order in which they are given here.
    """
    given = list(keys)
    buckets = 1
    while buckets < capacity or len(given) > buckets * 3 // 4:
        buckets *= 2
    return sorted(given, key=lambda key: _hash(key) % buckets)


def _hash(text: str) -> int:
    """java.lang.String.hashCode, with the high bits folded in as HashMap does."""
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code ^ code >> 16
