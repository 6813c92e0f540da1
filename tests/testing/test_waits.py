"""The helpers that wait: they return what they waited for, and report what they saw last."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from milena_broker.testing import Broker, BrokerError, Cluster, Group
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
AT_ONCE_S = 0.01
"""A time limit that is over after the first look or the second."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def test_consume_waits_for_a_topic_that_does_not_exist_yet(broker: Broker) -> None:
    service = threading.Timer(0.02, broker.produce, ("late", ["a", "b"]))
    service.start()
    assert [record.value for record in broker.consume("late", 2, timeout_s=PATIENCE_S)] == [b"a", b"b"]
    service.join()


def test_a_record_that_matches_is_returned(broker: Broker) -> None:
    broker.produce("matching", [{"id": 1}, {"id": 2}, {"id": 2}])
    found = broker.wait_for_record("matching", lambda record: record.json()["id"] == 2)
    assert (found.offset, found.json()) == (1, {"id": 2})


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (3, "topic 'none' does not exist after 0.01 s, expected 3 records"),
        (None, "topic 'none' does not exist"),
    ],
)
def test_missing_records_of_a_missing_topic(broker: Broker, count: int | None, message: str) -> None:
    with pytest.raises(BrokerError) as raised:
        broker.consume("none", count, timeout_s=AT_ONCE_S)
    assert str(raised.value) == message


def test_a_record_that_does_not_come_is_reported_with_the_last_one(broker: Broker) -> None:
    broker.produce("unmatched", [("k", "v")])
    with pytest.raises(
        BrokerError, match=r"has 1 records after 0.01 s, expected one that matches; the last one is .*v"
    ):
        broker.wait_for_record("unmatched", lambda record: record.key == b"other", timeout_s=AT_ONCE_S)


def test_topics_and_leaders(broker: Broker) -> None:
    broker.create_topic("led", 3)
    assert broker.wait_for_topic("led") == 3
    assert broker.wait_for_topic("led", 3) == 3
    assert broker.wait_for_leader("led", 2) == 0
    broker.wait_for_isr("led")
    for wait, message in (
        (
            lambda: broker.wait_for_topic("none", timeout_s=AT_ONCE_S),
            "topic 'none' does not exist after 0.01 s, expected",
        ),
        (lambda: broker.wait_for_topic("led", 4, timeout_s=AT_ONCE_S), "topic 'led' has 3 partitions after 0.01 s, "),
        (lambda: broker.wait_for_leader("led", 3, timeout_s=AT_ONCE_S), "topic 'led' has 3 partitions after 0.01 s, "),
        (
            lambda: broker.wait_for_leader("led", other_than=0, timeout_s=AT_ONCE_S),
            "the leader of led-0 is 0 after 0.01 s, expected a leader of led-0 other than 0",
        ),
        (
            lambda: broker.wait_for_isr("none", timeout_s=AT_ONCE_S),
            "topic 'none' does not exist after 0.01 s, expected",
        ),
    ):
        with pytest.raises(BrokerError) as raised:
            wait()
        assert str(raised.value).startswith(message)


def test_a_group_is_stable_caught_up_and_left(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("grouped", b"one")
    producer.commit_transaction(PATIENCE_S)  # its marker is no record
    with pytest.raises(
        BrokerError, match=r"^group 'g' does not exist after 0.01 s, expected a group that is Stable and"
    ):
        broker.wait_for_group("g", timeout_s=AT_ONCE_S)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["grouped"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert broker.wait_for_group("g", is_caught_up=False) == Group("g", "Stable", 1, 0)
    with pytest.raises(BrokerError, match=r"^group 'g' has committed no offset after 0.01 s"):
        broker.wait_for_group("g", timeout_s=AT_ONCE_S)
    consumer.commit(message, asynchronous=False)
    assert broker.wait_for_group("g", members=1) == Group("g", "Stable", 1, 0)
    broker.produce("grouped", ["two"])
    with pytest.raises(BrokerError, match=r"^group 'g' has not committed 1 records of grouped-0 after 0.01 s"):
        broker.wait_for_group("g", timeout_s=AT_ONCE_S)
    with pytest.raises(
        BrokerError, match=r"^group 'g' is Stable with 1 members after 0.01 s, expected .* with 2 members"
    ):
        broker.wait_for_group("g", members=2, timeout_s=AT_ONCE_S)
    consumer.close()
    assert broker.wait_for_group("g", members=0, is_caught_up=False) == Group("g", "Empty", 0, 1)


def test_a_share_group_is_caught_up_and_reset(broker: Broker) -> None:
    broker.produce("shared", ["one"])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, "sharing", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    settings = {"group.id": "sharing", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    consumer.subscribe(["shared"])
    got: list[Message] = []
    wait_until(lambda: got.extend(consumer.poll(0.1) or ()) or got, interval_s=0)
    assert broker.wait_for_group("sharing", members=1, is_caught_up=False, timeout_s=PATIENCE_S).lag == 1
    consumer.acknowledge(got[0], AcknowledgeType.ACCEPT)
    consumer.commit_sync()
    assert broker.wait_for_group("sharing", timeout_s=PATIENCE_S) == Group("sharing", "Stable", 1, 0)
    with broker.drop_connection("ShareGroupHeartbeat", times=None):  # so that it does not join again
        broker.reset()
        assert broker.wait_for_group("sharing", members=0, is_caught_up=False).state == "Dead"
    consumer.close()


def test_isr_and_leader_of_a_cluster() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders")
        cluster.wait_for_isr("orders")
        leader = cluster.wait_for_leader("orders")
        cluster.stop_broker(leader)
        assert cluster.wait_for_leader("orders", other_than=leader) != leader
        with pytest.raises(
            BrokerError, match=r"^the ISR of orders-0 is \[\d\] of \[\d, \d\] after 0.01 s, expected all"
        ):
            cluster.wait_for_isr("orders", timeout_s=AT_ONCE_S)
        cluster.start_broker(leader)
        cluster.wait_for_isr("orders", timeout_s=PATIENCE_S)
