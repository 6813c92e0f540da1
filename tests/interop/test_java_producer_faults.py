"""Kafka's Java producer when responses are lost or do not come: order under retries, and a full buffer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.interop.conftest import SERVERS, STARTERS, RunJava, create_topic
from tests.support.frame_recorder import CORRELATION_OF_REQUEST, FrameRecorder, RecordedExchange
from tests.support.parts import skip_when_unavailable
from tests.support.ports import free_port

VERSION = "3.9.1"
PRODUCE = 0
COUNT = 12
IN_FLIGHT = 5
TIMEOUT_S = 30
SMALL, LARGE = 10, 10_000


def is_produce(exchange: RecordedExchange) -> bool:
    return CORRELATION_OF_REQUEST.unpack_from(exchange.request)[0] == PRODUCE


def lose_first_response_after(records: int, bootstrap: str, topic: str) -> Callable[[RecordedExchange], None]:
    """Return a fault: the first response to Produce is lost once the log has so many records."""
    lost: list[RecordedExchange] = []

    def before_response(exchange: RecordedExchange) -> None:
        if lost or not is_produce(exchange):
            return
        lost.append(exchange)
        deadline = time.monotonic() + TIMEOUT_S
        while len(stored(bootstrap, topic)) < records and time.monotonic() < deadline:
            time.sleep(0.02)
        raise ConnectionResetError

    return before_response


def lose_every_response_until(end: threading.Event) -> Callable[[RecordedExchange], None]:
    """Return a fault: no response to Produce arrives."""

    def before_response(exchange: RecordedExchange) -> None:
        if is_produce(exchange):
            end.wait(TIMEOUT_S)
            raise ConnectionResetError

    return before_response


def stored(bootstrap: str, topic: str) -> list[int]:
    """Return the numbers of the stored records, in the order of the log."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of {topic}"
            if message.error() is not None:
                return found
            found.append(int(message.value()))
    finally:
        consumer.close()


ORDERS = {
    "one in flight": ({"enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}, 1),
    "idempotent": ({"enable.idempotence": "true", "max.in.flight.requests.per.connection": "5"}, IN_FLIGHT),
    "neither": ({"enable.idempotence": "false", "max.in.flight.requests.per.connection": "5"}, IN_FLIGHT),
}


@pytest.fixture(scope="module", params=SERVERS)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameRecorder]:
    """A proxy that all clients of a broker of its own go through."""
    port = free_port()
    with FrameRecorder(lambda: port) as recorder:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{recorder.port}",
        }
        with skip_when_unavailable(), STARTERS[request.param](tmp_path_factory.mktemp("faults"), settings):
            yield recorder


@pytest.mark.parametrize("order", ORDERS)
def test_a_lost_response_keeps_the_order_only_with_one_request_in_flight_or_idempotence(
    order: str, proxy: FrameRecorder, run_java: RunJava
) -> None:
    settings, records = ORDERS[order]
    bootstrap, topic = f"127.0.0.1:{proxy.port}", order.replace(" ", "-")
    create_topic(bootstrap, topic)
    proxy.before_response = lose_first_response_after(records, bootstrap, topic)
    flags = [f"{key}={value}" for key, value in settings.items()]
    lines = run_java("ProduceThroughFaults", bootstrap, topic, COUNT, SMALL, *flags, version=VERSION)
    assert lines == [f"stored {COUNT}"]
    log = stored(bootstrap, topic)
    if order == "neither":
        assert set(log) == set(range(COUNT))
        assert log != sorted(log)
    else:
        assert log == [*range(COUNT)] if order == "idempotent" else [0, *range(COUNT)]


def test_a_full_buffer_blocks_the_producer_for_its_time_and_then_fails_the_record(
    proxy: FrameRecorder, run_java: RunJava
) -> None:
    bootstrap, end = f"127.0.0.1:{proxy.port}", threading.Event()
    create_topic(bootstrap, "full")
    proxy.before_response = lose_every_response_until(end)
    flags = ("buffer.memory=40000", "max.block.ms=1000", "enable.idempotence=false")
    try:
        lines = run_java("ProduceThroughFaults", bootstrap, "full", COUNT, LARGE, *flags, version=VERSION)
    finally:
        end.set()
    assert lines == ["BufferExhaustedException is a timeout: true", "blocked for max.block.ms: true"]
