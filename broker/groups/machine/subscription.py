"""The topics in a consumer's subscription, the only part of it that the coordinator reads.

Members' metadata is opaque to the broker. Only groups of protocol type `consumer` are decoded, so that offsets of
subscribed topics are neither expired nor deleted. Every later version of the layout begins like version 0: int16
version, then an int32 count of strings.

Owns: this decoder. Must not know: groups or their members.
"""

from __future__ import annotations

from struct import Struct, error

CONSUMER_PROTOCOL_TYPE, SHARE_PROTOCOL_TYPE = "consumer", "share"

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of one subscription; None if the bytes are not one, which the protocol allows."""
    topics = []
    try:
        version, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if not 0 <= length <= len(metadata) - position:
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)
