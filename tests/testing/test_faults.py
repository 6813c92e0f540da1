"""Faults of requests, and removal of records on request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milena_broker.testing import Broker, Cluster, ProcessCluster

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.clear_faults()


def produced(broker: Cluster, topic: str, *values: str, **settings: object) -> list[str | None]:
    """Produce values one after the other, and return the error of each."""
    outcomes: list[str | None] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 1, "log_level": 0, **settings}
    )
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error and error.name()))
        assert producer.flush(PATIENCE_S) == 0
    return outcomes


def values(broker: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.consume(topic)]


def test_requests_fail_as_often_as_asked_and_have_no_effect(broker: Broker) -> None:
    fault = broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert broker.fault_count(fault) == 0
    assert produced(broker, "retried", "x") == [None]
    assert broker.fault_count(fault) == 2
    assert values(broker, "retried") == [b"x"]


def test_a_fault_without_number_ends_with_its_block(broker: Broker) -> None:
    with broker.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None):
        for _ in range(2):
            assert produced(broker, "denied", "x") == ["TOPIC_AUTHORIZATION_FAILED"]
    assert produced(broker, "denied", "z") == [None]
    assert values(broker, "denied") == [b"z"]


def test_a_lost_response_repeats_the_records_of_a_producer_that_is_not_idempotent(broker: Broker) -> None:
    for is_idempotent, expected in ((False, [b"x", b"x"]), (True, [b"x"])):
        topic = f"idempotent-{is_idempotent}"
        fault = broker.drop_connection("Produce", is_served=True)
        assert produced(broker, topic, "x", **{"enable.idempotence": is_idempotent}) == [None]
        assert broker.fault_count(fault) == 1
        assert values(broker, topic) == expected


def test_a_dropped_request_has_no_effect(broker: Broker) -> None:
    fault = broker.drop_connection("Produce")
    assert produced(broker, "dropped", "x") == [None]
    assert broker.fault_count(fault) == 1
    assert values(broker, "dropped") == [b"x"]


def test_only_the_named_client_meets_a_fault(broker: Broker) -> None:
    fault = broker.fail_next("Produce", "INVALID_RECORD", client_id="mine")
    assert produced(broker, "named", "x", **{"client.id": "other"}) == [None]
    assert broker.fault_count(fault) == 0
    assert produced(broker, "named", "x", **{"client.id": "mine"}) == ["INVALID_RECORD"]


def test_one_topic_fails_and_the_others_of_its_request_are_served(broker: Broker) -> None:
    for topic in ("spared", "failing"):
        broker.create_topic(topic)
    fault = broker.fail_next("Produce", "INVALID_RECORD", topic="failing")
    outcomes: dict[str, str | None] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, "log_level": 0})
    for topic in ("spared", "failing"):
        producer.produce(
            topic, b"x", on_delivery=lambda error, sent: outcomes.update({sent.topic(): error and error.name()})
        )
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == {"spared": None, "failing": "INVALID_RECORD"}
    assert broker.fault_count(fault) == 1
    assert (values(broker, "spared"), values(broker, "failing")) == ([b"x"], [])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    broker.fail_next("ListOffsets", "OFFSET_NOT_AVAILABLE", topic="other")
    broker.fail_next("CreateTopics", "POLICY_VIOLATION", topic="refused")
    created = admin.create_topics([NewTopic("accepted", 1), NewTopic("refused", 1)])
    created["accepted"].result(PATIENCE_S)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        created["refused"].result(PATIENCE_S)


@pytest.mark.parametrize("api", ["Metadata", "DescribeCluster", "CreateTopics", "InitProducerId", "FindCoordinator"])
def test_faults_of_any_api_leave_the_fixture_itself_alone(broker: Broker, api: str) -> None:
    with broker.fail_next(api, "UNKNOWN_SERVER_ERROR", times=None):
        broker.create_topic(f"own-{api}")
        broker.produce(f"own-{api}", ["x"])
        assert values(broker, f"own-{api}") == [b"x"]


def test_an_administrator_meets_faults(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    broker.create_topic("kept")
    broker.fail_next("DeleteTopics", "CLUSTER_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        admin.delete_topics(["kept"])["kept"].result(PATIENCE_S)
    admin.delete_topics(["kept"])["kept"].result(PATIENCE_S)


def test_followers_meet_no_faults() -> None:
    with Cluster(2) as cluster:
        with cluster.fail_next("Fetch", "UNKNOWN_SERVER_ERROR", times=None) as fault:
            cluster.create_topic("orders", configs={"min.insync.replicas": 2})
            assert produced(cluster, "orders", "x") == [None]
        assert cluster.fault_count(fault) == 0


def test_faults_stay_when_a_broker_starts_again() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders")
        fault = cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
        leader = cluster.wait_for_leader("orders")
        cluster.stop_broker(leader)
        cluster.start_broker(leader)
        assert produced(cluster, "orders", "x") == [None]
        assert cluster.fault_count(fault) == 3


def test_one_broker_of_a_cluster_meets_faults() -> None:
    with ProcessCluster(2) as cluster:
        cluster.create_topic("orders")
        leader = cluster.leader_of("orders")
        (other,) = (cluster.broker(number) for number in range(2) if cluster.broker(number) is not leader)
        fault = leader.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        spared = other.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        assert produced(cluster, "orders", "x") == [None]
        assert (leader.fault_count(fault), other.fault_count(spared)) == (1, 0)
        assert cluster.fault_count(fault) == 1


def test_retention_runs_on_request(broker: Broker) -> None:
    broker.create_topic("old", configs={"retention.ms": 1000})
    broker.produce("old", [{"value": "x", "timestamp_ms": 1}])
    broker.create_topic("old-table", configs={"cleanup.policy": "compact,delete", "retention.ms": 1000})
    broker.produce("old-table", [{"key": "k", "value": "x", "timestamp_ms": 1}])
    assert broker.run_retention() == 2
    assert values(broker, "old") == values(broker, "old-table") == []
    assert broker.run_retention() == 0


def test_compaction_runs_on_request_up_to_the_newest_record(broker: Broker) -> None:
    broker.create_topic("table", 2, configs={"cleanup.policy": "compact"})
    broker.produce("table", [{"key": "k", "value": str(number), "partition": 1} for number in range(5)])
    assert broker.run_compaction("table") == 1
    assert values(broker, "table") == [b"4"]
    assert broker.run_compaction("table") == 0
