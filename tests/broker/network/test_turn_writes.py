"""When responses wait for the end of a turn, and when those that wait are written."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from broker.network.channel import Channel
from broker.network.connection import Response
from broker.network.turn_writes import AGE_MAX_S, ALONE_MAX, TOGETHER_S, TurnWrites
from tests.broker.network.test_connection import Script, framed, listening, until


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def new_connection() -> Any:
    """Return a connection that notes what becomes of it."""
    events: list[Any] = []
    return SimpleNamespace(
        events=events,
        write_waiting=lambda: events.append("written"),
        channel=SimpleNamespace(sent=lambda *times: events.append(times)),
    )


def test_responses_wait_once_two_connections_have_one_at_the_same_time() -> None:
    writes = TurnWrites(Clock())
    first, second = new_connection(), new_connection()
    writes.note(first, 1.0)
    writes.note(first, 1.0)
    assert not writes.is_worthwhile, "a client that pipelines"
    writes.note(second, 1.0 + 2 * TOGETHER_S)
    assert not writes.is_worthwhile, "one after the other"
    writes.note(first, 1.0 + 2.5 * TOGETHER_S)
    assert writes.is_worthwhile


async def test_what_waits_is_written_at_the_end_of_the_turn_and_then_noted_as_sent() -> None:
    clock = Clock()
    writes = TurnWrites(clock)
    connections = [new_connection() for _ in range(3)]
    for connection in connections:
        writes.add(connection)
    assert [connection.events for connection in connections] == [[]] * 3
    await asyncio.sleep(0)
    assert [connection.events for connection in connections] == [["written", (clock.now_s, clock.now_s)]] * 3
    writes.flush()
    assert len(connections[0].events) == 2, "nothing waits any more"


async def test_a_response_that_is_old_is_written_with_the_next_one() -> None:
    clock = Clock()
    writes = TurnWrites(clock)
    first, second = new_connection(), new_connection()
    writes.add(first)
    clock.now_s += 2 * AGE_MAX_S
    writes.add(second)
    assert first.events == second.events == ["written", (clock.now_s, clock.now_s)]


async def test_responses_do_not_wait_after_many_turns_with_one_response() -> None:
    writes = TurnWrites(Clock())
    writes.is_worthwhile = True
    for _ in range(ALONE_MAX - 1):
        writes.add(new_connection())
        writes.flush()
    assert writes.is_worthwhile
    writes.add(new_connection())
    writes.add(new_connection())
    writes.flush()
    for _ in range(ALONE_MAX):
        assert writes.is_worthwhile
        writes.add(new_connection())
        writes.flush()
    assert not writes.is_worthwhile


class Producers(Script):
    """A request that begins with w completes the awaited one before it gets its own response."""

    def __init__(self, consumer: socket.socket) -> None:
        super().__init__()
        self.received: list[bytes] = []
        """What the consumer had received when its request was completed."""
        self._consumer = consumer

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        if frame[:1] == b"w":
            self.promised[-1].set_result([framed(b"record")])
            self.received.append(self._consumer.recv(100))
        return super().dispatch(frame, channel)


async def test_a_consumer_gets_its_records_before_the_producer_that_wakes_it_gets_a_response() -> None:
    with socket.socket() as consumer, socket.socket() as producer:
        script = Producers(consumer)
        async with listening(script) as (_, port):
            for client in (consumer, producer):
                client.settimeout(10)
                client.connect(("127.0.0.1", port))
            consumer.setblocking(False)
            for number in range(1, 4):
                consumer.sendall(framed(b"p"))
                await until(lambda: len(script.promised) == number)  # noqa: B023 - it is called in this turn
                producer.sendall(framed(b"w"))
                assert await asyncio.to_thread(producer.recv, 100) == framed(b"w")
            assert script.received == [framed(b"record")] * 3
