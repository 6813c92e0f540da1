"""The requests and responses of ZooKeeper's client protocol, as values.

Owns their names, codes and fields, in the order in which jute writes them. Must not know bytes (`jute`) or what a
request does (`coordinator`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Code(IntEnum):
    """The types of requests."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    """Only within a multi."""
    MULTI = 14
    CREATE2 = 15
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SET_WATCHES2 = 105
    CLOSE_SESSION = -11


CODE_SASL: Final = 102
REFUSED_CODES: Final = {
    16: "reconfig",
    17: "checkWatches",
    18: "removeWatches",
    19: "createContainer",
    20: "deleteContainer",
    21: "createTTL",
    CODE_SASL: "sasl",
    103: "getEphemerals",
    104: "getAllChildrenNumber",
    106: "addWatch",
    107: "whoAmI",
}
"""Requests of ZooKeeper that this server does not serve, by their names for the log."""


class Error(IntEnum):
    """The codes of ZooKeeper's responses."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    INVALID_ACL = -114
    AUTH_FAILED = -115


class Event(IntEnum):
    """The types of watch events."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4


class Flag(IntEnum):
    """The kinds of nodes that a create request names. `CONTAINER` and the higher ones are refused."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6


XID_NOTIFICATION: Final = -1
XID_PING: Final = -2


class Acl(NamedTuple):
    """What one identity may do; `permissions` is a set of bits (`access.Permission`)."""

    permissions: int
    scheme: str
    id: str


class Stat(NamedTuple):
    """A node's metadata as clients see it."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int


class ConnectRequest(NamedTuple):
    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None
    """None if the client is older than the field; then the response lacks it as well."""


class ConnectResponse(NamedTuple):
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None


class CreateRequest(NamedTuple):
    path: str
    data: bytes | None
    acl: list[Acl] | None
    flags: int


class DeleteRequest(NamedTuple):
    path: str
    version: int


class CheckRequest(NamedTuple):
    path: str
    version: int


class ReadRequest(NamedTuple):
    """exists, getData, getChildren, getChildren2."""

    path: str
    watch: bool


class PathRequest(NamedTuple):
    """getACL, sync."""

    path: str


class SetDataRequest(NamedTuple):
    path: str
    data: bytes | None
    version: int


class SetAclRequest(NamedTuple):
    path: str
    acl: list[Acl] | None
    version: int


class AuthRequest(NamedTuple):
    kind: int
    scheme: str
    credentials: bytes | None


class SetWatchesRequest(NamedTuple):
    relative_zxid: int
    data: list[str] | None
    exist: list[str] | None
    children: list[str] | None


class SetWatches2Request(NamedTuple):
    relative_zxid: int
    data: list[str] | None
    exist: list[str] | None
    children: list[str] | None
    persistent: list[str] | None
    persistent_recursive: list[str] | None


class EmptyRequest(NamedTuple):
    """ping, closeSession."""


class MultiRequest(NamedTuple):
    """multi and multiRead: each operation with its code."""

    operations: list[tuple[int, Operation]]


Operation = CreateRequest | DeleteRequest | SetDataRequest | CheckRequest | ReadRequest
Request = (
    Operation
    | PathRequest
    | SetAclRequest
    | AuthRequest
    | SetWatchesRequest
    | SetWatches2Request
    | EmptyRequest
    | MultiRequest
)


class Result(NamedTuple):
    """The response to one operation of a multi or multiRead. With an error there are no values."""

    code: int
    error: int
    values: tuple[object, ...]
