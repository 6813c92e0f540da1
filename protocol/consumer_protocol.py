"""The subscriptions and assignments of consumers, which the broker passes on between the members of a group.

Owns the two layouts of protocol type `consumer`, each an int16 version and fields. Must not know who writes them or how
they are used.
"""

from struct import Struct as Layout
from typing import Final, TypeVar

from protocol.codec import decode, encoder
from protocol.errors import Malformed
from protocol.schema import bytes_, int32, since, stored, string, struct

PROTOCOL_TYPE: Final = "consumer"

_VERSIONS: Final = range(4)
_VERSION = Layout(">h")

T = TypeVar("T")


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: string
    partitions: list[int32]


@stored(versions=_VERSIONS, flexible=None)
class ConsumerProtocolSubscription:
    """The topics that a member subscribes to, and the partitions that it owns."""

    topics: list[string]
    user_data: bytes_ | None
    owned_partitions: list[TopicPartitions] = since(1, default=[])
    generation_id: int32 = since(2, default=-1)
    rack_id: string | None = since(3, default=None)


@stored(versions=_VERSIONS, flexible=None)
class ConsumerProtocolAssignment:
    """The partitions assigned to a member."""

    assigned_partitions: list[TopicPartitions]
    user_data: bytes_ | None


def read_subscription(data: bytes) -> tuple[int, ConsumerProtocolSubscription]:
    """Return (version, subscription).

    Raises:
        Malformed: the data are damaged, or of an unknown version.
    """
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> tuple[int, ConsumerProtocolAssignment]:
    """Return (version, assignment).

    Raises:
        Malformed: the data are damaged, or of an unknown version.
    """
    return _read(ConsumerProtocolAssignment, data)


def subscription_bytes(version: int, subscription: ConsumerProtocolSubscription) -> bytes:
    return _write(version, subscription)


def assignment_bytes(version: int, assignment: ConsumerProtocolAssignment) -> bytes:
    return _write(version, assignment)


def _write(version: int, value: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    out: list[bytes | bytearray | memoryview] = []
    encoder(type(value), version)(value, out)
    return b"".join((_VERSION.pack(version), *out))


def _read(cls: type[T], data: bytes) -> tuple[int, T]:
    if len(data) < _VERSION.size:
        raise Malformed(f"{cls.__name__} of {len(data)} bytes, without a version")
    version: int = _VERSION.unpack_from(data)[0]
    if version not in _VERSIONS:
        raise Malformed(f"{cls.__name__} of version {version}, but only {_VERSIONS} are known")
    return version, decode(cls, version, data, _VERSION.size)
