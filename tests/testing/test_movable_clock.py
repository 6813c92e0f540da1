"""A clock that a test moves: retention, sessions and transactions, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer

from milena_broker.testing import Broker, Cluster, ProcessCluster

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(movable_clock=True) as started:
        yield started


def test_records_expire_when_their_time_is_over(broker: Broker) -> None:
    broker.create_topic("orders", configs={"retention.ms": 3_600_000})
    broker.produce("orders", ["x"])
    broker.advance(timedelta(minutes=59))
    broker.run_retention()
    assert len(broker.consume("orders")) == 1
    broker.advance(61)
    broker.run_retention()
    assert broker.consume("orders") == []


def test_new_records_have_the_time_of_the_clock(broker: Broker) -> None:
    broker.produce("before", ["x"])
    broker.advance(timedelta(hours=1))
    broker.produce("after", ["x"])
    (before,), (after,) = broker.consume("before"), broker.consume("after")
    assert after.timestamp_ms - before.timestamp_ms >= 3_600_000


def test_a_member_that_sends_no_heartbeat_leaves_its_group(broker: Broker) -> None:
    broker.produce("grouped", ["x"])
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    long = {"session.timeout.ms": 600_000, "heartbeat.interval.ms": 500_000, "max.poll.interval.ms": 600_000}
    consumer = Consumer({**settings, **long})
    consumer.subscribe(["grouped"])
    assert consumer.poll(PATIENCE_S) is not None
    broker.wait_for_group("g", members=1, is_caught_up=False)
    broker.advance(601)
    assert broker.wait_for_group("g", members=0, is_caught_up=False, timeout_s=PATIENCE_S).state == "Dead"
    consumer.close()


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker: Broker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "slow",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("transactions", b"lost")
    assert producer.flush(PATIENCE_S) == 0
    broker.produce("transactions", ["kept"])
    assert broker.consume("transactions") == [], "the transaction is open"
    broker.advance(601)
    assert [record.value for record in broker.consume("transactions", 1, timeout_s=PATIENCE_S)] == [b"kept"]


def test_a_delayed_response_comes_after_the_effect(broker: Broker) -> None:
    broker.create_topic("delayed")
    reports: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with broker.delay("Produce", 3_600_000) as fault:
        producer.produce("delayed", b"x", on_delivery=lambda error, _: reports.append(error))
        assert len(broker.consume("delayed", 1, timeout_s=PATIENCE_S)) == 1
        producer.poll(0)
        assert reports == []
        assert broker.fault_count(fault) == 1
        broker.advance(timedelta(hours=1))
        assert producer.flush(PATIENCE_S) == 0
    assert reports == [None]


@pytest.mark.parametrize("new", [Cluster, ProcessCluster])
def test_brokers_of_a_cluster_have_one_time(new: Callable[..., Cluster]) -> None:
    with new(2, movable_clock=True) as cluster:
        cluster.create_topic("orders", configs={"retention.ms": 1000})
        cluster.produce("orders", ["x"])
        cluster.advance(timedelta(days=1))
        cluster.run_retention()
        assert cluster.consume("orders") == []
        cluster.wait_for_isr("orders", timeout_s=PATIENCE_S)


def test_time_does_not_go_back_when_brokers_start_again() -> None:
    with Broker(movable_clock=True) as broker:
        broker.advance(timedelta(days=1))
        broker.produce("before", ["x"])
        broker.kill()
        broker.restart()
        broker.produce("after", ["x"])
        (before,), (after,) = broker.consume("before"), broker.consume("after")
        assert after.timestamp_ms >= before.timestamp_ms
