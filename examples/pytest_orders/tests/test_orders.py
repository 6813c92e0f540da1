"""Tests with a real broker. `pip install milena-broker pytest pytest-xdist`, then `pytest -n 2`."""

from pathlib import Path

from confluent_kafka import Producer
from orders import total_orders

from milena_broker.testing import Broker, NewCluster

ORDERS = Path(__file__).with_name("orders.csv")


def test_orders_are_totalled_by_customer(kafka_broker: Broker, kafka_topic: str) -> None:
    kafka_broker.produce(kafka_topic, [{"customer": "ann", "amount": 10}, {"customer": "ann", "amount": 2.5}])
    assert total_orders(kafka_broker.bootstrap_servers, kafka_topic, f"{kafka_topic}-totals") == 1
    (record,) = kafka_broker.consume(f"{kafka_topic}-totals", 1)
    assert record.key == b"ann"
    assert record.json() == {"total": 12.5}


def test_orders_of_a_file() -> None:
    with Broker(seed={"orders": ORDERS}) as broker:
        assert total_orders(broker.bootstrap_servers, "orders", "totals") == 2
        totals = {record.key: record.json()["total"] for record in broker.consume("totals", 2)}
    assert totals == {b"ann": 12.5, b"bob": 5}


def test_a_crash_of_the_broker_loses_nothing_acknowledged() -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        producer.produce("orders", b"kept")
        assert producer.flush(5) == 0
        broker.kill()
        broker.restart()
        assert [record.value for record in broker.consume("orders")] == [b"kept"]


def test_a_cluster_goes_on_without_one_of_its_brokers(kafka_cluster: NewCluster) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("orders", 3, configs={"min.insync.replicas": 2})
    cluster.stop_broker(0)
    assert cluster.produce("orders", ["one", "two"]) == 2
    assert len(cluster.consume("orders", 2)) == 2


def test_orders_are_totalled_after_the_crash_of_a_leader(kafka_cluster: NewCluster) -> None:
    cluster = kafka_cluster(3)
    for topic in ("orders", "totals"):  # three replicas need three brokers
        cluster.create_topic(topic, configs={"min.insync.replicas": 2})
    cluster.produce("orders", [{"customer": "ann", "amount": 10}])
    cluster.leader_of("orders").kill()
    assert total_orders(cluster.bootstrap_servers, "orders", "totals") == 1
    (record,) = cluster.consume("totals", 1)
    assert record.json() == {"total": 10}
