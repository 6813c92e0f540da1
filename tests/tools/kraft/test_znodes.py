"""The metadata of a tree as KRaft has it, and back: what corresponds, what is not taken, and what prevents it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from tests.tools.kraft.metadata import CLUSTER_ID, full_image, recorded_tree, tree
from tools.kraft import image as kraft
from tools.kraft.image import AclImage, ClusterImage, PartitionImage, ScramImage, TopicImage
from tools.kraft.znodes import Node, Report, Translated, created_topic_id, differences, from_kraft, to_kraft

TOPIC = b'{"partitions":{"0":[1]},"topic_id":"pSEGtdSkRXmCBClYmmabVw","version":3}'


def translated(nodes: Mapping[str, Node], *brokers: int) -> tuple[Translated, Report]:
    report = Report()
    result = to_kraft(nodes, brokers or (1,), report)
    assert result is not None
    return result, report


def problems(nodes: Mapping[str, Node], *brokers: int) -> list[str]:
    return translated(nodes, *brokers)[1].problems


def notes(nodes: Mapping[str, Node]) -> list[str]:
    _, report = translated(nodes)
    assert report.problems == []
    return report.notes


def test_all_metadata_survives_the_way_there_and_back() -> None:
    image, report = full_image(), Report()
    nodes = from_kraft(image, CLUSTER_ID, 6, report)
    assert report == Report()
    again, _ = translated(nodes)
    assert (again.cluster_id, again.controller_epoch, again.created_ids) == (CLUSTER_ID, 6, [])
    # The ids of ACLs are new.
    assert list(again.image.acls.values()) == list(image.acls.values())
    again.image.acls = image.acls
    assert again.image == image


def test_no_generated_broker_id_is_that_of_a_broker() -> None:
    """The next one is the version of the node, plus 1, beyond reserved.broker.max.id."""
    partitions = {0: PartitionImage((1001, 1003), (1001,), kraft.NO_LEADER, 0, 0)}
    image = ClusterImage(topics={"t": TopicImage(UUID(int=1), partitions)}, brokers={1002})
    assert from_kraft(image, CLUSTER_ID, 1, Report())["/brokers/seqid"].version == 1003
    image.brokers.add(2_130_706_433)
    report = Report()
    assert from_kraft(image, CLUSTER_ID, 1, report)["/brokers/seqid"].version == 0
    assert report.notes == ["the highest broker id is 2130706433: set broker.id of each new broker, do not generate it"]


def test_the_tree_of_a_kafka_3_9_is_translated() -> None:
    nodes = recorded_tree("configs were set")
    result, report = translated(nodes, 1, 2, 3)
    assert report == Report()
    events = result.image.topics["events"]
    assert sorted(events.partitions) == [0, 1, 2]
    assert events.partitions[0].replicas == (2, 3, 1)
    assert result.image.configs[kraft.TOPIC, "events"]["max.message.bytes"]
    assert {name for entity, name in result.image.configs if entity == kraft.BROKER} == {"", "1"}
    assert list(differences(nodes, from_kraft(result.image, CLUSTER_ID, 1, Report()))) == []


def test_a_topic_without_an_id_gets_the_same_one_each_time() -> None:
    nodes = tree({"old": b'{"version":1,"partitions":{"0":[1]}}'})
    result, _ = translated(nodes)
    assert result.created_ids == ["old"]
    assert result.image.topics["old"].topic_id == created_topic_id(CLUSTER_ID, "old")
    assert created_topic_id(CLUSTER_ID, "old") != created_topic_id(CLUSTER_ID, "other")


def test_a_partition_of_a_stopped_cluster_has_no_leader() -> None:
    nodes = tree({"t": TOPIC})
    path = "/brokers/topics/t/partitions/0/state"
    nodes[path] = nodes[path]._replace(version=12)
    result, _ = translated(nodes)
    assert result.image.topics["t"].partitions == {0: PartitionImage((1,), (1,), -1, 3, 12)}


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        ("/admin/delete_topics/t", b"", "topic t is being deleted"),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[]}', "requests a reassignment"),
        ("/migration", b'{"version":0,"kraft_controller_id":3000}', "migrates already"),
        (
            "/brokers/topics/t",
            b'{"partitions":{"0":[1]},"adding_replicas":{"0":[1]},"version":3}',
            "partition t-0 is being reassigned",
        ),
        ("/brokers/topics/t", b'{"partitions":{"0":[1],"1":[1]},"version":3}', "partition t-1 never had a leader"),
        (
            "/brokers/topics/t",
            b'{"partitions":{"0":[1,2]},"version":3}',
            "broker 2 has replicas of 1 partitions (t-0), and none of the folders belongs to it",
        ),
    ],
)  # fmt: skip
def test_work_in_progress_prevents_a_translation(path: str, data: bytes, problem: str) -> None:
    (found,) = problems({**tree({"t": TOPIC}), path: Node(data)})
    assert problem in found


def test_nothing_is_translated_without_a_cluster() -> None:
    report = Report()
    assert to_kraft({}, (1,), report) is None
    assert report.problems == ["the source holds no metadata of a cluster"]


@pytest.mark.parametrize(
    ("path", "data", "note"),
    [
        (
            "/config/topics/t",
            b'{"version":1,"config":{"message.format.version":"2.0"}}',
            "/config/topics/t: message.format.version=2.0 is not taken: Kafka 4 does not have it",
        ),
        (
            "/config/topics/gone",
            b'{"version":1,"config":{"retention.ms":"1"}}',
            "/config/topics/gone is not taken: there is no such topic",
        ),
        (
            "/config/brokers/1",
            b'{"version":1,"config":{"listener.name.a.ssl.keystore.password":"salt:x,encryptedPassword:y"}}',
            "/config/brokers/1: listener.name.a.ssl.keystore.password is not taken: it is encrypted",
        ),
        (
            "/config/users/bob",
            b'{"version":1,"config":{"SCRAM-SHA-256":"nonsense","color":"red"}}',
            "user bob: SCRAM-SHA-256 is not taken: the stored credential is malformed, set the password again",
        ),
        ("/consumers/old-group", None, "/consumers: offsets of consumers of 0.8 are not taken: old-group"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_noted(path: str, data: bytes | None, note: str) -> None:
    assert notes({**tree({"t": TOPIC}), path: Node(data)})[0].startswith(note)


def test_the_way_on_for_share_groups_is_noted() -> None:
    (note,) = notes(tree({"__share_group_state": TOPIC}))
    assert note == "share groups continue when share.version=1 is set, which Kafka 4.0 lacks"


def test_a_chosen_level_of_a_feature_is_kept() -> None:
    path = "/feature_levels"
    levels = b'{"features":{"transaction.version":{"max_version_level":0}},"version":2,"status":1}'
    result, _ = translated({**tree(), path: Node(levels)})
    assert result.image.features == {"metadata.version": 25, "group.version": 1}
    assert from_kraft(result.image, CLUSTER_ID, 1, Report())[path].data == levels


def test_settings_that_kafka_3_9_lacks_are_noted() -> None:
    image = ClusterImage(
        topics={"t": TopicImage(UUID(int=4))},
        configs={
            (kraft.TOPIC, "t"): {"of.kafka.5": "1"},
            (kraft.BROKER, ""): {"ssl.key.password": "plain", "share.of.kafka.5": "2"},
            (99, "x"): {"a": "b"},
        },
        quotas={frozenset({("user", "a"), ("ip", "b")}): {"producer_byte_rate": 1.0}},
    )
    report = Report()
    nodes = from_kraft(image, CLUSTER_ID, 1, report)
    assert report.problems == []
    assert len(report.notes) == 5
    assert nodes["/config/topics/t"].data == nodes["/config/brokers/<default>"].data == b'{"version":1,"config":{}}'


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (ClusterImage(acls={UUID(int=1): AclImage(2, "a/b", 3, "User:a", "*", 3, 2)}), "Failed to create ACL"),
        (
            ClusterImage(topics={"t": TopicImage(UUID(int=4), {0: PartitionImage((1,), (), -1, 0, 0)})}),
            "partition t-0 has no in-sync replica",
        ),
        (
            ClusterImage(topics={"t": TopicImage(UUID(int=4), {0: PartitionImage((1,), (1,), 1, 0, 0, adding=(1,))})}),
            "partition t-0 is being reassigned",
        ),
    ],
)  # fmt: skip
def test_states_that_a_tree_cannot_hold_prevent_the_way_back(image: ClusterImage, problem: str) -> None:
    report = Report()
    from_kraft(image, CLUSTER_ID, 1, report)
    assert [problem in found for found in report.problems] == [True]


def test_a_credential_of_an_unknown_mechanism_is_noted() -> None:
    report = Report()
    from_kraft(ClusterImage(scram={("a", 9): ScramImage(b"", b"", b"", 4096)}), CLUSTER_ID, 1, report)
    assert report.notes == ["user a: not taken: a credential of the unknown mechanism 9"]


def test_acls_of_an_unknown_type_prevent_a_translation() -> None:
    path = "/kafka-acl/Weather/rain"
    nodes = {"/kafka-acl/Weather": Node(None), path: Node(b'{"version":1,"acls":[]}')}
    assert problems({**tree(), **nodes}) == ["/kafka-acl/Weather: ACLs of an unknown type of resources"]


def test_an_eligible_leader_is_in_sync_where_nobody_else_is() -> None:
    partition = PartitionImage((1, 2), (), -1, 5, 0, eligible=(2,))
    nodes = from_kraft(ClusterImage(topics={"t": TopicImage(UUID(int=4), {0: partition})}), CLUSTER_ID, 1, Report())
    assert b'"isr":[2]' in (nodes["/brokers/topics/t/partitions/0/state"].data or b"")


def test_differences_name_what_is_lost_new_and_changed() -> None:
    before = {**tree({"t": TOPIC}), "/config/users/bob": Node(b'{"version":1,"config":{"color":"red"}}')}
    after = {**tree({"u": TOPIC}), "/config/topics/t": Node(b'{"version":1,"config":{"a":"b"}}')}
    assert list(differences(before, after)) == [
        "/brokers/topics/t is lost",
        "/brokers/topics/t/partitions/0/state is lost",
        "/brokers/topics/u is new",
        "/brokers/topics/u/partitions/0/state is new",
        "/config/topics/t is new",
        "/config/users/bob is lost",
    ]
