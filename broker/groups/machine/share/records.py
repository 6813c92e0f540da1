"""The records of `__consumer_offsets` that store share groups (KIP-932).

Owns: their layouts, as Kafka 4.1 writes them, with its names of fields, which `kafka-dump-log` prints, and which record
of a group of the consumer protocol each stands for. Must not know: what they mean to a group. The format page is
docs/formats/consumer-offsets.md.

A share group is kept like a group of the consumer protocol, and is stored by records of its own kinds. They have less:
no regular expressions, no instance ids, nothing to give up. Topics are looked up again when a group is loaded.
"""

from typing import Final

from broker.groups.machine.consumer.stored_partitions import StoredPartitions
from protocol.schema import int8, int32, int64, stored, string, struct, uuid


@stored(versions=range(10, 11), flexible=None)
class ShareSubscriptionKey:
    group_id: string
    member_id: string


@stored(versions=range(1), flexible=0)
class ShareSubscriptionValue:
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]


@stored(versions=range(11, 12), flexible=None)
class ShareEpochKey:
    group_id: string


@stored(versions=range(1), flexible=0)
class ShareEpochValue:
    epoch: int32
    metadata_hash: int64 = 0  # of the subscribed topics; not used


@stored(versions=range(12, 13), flexible=None)
class ShareTargetEpochKey:
    group_id: string


@stored(versions=range(1), flexible=0)
class ShareTargetEpochValue:
    assignment_epoch: int32


@stored(versions=range(13, 14), flexible=None)
class ShareTargetKey:
    group_id: string
    member_id: string


@stored(versions=range(1), flexible=0)
class ShareTargetValue:
    topic_partitions: list[StoredPartitions]


@stored(versions=range(14, 15), flexible=None)
class ShareCurrentKey:
    group_id: string
    member_id: string


@stored(versions=range(1), flexible=0)
class ShareCurrentValue:
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[StoredPartitions]


@stored(versions=range(15, 16), flexible=None)
class ShareStatesKey:
    group_id: string


@struct
class TopicStates:
    topic_id: uuid
    topic_name: string
    partitions: list[int32]


@struct
class DeletedTopic:
    topic_id: uuid
    topic_name: string


@stored(versions=range(1), flexible=0)
class ShareStatesValue:
    """The partitions whose states are kept in `__share_group_state`."""

    initializing_topics: list[TopicStates]
    initialized_topics: list[TopicStates]
    deleting_topics: list[DeletedTopic]


ShareKey = (
    ShareSubscriptionKey | ShareEpochKey | ShareTargetEpochKey | ShareTargetKey | ShareCurrentKey | ShareStatesKey
)
ShareValue = (
    ShareSubscriptionValue
    | ShareEpochValue
    | ShareTargetEpochValue
    | ShareTargetValue
    | ShareCurrentValue
    | ShareStatesValue
)

SHARE_LAYOUTS: Final[dict[int, tuple[type[ShareKey], type[ShareValue]]]] = {
    10: (ShareSubscriptionKey, ShareSubscriptionValue),
    11: (ShareEpochKey, ShareEpochValue),
    12: (ShareTargetEpochKey, ShareTargetEpochValue),
    13: (ShareTargetKey, ShareTargetValue),
    14: (ShareCurrentKey, ShareCurrentValue),
    15: (ShareStatesKey, ShareStatesValue),
}
"""The classes of key and value by the version of the key, which names the kind of a record."""
