"""Share groups as they are stored: each record of a group of the consumer protocol, and what stands for it. Pure.

Owns: the translation in both directions. Must not know: what a record means.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.groups.machine.consumer.records import (
    Change,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    Key,
    SubscriptionKey,
    SubscriptionValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    Value,
)
from broker.groups.machine.share.records import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareEpochKey,
    ShareEpochValue,
    ShareStatesKey,
    ShareSubscriptionKey,
    ShareSubscriptionValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetKey,
    ShareTargetValue,
)


def key_to_stored(key: Key) -> Key | None:
    """Return the key of the record that is stored; None if nothing is."""
    match key:
        case GroupEpochKey():
            return ShareEpochKey(group_id=key.group_id)
        case SubscriptionKey():
            return ShareSubscriptionKey(group_id=key.group_id, member_id=key.member_id)
        case TargetEpochKey():
            return ShareTargetEpochKey(group_id=key.group_id)
        case TargetKey():
            return ShareTargetKey(group_id=key.group_id, member_id=key.member_id)
        case CurrentKey():
            return ShareCurrentKey(group_id=key.group_id, member_id=key.member_id)
        case ShareStatesKey():
            return key
    return None


def to_stored(changes: Iterable[Change]) -> list[Change]:
    """Return the records that are stored."""
    return [
        Change(key, None if value is None else _value_to_stored(value))
        for each, value in changes
        if (key := key_to_stored(each)) is not None
    ]


def _value_to_stored(value: Value) -> Value:
    match value:
        case GroupEpochValue():
            return ShareEpochValue(epoch=value.epoch)
        case SubscriptionValue():
            return ShareSubscriptionValue(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=value.subscribed_topic_names,
            )
        case TargetEpochValue():
            return ShareTargetEpochValue(assignment_epoch=value.assignment_epoch)
        case TargetValue():
            return ShareTargetValue(topic_partitions=value.topic_partitions)
        case CurrentValue():
            return ShareCurrentValue(
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=value.state,
                assigned_partitions=value.assigned_partitions,
            )
    return value


def from_stored(changes: Iterable[Change]) -> list[Change]:
    """Return the records of a group of the consumer protocol for which those of a share group stand."""
    return [
        Change(_key_from_stored(key), None if value is None else _value_from_stored(value)) for key, value in changes
    ]


def _key_from_stored(key: Key) -> Key:
    match key:
        case ShareEpochKey():
            return GroupEpochKey(group_id=key.group_id)
        case ShareSubscriptionKey():
            return SubscriptionKey(group_id=key.group_id, member_id=key.member_id)
        case ShareTargetEpochKey():
            return TargetEpochKey(group_id=key.group_id)
        case ShareTargetKey():
            return TargetKey(group_id=key.group_id, member_id=key.member_id)
        case ShareCurrentKey():
            return CurrentKey(group_id=key.group_id, member_id=key.member_id)
    return key


def _value_from_stored(value: Value) -> Value:
    match value:
        case ShareEpochValue():
            return GroupEpochValue(epoch=value.epoch)
        case ShareSubscriptionValue():
            return SubscriptionValue(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=value.subscribed_topic_names,
                rebalance_timeout_ms=0,
            )
        case ShareTargetEpochValue():
            return TargetEpochValue(assignment_epoch=value.assignment_epoch)
        case ShareTargetValue():
            return TargetValue(topic_partitions=value.topic_partitions)
        case ShareCurrentValue():
            return CurrentValue(
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=value.state,
                assigned_partitions=value.assigned_partitions,
                partitions_pending_revocation=[],
            )
    return value
