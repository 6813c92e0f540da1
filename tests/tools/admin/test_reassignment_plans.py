"""Plans of kafka-reassign-partitions: their JSON, moves, throttled replicas and placements."""

from __future__ import annotations

import pytest

from tools.admin.reassignment_plans import (
    InvalidPlanError,
    Move,
    Plan,
    Replica,
    format_plan,
    moves,
    moving_brokers,
    parse_broker_ids,
    parse_plan,
    parse_topics,
    propose,
    require_executable,
    throttled_replicas,
)

# As Apache Kafka 3.9.1 prints it.
PRINTED = (
    '{"version":1,"partitions":[{"topic":"events","partition":0,"replicas":[2,3,1],"log_dirs":["any","any","any"]},'
    '{"topic":"events","partition":1,"replicas":[3,1,2],"log_dirs":["any","any","any"]}]}'
)


def test_printed_plan_is_read_and_printed_again() -> None:
    plan = parse_plan(PRINTED)
    assert plan == Plan({("events", 0): [2, 3, 1], ("events", 1): [3, 1, 2]}, {})
    assert format_plan(plan.replicas) == PRINTED


def test_log_dirs_are_optional_and_any_stands_for_none() -> None:
    plan = parse_plan(
        '{"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]},'
        '{"topic":"a","partition":1,"replicas":[1]}]}'
    )
    assert plan.log_dirs == {Replica("a", 0, 2): "/d"}
    assert plan.replicas == {("a", 0): [1, 2], ("a", 1): [1]}


def partition(replicas: str, more: str = "") -> str:
    return f'{{"version":1,"partitions":[{{"topic":"ev","partition":0,"replicas":{replicas}}}{more}]}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The reassignment JSON is invalid: "),
        ("not json", "The reassignment JSON is invalid: "),
        ("[]", "The reassignment JSON is invalid: expected an object"),
        ('{"version":2,"partitions":[]}', "Not supported version field value 2"),
        ('{"version":1,"partitions":{}}', "expected a list as partitions, found {}"),
        ('{"version":1,"partitions":[{"topic":"ev"}]}', "expected a number as partition in"),
        (partition('"1"'), "expected a list as replicas in"),
        (partition('["1"]'), "expected broker ids as replicas in"),
        (
            partition("[1]", ',{"topic":"ev","partition":0,"replicas":[2]}'),
            "Partition reassignment contains duplicate topic partitions: ev-0",
        ),
        (
            '{"version":1,"partitions":[{"topic":"ev","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}',
            "Size of replicas list [1, 2] is different from size of log dirs list [any] for partition ev-0",
        ),
    ],
)
def test_invalid_plans_are_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidPlanError) as raised:
        parse_plan(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version":1,"partitions":[]}', "Partition reassignment list cannot be empty"),
        (partition("[]"), "Partition replica list cannot be empty"),
        (
            partition("[1,2,1]"),
            "Partition replica lists may not contain duplicate entries: ev-0 contains multiple entries for 1",
        ),
    ],
)
def test_plans_that_cannot_be_executed_are_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidPlanError) as raised:
        require_executable(parse_plan(text))
    assert str(raised.value) == message


def test_topics_and_brokers_are_read() -> None:
    assert parse_topics('{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}') == ["a", "b"]
    assert parse_broker_ids("2,0,1") == [2, 0, 1]
    with pytest.raises(InvalidPlanError, match=r"List of topics to reassign contains duplicate entries: \[a\]"):
        parse_topics('{"topics":[{"topic":"a"},{"topic":"a"}]}')
    with pytest.raises(InvalidPlanError, match=r"Broker list contains duplicate entries: \[0\]"):
        parse_broker_ids("0,0,1")
    with pytest.raises(InvalidPlanError, match="Invalid broker list 'x': expected ids as in 0,1,2"):
        parse_broker_ids("x")


def test_throttled_replicas_are_those_of_kafka() -> None:
    # The nodes of a real cluster during `--execute --throttle 1000`: from brokers 1, 2 to 2, 3.
    found = moves({}, {("bigt", 0): [2, 3]}, {("bigt", 0): [1, 2]})
    assert found == {("bigt", 0): Move(frozenset({1, 2}), frozenset({3}))}
    assert throttled_replicas(found) == {"bigt": ("0:1,0:2", "0:3")}
    assert moving_brokers(found) == [1, 2, 3]


def test_sources_of_an_active_move_are_kept() -> None:
    active = {("t", 0): Move(frozenset({1}), frozenset({2})), ("u", 3): Move(frozenset({7}), frozenset({8}))}
    found = moves(active, {("t", 0): [3]}, {("t", 0): [1, 2]})
    assert found[("t", 0)] == Move(frozenset({1}), frozenset({3}))
    assert throttled_replicas(found)["u"] == ("3:7", "3:8")


def test_proposal_spreads_each_topic_over_the_brokers() -> None:
    current = {("a", 0): [0, 1], ("a", 1): [1, 0], ("a", 2): [0, 1], ("b", 0): [1]}
    proposed = propose(current, {5: None, 6: None, 7: None}, start=0, shift=0)
    assert proposed.keys() == current.keys()
    assert sorted(proposed["a", index][0] for index in range(3)) == [5, 6, 7]
    assert [len(proposed[name]) for name in sorted(current)] == [2, 2, 2, 1]


def test_proposal_uses_racks_if_all_brokers_have_one() -> None:
    racks = {1: "r1", 2: "r1", 3: "r2", 4: "r2"}
    proposed = propose({("a", index): [1, 2] for index in range(8)}, racks, start=1, shift=1)
    assert all(racks[one] != racks[other] for one, other in proposed.values())


def test_impossible_proposals_are_rejected() -> None:
    with pytest.raises(InvalidPlanError, match=r"Replication factor: 2 larger than available brokers: 1\."):
        propose({("a", 0): [1, 2]}, {1: None}, start=0, shift=0)
    with pytest.raises(InvalidPlanError, match="Not all brokers have rack information"):
        propose({("a", 0): [1, 2]}, {1: "r", 2: None}, start=0, shift=0)
