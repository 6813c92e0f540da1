"""Every error of a request about topics, with its message."""

import pytest

from base.pause import never, whole
from controller.machine.model import ReplicaAssignment
from controller.machine.settings import ControllerSettings
from controller.machine.topic_creation import TopicNames, plan_partitions, plan_topic, repeated, topic_name_problem
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

RACKS: dict[int, str | None] = dict.fromkeys((1, 2, 3))
SETTINGS = ControllerSettings(num_partitions=4, default_replication_factor=2)
EXISTING = TopicNames({"events", "a.b", "c_d"})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("events", None),
        ("A.b_c-9", None),
        ("x" * 249, None),
        ("...", None),
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        (
            "bad name",
            "'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("Straße", "'Straße' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_topic_names_are_checked_as_in_kafka(name: str, problem: str | None) -> None:
    assert topic_name_problem(name) == problem


@pytest.mark.parametrize(
    ("name", "colliding"), [("a_b", ["a.b"]), ("a.b", []), ("c.d", ["c_d"]), ("events", []), ("a-b", [])]
)
def test_colliding_topic_names_are_rejected(name: str, colliding: list[str]) -> None:
    assert EXISTING.colliding_with(name) == colliding
    assert ("a.b" in EXISTING, "a_b" in EXISTING) == (True, False)


def test_names_that_lie_over_others_collide_with_both() -> None:
    names = TopicNames(["x"], over=EXISTING)
    names.add("a.b.c")
    assert names.colliding_with("a_b_c") == ["a.b.c"]
    assert names.colliding_with("a_b") == ["a.b"]
    assert "events" in names
    assert sorted(names) == ["a.b", "a.b.c", "c_d", "events", "x"]
    assert sorted(EXISTING) == ["a.b", "c_d", "events"]


def test_name_that_was_removed_collides_no_longer() -> None:
    names = TopicNames(["a.b", "a_b"])
    names.remove("a.b")
    assert names.colliding_with("a.b") == ["a_b"]
    names.remove("a_b")
    assert names.colliding_with("a.b") == []


def test_repeated_topics_are_rejected() -> None:
    assert whole(repeated(["a", "b", "a", "c", "a"], never)) == {"a"}


def _topic(
    name: str = "new",
    partitions: int = -1,
    rf: int = -1,
    assignment: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=rf,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


WRONG_TOPICS: list[tuple[CreatableTopic, ErrorCode, str]] = [
    (
        _topic("bad name"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        (
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        ),
    ),
    (_topic("events"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'events' already exists."),
    (_topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topics: a.b"),
    (_topic(partitions=0), ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
    (_topic(partitions=-2), ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
    (
        _topic(partitions=10_001),
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request: 10001, at most 10000.",
    ),
    (_topic(rf=0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
    (_topic(rf=5), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 5 larger than available brokers: 3."),
    (_topic(configs={"nosuch": "1"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nosuch"),
    (
        _topic(configs={"retention.ms": None, "segment.ms": None}),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms,segment.ms",
    ),
    (
        _topic(partitions=1, assignment={0: [1]}),
        ErrorCode.INVALID_REQUEST,
        (
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time."
        ),
    ),
    (
        _topic(assignment={0: [1], 2: [2]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        _topic(assignment={0: []}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Cannot have replication factor of 0 for partition id 0.",
    ),
    (
        _topic(assignment={0: [1, 1]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Duplicate replica assignment found: HashMap(0 -> ArrayBuffer(1, 1))",
    ),
    (
        _topic(assignment={0: [1, 2], 1: [1], 2: [3]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "All partitions should have the same number of replicas",
    ),
    (
        _topic(assignment={0: [1, -1], 1: [2, 3], 2: [-7, 1]}),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Invalid broker id in replica assignment: -7, -1.",
    ),
]


@pytest.mark.parametrize(("request_", "code", "message"), WRONG_TOPICS)
def test_invalid_topics_are_rejected(request_: CreatableTopic, code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_topic(request_, EXISTING, RACKS, SETTINGS, start=0, shift=0)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_a_wrong_value_names_key_and_value() -> None:
    with pytest.raises(KafkaError, match=r"retention\.ms") as caught:
        plan_topic(_topic(configs={"retention.ms": "soon"}), EXISTING, RACKS, SETTINGS, start=0, shift=0)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "soon" in caught.value.message


def test_defaults_come_from_the_settings() -> None:
    planned = plan_topic(_topic(), EXISTING, RACKS, SETTINGS, start=0, shift=0)
    assert len(planned.partitions) == 4
    assert planned.replication_factor == 2
    assert planned.overrides == {}


def test_manual_assignment_is_kept() -> None:
    request = _topic(assignment={1: [2, 3], 0: [3, 1]}, configs={"retention.ms": "1000"})
    planned = plan_topic(request, EXISTING, RACKS, SETTINGS, start=0, shift=0)
    assert planned.partitions == {0: ReplicaAssignment((3, 1)), 1: ReplicaAssignment((2, 3))}
    assert planned.overrides == {"retention.ms": "1000"}


def test_manual_assignment_may_name_brokers_that_are_not_alive() -> None:
    planned = plan_topic(_topic(assignment={0: [1, 9], 1: [8, 9]}), EXISTING, RACKS, SETTINGS, start=0, shift=0)
    assert planned.partitions == {0: ReplicaAssignment((1, 9)), 1: ReplicaAssignment((8, 9))}


GROWING = {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))}


def _growth(count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=it) for it in assignments]
    return CreatePartitionsTopic(name="t", count=count, assignments=given)


WRONG_GROWTH: list[tuple[CreatePartitionsTopic, ErrorCode, str]] = [
    (
        _growth(1),
        ErrorCode.INVALID_PARTITIONS,
        "Topic currently has 2 partitions, which is higher than the requested 1.",
    ),
    (_growth(2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
    (
        _growth(2_000_000_000),
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request: 1999999998, at most 10000.",
    ),
    (
        _growth(4, [[1, 2]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Increasing the number of partitions by 2 but 1 assignments provided.",
    ),
    (
        _growth(3, [[1, 9]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Unknown broker(s) in replica assignment: 9.",
    ),
    (
        _growth(3, [[1, -1]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Unknown broker(s) in replica assignment: -1.",
    ),
    (
        _growth(3, [[1]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        (
            "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [2] "
            "have replication factors [1], respectively."
        ),
    ),
]


@pytest.mark.parametrize(("request_", "code", "message"), WRONG_GROWTH)
def test_invalid_partition_counts_are_rejected(request_: CreatePartitionsTopic, code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_partitions(request_, GROWING, RACKS)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_replicas_are_not_placed_while_only_some_brokers_have_a_rack() -> None:
    racks = {1: "a", 2: None, 3: "b", 4: None}
    text = "Not all brokers have rack information for replica rack aware assignment: broker.rack is missing on 2, 4."
    with pytest.raises(KafkaError) as caught:
        plan_topic(_topic(partitions=1, rf=2), EXISTING, racks, SETTINGS, start=0, shift=0)
    assert (caught.value.code, caught.value.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, text)
    with pytest.raises(KafkaError, match=r"broker\.rack is missing"):
        plan_partitions(_growth(3), GROWING, racks)
    assigned = plan_topic(_topic(assignment={0: [1, 2]}), EXISTING, racks, SETTINGS, start=0, shift=0)
    assert assigned.partitions[0].replicas == (1, 2)


def test_adding_partitions_needs_as_many_brokers_as_replicas() -> None:
    with pytest.raises(KafkaError, match="Replication factor: 2 larger than available brokers: 1"):
        plan_partitions(_growth(3), GROWING, {1: None})


def test_added_partitions_continue_the_round_robin_of_the_topic() -> None:
    planned = plan_partitions(_growth(4), GROWING, RACKS)
    assert {partition: it.replicas[0] for partition, it in planned.items()} == {2: 1, 3: 2}
    assert plan_partitions(_growth(3, [[1, 3]]), GROWING, RACKS) == {2: ReplicaAssignment((1, 3))}


def test_added_partitions_of_a_topic_with_gaps_are_new() -> None:
    odd = {3: ReplicaAssignment((1,)), 5: ReplicaAssignment((2,))}
    assert list(plan_partitions(_growth(4), odd, RACKS)) == [6, 7]
