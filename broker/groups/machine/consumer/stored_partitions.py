"""Partitions as records of groups name them.

Owns: the layout. Must not know: which records have it.
"""

from protocol.schema import int32, struct, uuid


@struct
class StoredPartitions:
    topic_id: uuid
    partitions: list[int32]
