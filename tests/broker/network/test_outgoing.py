"""Connections to other brokers: order, limits, and peers that misbehave."""

import asyncio
import itertools
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from broker.loop.clock import SystemClock
from broker.network.network import SocketOptions
from broker.network.os_network import OsNetwork
from broker.network.outgoing import (
    OutgoingConnection,
    Pauses,
    PeerUnavailable,
    RequestAbandoned,
    SetupTimeouts,
    encrypted,
    plaintext,
)
from config.addresses import HostAndPort
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader, read_request_header, response_header
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.replica.replicas import until
from tests.sim.network import SimulatedNetwork
from tests.sim.test_broker import MINUTE_US
from tests.sim.world import World
from tests.support.manual_clock import ManualClock

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
TIMEOUT_MS = 5_000
Responder = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize("open_transport", [plaintext, partial(encrypted, context=lambda: None)])
async def test_buffer_sizes_that_are_not_given_are_chosen_by_the_kernel(open_transport: Any) -> None:
    given: list[SocketOptions] = []

    async def connect(protocol: object, host: str, port: int, options: SocketOptions, tls: object = None) -> None:
        given.append(options)

    await open_transport(SimpleNamespace(connect=connect))(asyncio.BufferedProtocol(), HostAndPort("h", 1))
    await open_transport(SimpleNamespace(connect=connect), receive_buffer_bytes=7)(None, HostAndPort("h", 1))
    sizes = [(options.send_buffer_bytes, options.receive_buffer_bytes) for options in given]
    assert sizes == [(-1, -1), (-1, 7)]


class Asked:
    """A request as the peer got it."""

    def __init__(self, frame: bytes) -> None:
        self.header: RequestHeader
        self.header, position = read_request_header(memoryview(frame))
        self.request = decode(APIS[self.header.api_key].request, self.header.api_version, frame, position)

    def response_frame(self, response: object) -> bytes:
        payload = response_header(self.header.api_key, self.header.api_version, self.header.correlation_id)
        payload += b"".join(map(bytes, encode(response, self.header.api_version)))
        return struct.pack(">i", len(payload)) + payload


async def asked(reader: asyncio.StreamReader) -> Asked:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return Asked(await reader.readexactly(size))


def echo(seen: list[Asked]) -> Responder:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await asked(reader)
            seen.append(request)
            writer.write(request.response_frame(HeartbeatResponse(error_code=len(seen))))

    return serve


@asynccontextmanager
async def peer(serve: Responder) -> AsyncIterator[HostAndPort]:
    """Serve each connection with `serve`, and close it when that returns."""
    connections = list[asyncio.StreamWriter]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield HostAndPort(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for writer in connections:
            writer.transport.abort()
        await server.wait_closed()


def in_thread(work: Callable[[], Any]) -> Awaitable[Any]:
    return asyncio.get_running_loop().run_in_executor(None, work)


def connection_to(address: HostAndPort | None, **options: Any) -> OutgoingConnection:
    return OutgoingConnection(
        "broker 7",
        lambda: address,
        plaintext(OsNetwork()),
        "tester",
        SystemClock(),
        random.Random(1),
        compute=in_thread,
        **options,
    )


async def test_responses_come_to_their_requests_in_the_order_of_the_calls() -> None:
    seen: list[Asked] = []
    async with peer(echo(seen)) as address:
        connection = connection_to(address)
        asking = [connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS) for _ in range(10)]
        assert [it.error_code for it in await asyncio.gather(*asking)] == list(range(1, 11))
        assert [it.header.correlation_id for it in seen] == list(range(10))
        assert {(it.header.client_id, it.header.api_version) for it in seen} == {("tester", 4)}
        connection.close()


async def test_only_one_request_is_in_flight() -> None:
    waiting: list[tuple[Asked, asyncio.StreamWriter]] = []
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            waiting.append((await asked(reader), writer))
            arrived.set()

    async with peer(serve) as address:
        connection = connection_to(address)
        asking = [asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)) for _ in range(2)]
        for task in asking:
            await arrived.wait()
            arrived.clear()
            assert len(waiting) == 1
            request, writer = waiting.pop()
            writer.write(request.response_frame(HeartbeatResponse(error_code=0)))
            await task
        connection.close()


async def test_controlled_shutdown_v0_has_no_client_id() -> None:
    seen: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await asked(reader))
        writer.write(seen[0].response_frame(ControlledShutdownResponse(error_code=0, remaining_partitions=[])))

    async with peer(serve) as address:
        connection = connection_to(address)
        await connection.ask(ControlledShutdownRequest(broker_id=3), 0, timeout_ms=TIMEOUT_MS)
        assert seen[0].header.client_id is None
        connection.close()


async def hostile(content: Callable[[Asked], bytes], **options: Any) -> str:
    """Return why a connection was given up whose peer sends `content` in response, and then waits."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content(await asked(reader)))
        await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address, **options)
        with pytest.raises(PeerUnavailable) as caught:
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert f"broker 7 at {address.host}:{address.port}" in str(caught.value)
        assert not connection.is_connected
        return str(caught.value)


@pytest.mark.parametrize("size", [-1, 0, 1001, 0x48545450, 0x7FFFFFFF])
async def test_impossible_length_closes_the_connection(size: int) -> None:
    reason = await hostile(lambda request: struct.pack(">i", size) + bytes(100), response_size_max=1000)
    assert f"a frame of {size} bytes" in reason


async def test_other_correlation_id_closes_the_connection() -> None:
    def other(request: Asked) -> bytes:
        frame = bytearray(request.response_frame(HeartbeatResponse(error_code=0)))
        frame[7] ^= 1
        return bytes(frame)

    assert "correlation id 1, expected 0" in await hostile(other)


async def test_response_that_cannot_be_decoded_closes_the_connection() -> None:
    assert "malformed response to Heartbeat v4" in await hostile(lambda request: struct.pack(">iib", 5, 0, 0))


async def test_bytes_after_a_response_close_the_connection() -> None:
    assert "after the end" in await hostile(
        lambda request: request.response_frame(HeartbeatResponse(error_code=0)) + b"!"
    )


async def test_bytes_that_nobody_requested_close_the_connection_and_leave_the_last_response_alone() -> None:
    records = bytes(range(256)) * 1000
    closed = asyncio.Event()
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await asked(reader)
        data = PartitionData(partition_index=0, high_watermark=0, records=records, aborted_transactions=None)
        writer.write(
            request.response_frame(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])]))
        )
        await go_on.wait()
        writer.write(b"garbage")
        with suppress(ConnectionError):
            await reader.read()
        closed.set()

    async with peer(serve) as address:
        connection = connection_to(address)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=-1, topics=[])
        response = await connection.ask(fetch, 11, timeout_ms=TIMEOUT_MS)
        go_on.set()
        await closed.wait()
        assert bytes(response.responses[0].partitions[0].records) == records
        assert not connection.is_connected


@pytest.mark.parametrize("sent", [0, 3, 4, 9])
async def test_peer_that_stops_in_the_middle_is_given_up_after_the_timeout(sent: int) -> None:
    frame_of: Callable[[Asked], bytes] = lambda request: request.response_frame(HeartbeatResponse(error_code=0))[:sent]  # noqa: E731

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame_of(await asked(reader)))
        assert not await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address)
        with pytest.raises(PeerUnavailable, match="no response within 20 ms"):
            await connection.ask(REQUEST, 4, timeout_ms=20)
        assert not connection.is_connected


async def test_peer_that_never_reads_is_given_up_after_the_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.get_running_loop().create_future()

    async with peer(serve) as address:
        connection = connection_to(address)
        with pytest.raises(PeerUnavailable):
            await connection.ask(
                HeartbeatRequest(group_id="g", generation_id=1, member_id="m" * 30_000), 4, timeout_ms=20
            )


async def test_lost_connection_is_reported_and_opened_again() -> None:
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        request = await asked(reader)
        served += 1
        if served > 1:
            writer.write(request.response_frame(HeartbeatResponse(error_code=0)))

    async with peer(serve) as address:
        connection = connection_to(address)
        with pytest.raises(PeerUnavailable, match="the peer closed the connection"):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert (await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)).error_code == 0
        connection.close()


async def test_cancelled_request_does_not_confuse_the_next_one() -> None:
    seen: list[Asked] = []
    first_arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await asked(reader)
        seen.append(request)
        if len(seen) == 1:
            first_arrived.set()
            await reader.read()
        writer.write(request.response_frame(HeartbeatResponse(error_code=len(seen))))

    async with peer(serve) as address:
        connection = connection_to(address)
        first = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
        await first_arrived.wait()
        first.cancel()
        assert (await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)).error_code == 2
        assert first.cancelled()
        connection.close()


async def test_abandoned_request_does_not_delay_the_next_one() -> None:
    seen: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await asked(reader))
        if len(seen) > 1:
            writer.write(seen[-1].response_frame(HeartbeatResponse(error_code=2)))
        await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address, pauses=Pauses(first_ms=60_000, longest_ms=60_000))
        assert not connection.abandon(), "nothing was sent"
        asking = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
        await until(lambda: seen)
        assert connection.abandon()
        with pytest.raises(RequestAbandoned):
            await asking
        assert (await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)).error_code == 2
        assert not connection.abandon(), "the response has come"
        connection.close()


async def test_request_whose_response_arrives_is_not_abandoned() -> None:
    may_go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = (await asked(reader)).response_frame(HeartbeatResponse(error_code=2))
        writer.write(frame[:3])
        await may_go_on.wait()
        writer.write(frame[3:])
        await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address)
        asking = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
        await until(lambda: connection._link is not None and connection._link._received_size)
        assert not connection.abandon()
        may_go_on.set()
        assert (await asking).error_code == 2
        connection.close()


async def test_closed_connection_fails_the_request_in_flight_and_all_later_ones() -> None:
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        arrived.set()
        await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address)
        asking = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
        await arrived.wait()
        connection.close()
        for failing in (asking, connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)):
            with pytest.raises(PeerUnavailable, match="closed"):
                await failing


async def test_unknown_address_is_unavailable() -> None:
    with pytest.raises(PeerUnavailable, match="broker 7 is unavailable: its address is not known"):
        await connection_to(None).ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)


class Unreachable(OsNetwork):
    """Neither connects nor fails."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def connect(self, *_: Any, **__: Any) -> asyncio.Transport:
        self.asked.set()
        return await asyncio.get_running_loop().create_future()


async def test_close_ends_an_attempt_to_connect() -> None:
    network = Unreachable()
    connection = connection_to(HostAndPort("10.0.0.1", 9))
    connection._open_transport = plaintext(network)
    asking = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
    await network.asked.wait()
    connection.close()
    with pytest.raises(PeerUnavailable, match="the connection was closed"):
        await asking


async def test_cancelled_attempt_to_connect_is_no_lost_connection() -> None:
    network = Unreachable()
    connection = connection_to(HostAndPort("10.0.0.1", 9))
    connection._open_transport = plaintext(network)
    asking = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
    await network.asked.wait()
    asking.cancel()
    connection.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_requests_leave_a_host_that_the_peer_has_left() -> None:
    arrived = asyncio.Event()

    async def halted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        arrived.set()
        await reader.read()

    seen: list[Asked] = []
    async with peer(halted) as old, peer(echo(seen)) as new:
        addresses = [old]
        connection = connection_to(None)
        connection._address = lambda: addresses[-1]
        asking = asyncio.ensure_future(connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS))
        await arrived.wait()
        connection.leave_old_address()
        await asyncio.sleep(0)
        assert not asking.done()
        addresses.append(new)
        connection.leave_old_address()
        with pytest.raises(PeerUnavailable, match="the connection was closed"):
            await asking
        assert (await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)).error_code == 1
        connection.close()


async def test_each_attempt_to_connect_that_expires_doubles_the_next_timeout() -> None:
    connection = connection_to(HostAndPort("10.0.0.1", 9), setup_timeouts=SetupTimeouts(5, 15), pauses=Pauses(1, 1))
    connection._open_transport = plaintext(Unreachable())
    for expected_ms in (5, 10, 15, 15):
        with pytest.raises(PeerUnavailable, match=rf"no connection within {expected_ms} ms"):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
    with pytest.raises(PeerUnavailable, match="no response within 3 ms"):
        await connection.ask(REQUEST, 4, timeout_ms=3)


def versions_of(heartbeat: range) -> ApiVersionsResponse:
    api = ApiVersion(api_key=12, min_version=heartbeat.start, max_version=heartbeat.stop - 1)
    return ApiVersionsResponse(api_keys=[api])


@pytest.mark.parametrize(("served", "used"), [(range(5), 4), (range(3), 2), (range(1, 100), 4)])
async def test_connection_that_asks_versions_uses_the_highest_of_both(served: range, used: int) -> None:
    seen: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await asked(reader)
            seen.append(request)
            is_first = len(seen) == 1
            writer.write(request.response_frame(versions_of(served) if is_first else HeartbeatResponse(error_code=0)))

    async with peer(serve) as address:
        connection = connection_to(address, asks_versions=True)
        for _ in range(2):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert [it.header[:2] for it in seen] == [(18, 4), (12, used), (12, used)]
        assert seen[0].request.client_software_name == "milena"
        connection.close()


async def test_older_peer_that_refuses_the_version_of_api_versions_is_asked_in_its_own() -> None:
    seen: list[Asked] = []

    def respond(request: Asked) -> bytes:
        if request.header.api_key != 18:
            return request.response_frame(HeartbeatResponse(error_code=0))
        apis = [ApiVersion(api_key=18, min_version=0, max_version=3), *versions_of(range(3)).api_keys]
        if request.header.api_version == 3:
            return request.response_frame(ApiVersionsResponse(api_keys=apis))
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=apis[:1])
        payload = response_header(18, 4, request.header.correlation_id) + b"".join(map(bytes, encode(refusal, 0)))
        return struct.pack(">i", len(payload)) + payload

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await asked(reader))
            writer.write(respond(seen[-1]))

    async with peer(serve) as address:
        connection = connection_to(address, asks_versions=True)
        for _ in range(2):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert [it.header[:2] for it in seen] == [(18, 4), (18, 3), (12, 2), (12, 2)]
        connection.close()


@pytest.mark.parametrize("served", [-1, 4, 99])
async def test_peer_that_refuses_the_version_it_serves_is_unavailable(served: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await asked(reader)
        refusal = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=served)],
        )
        payload = response_header(18, 4, request.header.correlation_id) + b"".join(map(bytes, encode(refusal, 0)))
        writer.write(struct.pack(">i", len(payload)) + payload)
        await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address, asks_versions=True)
        with pytest.raises(PeerUnavailable):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert not connection.is_connected
        connection.close()


@pytest.mark.parametrize("served", [range(5, 9), range(0)])
async def test_peer_without_a_common_version_is_reported(served: range) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            (await asked(reader)).response_frame(versions_of(served) if served else ApiVersionsResponse(api_keys=[]))
        )
        await reader.read()

    async with peer(serve) as address:
        connection = connection_to(address, asks_versions=True)
        with pytest.raises(KafkaError) as caught:
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
        connection.close()


@pytest.mark.parametrize("size", [100, 20_000, 3_000_000])
async def test_record_sets_are_writable_views_that_the_next_request_replaces(size: int) -> None:
    def response(fill: int) -> FetchResponse:
        data = PartitionData(
            partition_index=0, high_watermark=0, records=bytes([fill]) * size, aborted_transactions=None
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for fill in (1, 2, 3):
            writer.write((await asked(reader)).response_frame(response(fill)))

    async with peer(serve) as address:
        connection = connection_to(address)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=-1, topics=[])
        records = []
        for fill in (1, 2, 3):
            got = await connection.ask(fetch, 11, timeout_ms=TIMEOUT_MS)
            records.append(got.responses[0].partitions[0].records)
            assert not records[-1].readonly
            assert bytes(records[-1]) == bytes([fill]) * size
        assert bytes(records[1]) == bytes([3]) * size, "the buffer is used again"
        connection.close()


def test_pauses_between_attempts_grow_to_a_second() -> None:
    with World(1) as world:
        network = SimulatedNetwork(world)
        loop = world.new_loop("client")
        attempts: list[float] = []

        class VirtualClock(SystemClock):
            def monotonic_ms(self) -> int:
                return round(loop.time() * 1000)

        def address() -> HostAndPort:
            attempts.append(loop.time())
            return HostAndPort("nowhere", 1)

        async def main() -> None:
            connection = OutgoingConnection(
                "broker 7",
                address,
                plaintext(network.host("client", loop)),  # type: ignore[arg-type]
                "tester",
                VirtualClock(),
                random.Random(3),
                compute=in_thread,
            )
            for _ in range(10):
                with pytest.raises(PeerUnavailable, match="broker 7 at nowhere:1 is unavailable"):
                    await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)

        task = loop.start(main())
        assert world.run_until(task.done, limit_us=MINUTE_US)
        task.result()
        pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
        for pause, expected in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1), strict=False):
            assert 0.79 * expected <= pause <= 1.21 * expected + 0.005


@pytest.mark.parametrize("error", [ValueError("ours"), RuntimeError("ours")])
async def test_connection_whose_login_failed_unexpectedly_is_not_used(error: Exception) -> None:
    """Its requests would be sent without a login."""
    seen: list[Asked] = []
    logins: list[Exception | None] = [error, None]

    async def log_in(exchange: Callable[[Any, int], Awaitable[Any]], host: str) -> int:
        outcome = logins.pop(0)
        if outcome is not None:
            raise outcome
        return 0

    async with peer(echo(seen)) as address:
        connection = connection_to(address, log_in=log_in)
        with pytest.raises(type(error)):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert not connection.is_connected
        assert not seen
        await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
        assert len(seen) == 1
        connection.close()


@pytest.mark.parametrize(("lifetime_ms", "logins_at_ms"), [(10_000, [0, 8_500, 17_000]), (0, [0])])
async def test_login_is_repeated_with_the_first_request_after_most_of_its_life(
    lifetime_ms: int, logins_at_ms: list[int]
) -> None:
    clock = ManualClock()
    started_ms = clock.monotonic_ms()
    logins: list[int] = []

    async def log_in(exchange: Callable[[Any, int], Awaitable[Any]], host: str) -> int:
        logins.append(clock.monotonic_ms() - started_ms)
        return lifetime_ms

    async with peer(echo([])) as address:
        connection = OutgoingConnection(
            "broker 7",
            lambda: address,
            plaintext(OsNetwork()),
            "tester",
            clock,
            random.Random(1),
            compute=in_thread,
            log_in=log_in,
        )
        for _ in range(40):
            await connection.ask(REQUEST, 4, timeout_ms=TIMEOUT_MS)
            clock.advance(500)
        assert logins == logins_at_ms
        assert connection.counts.opened == 1
        connection.close()
