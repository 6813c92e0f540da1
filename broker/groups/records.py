"""The records of `__consumer_offsets`: their keys and values in every version Kafka has written.

Owns: the layouts, and which version is written. Must not know: who writes when, batches, or what the records mean to a
group. The format page is docs/formats/consumer-offsets.md.

A key is an int16 version and fields; the version also says what the record is about: 0 and 1 an offset, 2 a group, above
that something of the newer group protocol, which is kept and not understood. A value is an int16 version and fields, or
null for "forget this key". Versions up to 3 are plain, 4 is flexible (compact lengths, tagged fields).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.codec import decoder, encoder
from protocol.errors import Malformed
from protocol.schema import bytes_, int32, int64, since, stored, string

_VERSION = struct.Struct(">h")

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


@stored(versions=range(2), flexible=None)
class OffsetCommitKey:
    """Names one committed offset. Both versions have the same layout."""

    group: string
    topic: string
    partition: int32


@stored(versions=range(2, 3), flexible=None)
class GroupMetadataKey:
    """Names a group."""

    group: string
