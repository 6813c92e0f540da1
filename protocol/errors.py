"""Error codes of responses, how clients react to them, and the exceptions that carry them.

Owns the table of codes. There are three separate families of failures: `Malformed` (the peer's bytes are wrong, its
connection is closed), `KafkaError` (it becomes the error code of one item or of a response) and any other exception (a
defect of the broker). Must not know which code raises them or responds.

Invariants: every member of `ErrorCode` has exactly one row in `ERRORS`; a code that makes clients refresh their
metadata is also retriable.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

E = TypeVar("E", bound=Exception)


class ErrorCode(IntEnum):
    """All codes of the protocol, including those that appear only in logs and tools."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCode | None":
        """A peer may be newer and send a code that does not exist here: to clients of Kafka that is this one."""
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None


class ErrorRow(NamedTuple):
    """The properties of a code: how clients react, and its default message."""

    code: ErrorCode
    retriable: bool
    refresh_metadata: bool
    message: str


class Malformed(Exception):  # noqa: N818 - it describes the bytes
    """The peer's bytes violate the protocol. There is no response: the connection is closed."""


class KafkaError(Exception):
    """A failure with an error code, which a response can carry.

    `message` is shown to the client if the response has a field for it: name the value and what was expected. Without
    it, the code's default message is used.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = ERRORS[code].message if message is None else message
        super().__init__(f"{code.name}: {self.message}")


def without_frames(error: E) -> E:
    """Return a copy of `error` without traceback, cause and context, in which form an exception may be stored.

    A traceback refers to the frames that the exception passed, and so to all their values. If one of these frames
    stores it, that is a reference cycle, which only the cyclic garbage collector frees.
    """
    arguments = error.__reduce__()[1]  # for an OSError more than its `args`
    copy = type(error).__new__(type(error), *arguments)
    copy.__dict__.update(error.__dict__)
    return copy


def _final(code: ErrorCode, message: str) -> ErrorRow:
    """A code for which a retry has the same result."""
    return ErrorRow(code, retriable=False, refresh_metadata=False, message=message)


def _retry(code: ErrorCode, message: str) -> ErrorRow:
    """A transient code: clients retry with the same broker."""
    return ErrorRow(code, retriable=True, refresh_metadata=False, message=message)


def _refresh(code: ErrorCode, message: str) -> ErrorRow:
    """A code that means outdated metadata: clients refresh it, then retry."""
    return ErrorRow(code, retriable=True, refresh_metadata=True, message=message)


_ROWS = (
    _final(ErrorCode.UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error when processing the request."),
    _final(ErrorCode.NONE, ""),
    _final(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    _retry(
        ErrorCode.CORRUPT_MESSAGE,
        "This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, "
        "or is otherwise corrupt.",
    ),
    _refresh(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
    _final(ErrorCode.INVALID_FETCH_SIZE, "The requested fetch size is invalid."),
    _refresh(
        ErrorCode.LEADER_NOT_AVAILABLE,
        "There is no leader for this topic-partition as we are in the middle of a leadership election.",
    ),
    _refresh(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "For requests intended only for the leader, this error indicates that the broker is not the current "
        "leader. For requests intended for any replica, this error indicates that the broker is not a replica of "
        "the topic partition.",
    ),
    _retry(ErrorCode.REQUEST_TIMED_OUT, "The request timed out."),
    _final(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is not available."),
    _refresh(
        ErrorCode.REPLICA_NOT_AVAILABLE,
        "The replica is not available for the requested topic-partition. Produce/Fetch requests and other "
        "requests intended only for the leader or follower return NOT_LEADER_OR_FOLLOWER if the broker is not a "
        "replica of the topic-partition.",
    ),
    _final(
        ErrorCode.MESSAGE_TOO_LARGE,
        "The request included a message larger than the max message size the server will accept.",
    ),
    _final(ErrorCode.STALE_CONTROLLER_EPOCH, "The controller moved to another broker."),
    _final(ErrorCode.OFFSET_METADATA_TOO_LARGE, "The metadata field of the offset request was too large."),
    _refresh(ErrorCode.NETWORK_EXCEPTION, "The server disconnected before a response was received."),
    _retry(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading and hence can't process requests."),
    _retry(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."),
    _retry(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator."),
    _final(ErrorCode.INVALID_TOPIC_EXCEPTION, "The request attempted to perform an operation on an invalid topic."),
    _final(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        "The request included message batch larger than the configured segment size on the server.",
    ),
    _retry(
        ErrorCode.NOT_ENOUGH_REPLICAS, "Messages are rejected since there are fewer in-sync replicas than required."
    ),
    _retry(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        "Messages are written to the log, but to fewer in-sync replicas than required.",
    ),
    _final(ErrorCode.INVALID_REQUIRED_ACKS, "Produce request specified an invalid value for required acks."),
    _final(ErrorCode.ILLEGAL_GENERATION, "Specified group generation id is not valid."),
    _final(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        "The group member's supported protocols are incompatible with those of existing members or first group "
        "member tried to join with empty protocol type or empty protocol list.",
    ),
    _final(ErrorCode.INVALID_GROUP_ID, "The configured groupId is invalid."),
    _final(ErrorCode.UNKNOWN_MEMBER_ID, "The coordinator is not aware of this member."),
    _final(
        ErrorCode.INVALID_SESSION_TIMEOUT,
        "The session timeout is not within the range allowed by the broker (as configured by "
        "group.min.session.timeout.ms and group.max.session.timeout.ms).",
    ),
    _final(ErrorCode.REBALANCE_IN_PROGRESS, "The group is rebalancing, so a rejoin is needed."),
    _final(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "The committing offset data size is not valid."),
    _final(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    _final(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    _final(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    _final(ErrorCode.INVALID_TIMESTAMP, "The timestamp of the message is out of acceptable range."),
    _final(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "The broker does not support the requested SASL mechanism."),
    _final(ErrorCode.ILLEGAL_SASL_STATE, "Request is not valid given the current SASL state."),
    _final(ErrorCode.UNSUPPORTED_VERSION, "The version of API is not supported."),
    _final(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic with this name already exists."),
    _final(ErrorCode.INVALID_PARTITIONS, "Number of partitions is below 1."),
    _final(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor is below 1 or larger than the number of available brokers.",
    ),
    _final(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Replica assignment is invalid."),
    _final(ErrorCode.INVALID_CONFIG, "Configuration is invalid."),
    _retry(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster."),
    _final(
        ErrorCode.INVALID_REQUEST,
        "This most likely occurs because of a request being malformed by the client library or the message was "
        "sent to an incompatible broker. See the broker logs for more details.",
    ),
    _final(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        "The message format version on the broker does not support the request.",
    ),
    _final(ErrorCode.POLICY_VIOLATION, "Request parameters do not satisfy the configured policy."),
    _final(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "The broker received an out of order sequence number."),
    _final(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "The broker received a duplicate sequence number."),
    _final(ErrorCode.INVALID_PRODUCER_EPOCH, "Producer attempted to produce with an old epoch."),
    _final(ErrorCode.INVALID_TXN_STATE, "The producer attempted a transactional operation in an invalid state."),
    _final(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "The producer attempted to use a producer id which is not currently assigned to its transactional id.",
    ),
    _final(
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        "The transaction timeout is larger than the maximum value allowed by the broker (as configured by "
        "transaction.max.timeout.ms).",
    ),
    _retry(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        "The producer attempted to update a transaction while another concurrent operation on the same "
        "transaction was ongoing.",
    ),
    _final(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator "
        "for a given producer.",
    ),
    _final(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
    _final(ErrorCode.SECURITY_DISABLED, "Security features are disabled."),
    _final(
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        "The broker did not attempt to execute this operation. This may happen for batched RPCs where some "
        "operations in the batch failed, causing the broker to respond without trying the rest.",
    ),
    _refresh(ErrorCode.KAFKA_STORAGE_ERROR, "Disk error when trying to access log file on the disk."),
    _final(ErrorCode.LOG_DIR_NOT_FOUND, "The user-specified log directory is not found in the broker config."),
    _final(ErrorCode.SASL_AUTHENTICATION_FAILED, "SASL Authentication failed."),
    _final(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        "This exception is raised by the broker if it could not locate the producer metadata associated with the "
        "producerId in question. This could happen if, for instance, the producer's records were deleted because "
        "their retention time had elapsed. Once the last records of the producerId are removed, the producer's "
        "metadata is removed from the broker, and future appends by the producer will return this exception.",
    ),
    _final(ErrorCode.REASSIGNMENT_IN_PROGRESS, "A partition reassignment is in progress."),
    _final(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled."),
    _final(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found on server."),
    _final(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "Specified Principal is not valid Owner/Renewer."),
    _final(
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
        "authenticated channels.",
    ),
    _final(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed."),
    _final(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired."),
    _final(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported."),
    _final(ErrorCode.NON_EMPTY_GROUP, "The group is not empty."),
    _final(ErrorCode.GROUP_ID_NOT_FOUND, "The group id does not exist."),
    _retry(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "The fetch session ID was not found."),
    _retry(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "The fetch session epoch is invalid."),
    _refresh(
        ErrorCode.LISTENER_NOT_FOUND,
        "There is no listener on the leader broker that matches the listener on which metadata request was processed.",
    ),
    _final(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."),
    _refresh(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch in the request is older than the epoch on the broker."),
    _retry(ErrorCode.UNKNOWN_LEADER_EPOCH, "The leader epoch in the request is newer than the epoch on the broker."),
    _final(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "The requesting client does not support the compression type of given partition.",
    ),
    _final(ErrorCode.STALE_BROKER_EPOCH, "Broker epoch has changed."),
    _retry(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        "The leader high watermark has not caught up from a recent leader election so the offsets cannot be "
        "guaranteed to be monotonically increasing.",
    ),
    _final(
        ErrorCode.MEMBER_ID_REQUIRED,
        "The group member needs to have a valid member id before actually entering a consumer group.",
    ),
    _refresh(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    _final(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group has reached its max size."),
    _final(
        ErrorCode.FENCED_INSTANCE_ID,
        "The broker rejected this static consumer since another consumer with the same group.instance.id has "
        "registered with a different member.id.",
    ),
    _refresh(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
    _refresh(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
    _final(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
    _final(
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    _final(ErrorCode.INVALID_RECORD, "This record has failed the validation on broker and hence will be rejected."),
    _retry(ErrorCode.UNSTABLE_OFFSET_COMMIT, "There are unstable offsets that need to be cleared."),
    _retry(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."),
    _final(
        ErrorCode.PRODUCER_FENCED,
        "There is a newer producer with the same transactionalId which fences the current one.",
    ),
    _final(ErrorCode.RESOURCE_NOT_FOUND, "A request illegally referred to a resource that does not exist."),
    _final(ErrorCode.DUPLICATE_RESOURCE, "A request illegally referred to the same resource twice."),
    _final(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Requested credential would not meet criteria for acceptability."),
    _final(
        ErrorCode.INCONSISTENT_VOTER_SET,
        "Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters.",
    ),
    _final(ErrorCode.INVALID_UPDATE_VERSION, "The given update version was invalid."),
    _final(ErrorCode.FEATURE_UPDATE_FAILED, "Unable to update finalized features due to an unexpected server error."),
    _final(
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        "Request principal deserialization failed during forwarding. This indicates an internal error on the "
        "broker cluster security setup.",
    ),
    _final(ErrorCode.SNAPSHOT_NOT_FOUND, "Requested snapshot was not found."),
    _final(
        ErrorCode.POSITION_OUT_OF_RANGE,
        "Requested position is not greater than or equal to zero, and less than the size of the snapshot.",
    ),
    _refresh(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
    _final(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "This broker ID is already in use."),
    _final(ErrorCode.BROKER_ID_NOT_REGISTERED, "The given broker ID was not registered."),
    _refresh(ErrorCode.INCONSISTENT_TOPIC_ID, "The log's topic ID did not match the topic ID in the request."),
    _final(ErrorCode.INCONSISTENT_CLUSTER_ID, "The clusterId in the request does not match that found on the server."),
    _final(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "The transactionalId could not be found."),
    _retry(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "The fetch session encountered inconsistent topic ID usage."),
    _final(ErrorCode.INELIGIBLE_REPLICA, "The new ISR contains at least one ineligible replica."),
    _final(
        ErrorCode.NEW_LEADER_ELECTED,
        "The AlterPartition request successfully updated the partition state but the leader has changed.",
    ),
    _final(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "The requested offset is moved to tiered storage."),
    _final(
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The member epoch is fenced by the group coordinator. The member must abandon all its partitions and rejoin.",
    ),
    _final(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "The instance ID is still used by another member in the consumer group. That member must leave first.",
    ),
    _final(ErrorCode.UNSUPPORTED_ASSIGNOR, "The assignor or its version range is not supported by the consumer group."),
    _final(
        ErrorCode.STALE_MEMBER_EPOCH,
        "The member epoch is stale. The member must retry after receiving its updated member epoch via the "
        "ConsumerGroupHeartbeat API.",
    ),
    _final(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of the wrong type."),
    _final(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "This endpoint type is not supported yet."),
    _final(ErrorCode.UNKNOWN_CONTROLLER_ID, "This controller ID is not known."),
    _final(
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        "Client sent a push telemetry request with an invalid or outdated subscription ID.",
    ),
    _final(
        ErrorCode.TELEMETRY_TOO_LARGE,
        "Client sent a push telemetry request larger than the maximum size the broker will accept.",
    ),
    _final(ErrorCode.INVALID_REGISTRATION, "The controller has considered the broker registration to be invalid."),
    _final(
        ErrorCode.TRANSACTION_ABORTABLE,
        "The server encountered an error with the transaction. The client can abort the transaction to continue "
        "using this transactional ID.",
    ),
    _final(
        ErrorCode.INVALID_RECORD_STATE,
        "The record state is invalid. The acknowledgement of delivery could not be completed.",
    ),
    _retry(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found."),
    _retry(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid."),
    _final(
        ErrorCode.FENCED_STATE_EPOCH,
        "The share coordinator rejected the request because the share-group state epoch did not match.",
    ),
    _final(ErrorCode.INVALID_VOTER_KEY, "The voter key doesn't match the receiving replica's key."),
    _final(ErrorCode.DUPLICATE_VOTER, "The voter is already part of the set of voters."),
    _final(ErrorCode.VOTER_NOT_FOUND, "The voter is not part of the set of voters."),
    _final(ErrorCode.INVALID_REGULAR_EXPRESSION, "The regular expression is not valid."),
    _retry(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "The limit of share sessions has been reached."),
)

ERRORS: Mapping[ErrorCode, ErrorRow] = MappingProxyType({row.code: row for row in _ROWS})
