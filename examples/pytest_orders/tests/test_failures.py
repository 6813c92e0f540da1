"""What may happen to a service in production, on request: errors, lost responses, time, users without rights."""

from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, Message, Producer
from orders import total_orders

from milena_broker.testing import Broker, NewCluster


def test_orders_are_totalled_although_the_broker_refuses_requests(kafka_broker: Broker, kafka_topic: str) -> None:
    kafka_broker.produce(kafka_topic, [{"customer": "ann", "amount": 10}])
    totals = f"{kafka_topic}-totals"
    kafka_broker.create_topic(totals)
    fault = kafka_broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert total_orders(kafka_broker.bootstrap_servers, kafka_topic, totals) == 1
    assert kafka_broker.fault_count(fault) == 2
    assert len(kafka_broker.consume(totals)) == 1


def test_a_total_is_written_once_although_a_response_is_lost(kafka_broker: Broker, kafka_topic: str) -> None:
    kafka_broker.produce(kafka_topic, [{"customer": "ann", "amount": 10}])
    totals = f"{kafka_topic}-totals"
    kafka_broker.create_topic(totals)
    lost = kafka_broker.drop_connection("Produce", is_served=True)
    assert total_orders(kafka_broker.bootstrap_servers, kafka_topic, totals) == 1
    assert kafka_broker.fault_count(lost) == 1
    assert len(kafka_broker.consume(totals)) == 1


def test_orders_are_kept_for_a_week() -> None:
    with Broker(movable_clock=True) as broker:
        broker.create_topic("orders", configs={"retention.ms": 7 * 24 * 3_600_000})
        broker.produce("orders", [{"customer": "ann", "amount": 10}])
        for days, kept in ((6, 1), (2, 0)):
            broker.advance(timedelta(days=days))
            broker.run_retention()
            assert len(broker.consume("orders")) == kept


def test_the_newest_price_of_each_article_is_kept(kafka_broker: Broker) -> None:
    kafka_broker.create_topic("prices", configs={"cleanup.policy": "compact"})
    kafka_broker.produce("prices", [("tea", 3), ("tea", 4), ("milk", 1)])
    kafka_broker.run_compaction("prices")
    assert [(record.key, record.json()) for record in kafka_broker.consume("prices")] == [(b"tea", 4), (b"milk", 1)]


def test_a_user_without_rights_is_refused() -> None:
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Broker(settings, tls=True, users={"ann": "secret"}, topics={"orders": 1}) as broker:
        errors: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            errors.append(error)

        producer = Producer(broker.client_settings("ann"))
        producer.produce("orders", b"x", on_delivery=delivered)
        producer.flush(10)
        assert errors[0] is not None
        assert errors[0].name() == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_leader_has_a_successor(kafka_cluster: NewCluster, is_clean: bool) -> None:
    cluster = kafka_cluster(2)
    cluster.create_topic("orders")
    leader = cluster.leader_of("orders")
    if is_clean:
        leader.stop()
    else:
        leader.kill()
    cluster.wait_for_leader("orders", other_than=leader.broker_id)
    leader.start()
    cluster.wait_for_isr("orders")
