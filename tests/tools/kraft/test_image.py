"""What each record of KRaft's metadata log changes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from protocol.errors import Malformed
from tests.tools.kraft.metadata import TOPIC_ID, full_image
from tools.kraft import metadata_records as layouts
from tools.kraft.image import ClusterImage, PartitionImage, TopicImage, records_of, replayed

EMPTY_CHANGE = layouts.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)


def after(*records: object) -> ClusterImage:
    return replayed([*(record.fields for record in records_of(full_image())), *records])


def partition(image: ClusterImage) -> PartitionImage:
    return image.topics["orders"].partitions[0]


def test_features_come_first_and_that_of_the_metadata_before_them() -> None:
    names = [record.fields.name for record in records_of(full_image()) if record.record_type == 12]  # type: ignore[attr-defined]
    assert names == ["metadata.version", "group.version", "transaction.version"]


def test_a_change_without_a_leader_raises_only_the_partition_epoch() -> None:
    before = partition(after())
    assert partition(after(EMPTY_CHANGE)) == replace(before, partition_epoch=before.partition_epoch + 1)


def test_a_change_of_the_leader_raises_both_epochs() -> None:
    change = layouts.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2, isr=[2], replicas=[2, 1])
    assert partition(after(change)) == PartitionImage((2, 1), (2,), 2, 5, 1)


def test_a_change_sets_what_it_names() -> None:
    change = layouts.PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        removing_replicas=[1],
        adding_replicas=[2],
        leader_recovery_state=1,
        directories=[UUID(int=9)],
    )
    expected = PartitionImage((1,), (1,), -1, 4, 1, 1, (1,), (2,), (UUID(int=9),))
    assert partition(after(change)) == expected


def test_eligible_leaders_are_kept_until_they_are_cleared() -> None:
    change = layouts.PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1]
    )
    assert partition(after(change)) == PartitionImage((1,), (), -1, 5, 1, eligible=(1,))
    for topic in ("", "orders"):
        assert partition(after(change, layouts.ClearElrRecord(topic_name=topic))).eligible == ()
    assert partition(after(change, layouts.ClearElrRecord(topic_name="empty"))).eligible == (1,)


def test_a_removed_topic_takes_its_settings_with_it() -> None:
    image = after(layouts.RemoveTopicRecord(topic_id=TOPIC_ID))
    assert list(image.topics) == ["empty"]
    assert (2, "orders") not in image.configs


@pytest.mark.parametrize(
    ("record", "part"),
    [
        (layouts.ConfigRecord(resource_type=16, resource_name="all", name="interval.ms", value=None), "configs"),
        (layouts.UnregisterBrokerRecord(broker_id=1, broker_epoch=0), "brokers"),
        (layouts.RemoveUserScramCredentialRecord(name="a b", mechanism=1), "scram"),
        (layouts.RemoveAccessControlEntryRecord(id=UUID(int=5)), "acls"),
        (layouts.RemoveDelegationTokenRecord(token_id="t0"), "tokens"),
        (layouts.FeatureLevelRecord(name="group.version", feature_level=0), "features"),
        (
            layouts.ClientQuotaRecord(
                entity=[layouts.EntityData(entity_type="user", entity_name=None)],
                key="consumer_byte_rate",
                value=0.0,
                remove=True,
            ),
            "quotas",
        ),
    ],
)  # fmt: skip
def test_removals_remove_one_entry(record: object, part: str) -> None:
    registered = layouts.RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=1), broker_epoch=0, end_points=[], features=[], rack=None, fenced=True
    )
    before, changed = after(registered), after(registered, record)
    assert len(getattr(changed, part)) == len(getattr(before, part)) - 1
    setattr(changed, part, getattr(before, part))
    assert changed == before


def test_the_entity_of_a_quota_is_the_same_in_any_order() -> None:
    """Kafka writes the parts in the order of a hash table."""
    parts = [layouts.EntityData(entity_type="client-id", entity_name=None)]
    parts.append(layouts.EntityData(entity_type="user", entity_name="a b"))
    key = "producer_byte_rate"
    for entity in (parts, parts[::-1]):
        changed = after(layouts.ClientQuotaRecord(entity=entity, key=key, value=5.0, remove=False))
        assert [values[key] for values in changed.quotas.values() if "request_percentage" in values] == [5.0]
        removed = after(layouts.ClientQuotaRecord(entity=entity, key=key, value=0.0, remove=True))
        assert [key in values for values in removed.quotas.values() if "request_percentage" in values] == [False]


def test_a_metadata_transaction_counts_from_its_end_on() -> None:
    topic = layouts.TopicRecord(name="new", topic_id=UUID(int=8))
    begin = layouts.BeginTransactionRecord(name="bootstrap")
    assert "new" not in after(begin, topic).topics
    assert "new" not in after(begin, topic, layouts.AbortTransactionRecord(reason="no")).topics
    assert after(begin, topic, layouts.EndTransactionRecord()).topics["new"] == TopicImage(UUID(int=8))


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (layouts.RemoveTopicRecord(topic_id=UUID(int=1)), "no topic has"),
        (layouts.PartitionChangeRecord(partition_id=9, topic_id=TOPIC_ID), "orders-9, which does not exist"),
        (layouts.SnapshotFooterRecord(version=0), "SnapshotFooterRecord cannot be applied"),
    ],
)
def test_a_record_that_fits_nothing_is_refused(record: object, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        after(record)


def test_records_about_processes_change_nothing() -> None:
    assert (
        after(
            layouts.FenceBrokerRecord(id=1, epoch=1),
            layouts.UnfenceBrokerRecord(id=1, epoch=1),
            layouts.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1),
            layouts.NoOpRecord(),
            layouts.ZkMigrationStateRecord(zk_migration_state=0),
        )
        == full_image()
    )
