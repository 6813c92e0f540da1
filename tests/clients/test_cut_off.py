"""A producer and a consumer that are cut off from the cluster for longer than their group waits (RV-5)."""

from __future__ import annotations

import threading
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from milena_broker.testing import Broker
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.support.loop_thread import loop_thread
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.support.zookeeper_proxy import zookeeper_proxy
from tools.client.admin_client import AdminClient
from tools.client.bootstrap import Endpoint

TOPIC, GROUP = "t", "g"
COUNT = 30
PATIENCE_S = 30.0
CLIENT = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}

until = partial(wait_until, timeout_s=PATIENCE_S)


class Reader:
    """A member of the group in a thread; counts how often it got its partition."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes | None] = []
        self.assignments = 0
        self._is_stopped = threading.Event()
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 50}
        times = {"session.timeout.ms": 600, "heartbeat.interval.ms": 100, "socket.timeout.ms": 2000}
        self._consumer = Consumer({**CLIENT, "bootstrap.servers": bootstrap, **settings, **times})
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += bool(partitions)

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
        self._consumer.close()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


def test_clients_that_were_cut_off_lose_nothing_and_join_again() -> None:
    """The proxy forwards frames of a length and bytes, whatever the protocol; all addresses are its own."""
    port = free_port()
    with loop_thread() as thread, thread.entered(zookeeper_proxy(port)) as proxy:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
        }
        with Broker(settings, topics={TOPIC: 1}):
            bootstrap = f"127.0.0.1:{proxy.port}"
            reader = Reader(bootstrap)
            failed: list[object] = []
            producer = Producer({**CLIENT, "bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000})

            def send(first: int) -> None:
                for number in range(first, first + COUNT):
                    producer.produce(TOPIC, b"%d" % number, on_delivery=lambda error, _: error and failed.append(error))

            try:
                send(0)
                assert producer.flush(PATIENCE_S) == 0
                until(lambda: len(reader.values) >= COUNT, "the consumer reads")
                thread.call(proxy.refuse)
                send(COUNT)
                assert producer.flush(0.1) == COUNT, "the producer keeps what it cannot send"
                until(lambda: members(port) == 0, "the group has removed its member")
                thread.call(proxy.admit)
                assert producer.flush(PATIENCE_S) == 0
                until(lambda: len(set(reader.values)) == 2 * COUNT, "the consumer reads what was sent meanwhile")
            finally:
                reader.stop()
            assert failed == []
            assert set(reader.values) == {b"%d" % number for number in range(2 * COUNT)}
            assert reader.assignments == 2, "it has joined again"


def members(port: int) -> int:
    """Return the number of members, by the broker's own port."""
    with AdminClient([Endpoint("127.0.0.1", port)]) as client:
        response = client.call(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse)
    return len(response.groups[0].members)
