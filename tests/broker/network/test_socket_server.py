"""Several listeners over real sockets: limits that they share."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from broker.network.channel import Channel
from broker.network.connection import Buffers, Dispatcher
from broker.network.connection_quotas import ConnectionLimits, ListenerLimits
from broker.network.descriptors import DescriptorBudget
from broker.network.listener import ListenerSettings
from broker.network.network import ListenError
from broker.network.os_network import OsNetwork
from broker.network.request_memory import AccountedConnection
from broker.network.socket_server import SocketServer
from config.listeners import Listener as Address
from config.listeners import SecurityProtocol
from tests.broker.network.test_connection import CLOCK, Script, framed, read_frame, until
from tests.support.parts import need_ipv6, skip_when_unavailable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Moody:
    """Returns the number at the start of each request, synchronously or later, with few or many bytes after it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def dispatch(self, frame: memoryview, channel: Channel) -> Buffers | asyncio.Future[Buffers | None] | None:
        size = self._rng.choice((0, 0, 10, 1000, 300_000))
        response: Buffers = [struct.pack(">i", 4 + size) + frame[:4], bytes(size)]
        if self._rng.random() < 0.6:
            return response
        later: asyncio.Future[Buffers | None] = asyncio.get_running_loop().create_future()
        delay_s = self._rng.choice((0, 0.001, 0.005))
        asyncio.get_running_loop().call_later(delay_s, lambda: later.done() or later.set_result(response))
        return later


class Served:
    """A socket server and its connections."""

    def __init__(self, server: SocketServer) -> None:
        self.server = server
        self.writers: list[asyncio.StreamWriter] = []

    async def connected(self, name: str) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.ports[name])
        self.writers.append(writer)
        return reader, writer


def new_server(settings: ListenerSettings) -> SocketServer:
    return SocketServer(
        OsNetwork(),
        settings,
        ConnectionLimits(),
        CLOCK,
        descriptors=DescriptorBudget(1 << 20),
        address_rate=lambda host: None,
        new_principal_builder=lambda listener: None,
    )


@asynccontextmanager
async def serving(
    limits: ConnectionLimits,
    *names: str,
    dispatcher: Dispatcher | None = None,
    control_plane: str | None = None,
    descriptors: DescriptorBudget | None = None,
    **settings: int,
) -> AsyncIterator[Served]:
    listener_settings = ListenerSettings(request_size_max=1 << 20, **settings)
    server = SocketServer(
        OsNetwork(),
        listener_settings,
        limits,
        CLOCK,
        control_plane,
        descriptors=descriptors or DescriptorBudget(1 << 20),
        address_rate=lambda host: None,
        new_principal_builder=lambda listener: None,
    )
    server.bind([Address(name, "127.0.0.1", 0, SecurityProtocol.PLAINTEXT) for name in names])
    server.start(dispatcher or Script())
    served = Served(server)
    try:
        yield served
    finally:
        for writer in served.writers:
            writer.close()
        server.stop_accepting()
        server.close_connections()
        await until(lambda: server.quotas.count == 0)


async def is_served(streams: Streams) -> bool:
    """Whether an echo comes back, and not the end of the connection."""
    reader, writer = streams
    writer.write(framed(b"e"))
    try:
        return await read_frame(reader) == b"e"
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


async def is_waiting(streams: Streams) -> bool:
    """Whether an open connection gets no response to a request for now. The next `read_frame` reads it."""
    reader, writer = streams
    writer.write(framed(b"e"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await reader.read(1)
    return True


async def is_closed(streams: Streams) -> bool:
    async with asyncio.timeout(10):
        try:
            return await streams[0].read() == b""
        except ConnectionError:
            return True


async def test_connection_at_the_broker_limit_waits_until_another_closes() -> None:
    async with serving(ConnectionLimits(connections_max=2), "A", "B") as served:
        first, second = await served.connected("A"), await served.connected("B")
        assert await is_served(first)
        assert await is_served(second)
        third = await served.connected("B")
        assert await is_waiting(third), "it is in the backlog"
        first[1].close()
        async with asyncio.timeout(10):
            assert await read_frame(third[0]) == b"e", "requests that it had sent get their responses"
        assert served.server.quotas.count == 2


async def test_raised_limit_admits_waiting_connections() -> None:
    async with serving(ConnectionLimits(by_listener={"A": ListenerLimits(connections_max=1)}), "A", "B") as served:
        assert await is_served(await served.connected("A"))
        waiting = await served.connected("A")
        assert await is_waiting(waiting)
        assert await is_served(await served.connected("B")), "the other listener has room"
        served.server.quotas.reconfigure(ConnectionLimits(by_listener={"A": ListenerLimits(connections_max=2)}))
        async with asyncio.timeout(10):
            assert await read_frame(waiting[0]) == b"e"


async def test_connection_of_a_broker_replaces_that_of_the_longest_idle_client() -> None:
    limits = ConnectionLimits(connections_max=3, protected_listener="INTERNAL")
    async with serving(limits, "CLIENT", "INTERNAL") as served:
        clients = [await served.connected("CLIENT") for _ in range(3)]
        for client in clients:
            assert await is_served(client)
        await asyncio.sleep(0.02)  # the kernel counts idle time in its own ticks of some milliseconds
        assert await is_served(clients[0])
        await asyncio.sleep(0.02)
        assert await is_served(clients[2])
        broker = await served.connected("INTERNAL")
        assert await is_served(broker)
        assert await is_closed(clients[1])
        assert await is_served(clients[0])
        assert await is_served(clients[2])
        assert served.server.quotas.count == 3


async def test_controller_requests_are_read_while_data_requests_wait() -> None:
    async with serving(ConnectionLimits(), "DATA", "CONTROL", control_plane="CONTROL") as served:
        data, control = await served.connected("DATA"), await served.connected("CONTROL")
        assert await is_served(data)
        served.server.hold()
        assert await is_served(control)
        assert await is_served(await served.connected("CONTROL")), "also one that connects now"
        assert await is_waiting(data)
        served.server.release()
        async with asyncio.timeout(10):
            assert await read_frame(data[0]) == b"e"


async def test_controller_requests_use_no_memory_of_data_requests() -> None:
    names = "DATA", "CONTROL"
    async with serving(ConnectionLimits(), *names, control_plane="CONTROL", queued_request_bytes_max=1) as served:
        data, control = await served.connected("DATA"), await served.connected("CONTROL")
        data[1].write(framed(b"e" * 1000)[:-1])
        memory = served.server.request_memory
        assert memory is not None
        await until(lambda: memory.size_left < 0)
        request = framed(b"e" * 1000)
        control[1].write(request[:500])
        (listener,) = (listener for listener in served.server.listeners if listener.name == "CONTROL")
        await until(lambda: any(cast(AccountedConnection, one).arriving_size for one in listener.connections()))
        control[1].write(request[500:])
        async with asyncio.timeout(10):
            assert await read_frame(control[0]) == b"e" * 1000


async def test_connections_above_the_rate_are_accepted_later() -> None:
    limits = ConnectionLimits(creation_rate_max=20, window_count=2, window_ms=100)
    async with serving(limits, "A") as served:
        started = asyncio.get_running_loop().time()
        crowd = [await served.connected("A") for _ in range(6)]
        for client in crowd:
            client[1].write(framed(b"e"))
        for client in crowd:
            assert await read_frame(client[0]) == b"e"
        # Two of six are within the rate of the first 100 ms; the others come one by one, 50 ms apart.
        assert asyncio.get_running_loop().time() - started >= 0.1


async def test_delayed_connection_is_closed_with_the_listener() -> None:
    limits = ConnectionLimits(creation_rate_max=1, window_count=2, window_ms=60_000)
    async with serving(limits, "A") as served:
        for _ in range(61):
            waiting = await served.connected("A")
        await until(lambda: served.server.quotas.count == 61)
        served.server.stop_accepting()
        assert await is_closed(waiting)


async def test_large_requests_wait_for_memory_and_small_ones_do_not() -> None:
    large = framed(b"e" + bytes(500_000))
    async with serving(ConnectionLimits(), "A", queued_request_bytes_max=400_000) as served:
        first, second, small = [await served.connected("A") for _ in range(3)]
        first[1].write(large[:1000])
        await asyncio.sleep(0.02)
        second[1].write(large)
        assert await is_served(small)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await read_frame(second[0])
        first[1].write(large[1000:])
        assert len(await read_frame(first[0])) == 500_001
        assert len(await read_frame(second[0])) == 500_001


async def test_memory_of_an_incomplete_request_is_released_with_its_connection() -> None:
    large = framed(b"e" + bytes(500_000))
    async with serving(ConnectionLimits(), "A", queued_request_bytes_max=400_000) as served:
        first, second = await served.connected("A"), await served.connected("A")
        first[1].write(large[:1000])
        await asyncio.sleep(0.02)
        second[1].write(large[:400_000])
        await asyncio.sleep(0.02)
        first[1].close()
        second[1].write(large[400_000:])
        assert len(await read_frame(second[0])) == 500_001


async def test_no_connection_is_read_while_the_request_queue_is_full() -> None:
    async with serving(ConnectionLimits(), "A", "B") as served:
        clients = [await served.connected(name) for name in "AB"]
        for client in clients:
            assert await is_served(client)
        served.server.hold()
        clients += [await served.connected(name) for name in "AB"]
        await until(lambda: served.server.quotas.count == len(clients))
        await asyncio.sleep(0.02)  # taken in to the end
        for client in clients:
            assert await is_waiting(client)
        served.server.release()
        for client in clients:
            assert await read_frame(client[0]) == b"e"
            assert await is_served(client)


@pytest.mark.parametrize("seed", range(2))
async def test_every_request_gets_one_response_in_order_despite_holds(seed: int) -> None:
    """Random combinations of turns, delayed responses, slow readers, little memory, and holds of all connections."""
    rng = random.Random(seed)
    count = 100

    async def send(writer: asyncio.StreamWriter) -> None:
        number = 0
        while number < count:
            requests = bytearray()
            for _ in range(min(rng.choice((1, 5, 200)), count - number)):
                size = rng.choice((0, 10, 1000, 60_000))
                requests += struct.pack(">ii", 4 + size, number) + bytes(size)
                number += 1
            while requests:
                piece = rng.choice((1, 5, 3000, len(requests)))
                writer.write(bytes(requests[:piece]))
                del requests[:piece]
                await asyncio.sleep(rng.choice((0, 0, 0.001)))
                await writer.drain()

    async def receive(reader: asyncio.StreamReader) -> list[int]:
        numbers = []
        for _ in range(count):
            if rng.random() < 0.02:
                await asyncio.sleep(0.01)
            numbers.append(struct.unpack_from(">i", await read_frame(reader))[0])
        return numbers

    async def interfere(server: SocketServer) -> None:
        while True:
            server.hold()
            await asyncio.sleep(rng.choice((0, 0.002)))
            server.release()
            await asyncio.sleep(rng.choice((0, 0.002, 0.01)))

    settings = {"queued_request_bytes_max": 100_000, "send_buffer_bytes": 20_000}
    async with serving(ConnectionLimits(), "A", "B", dispatcher=Moody(rng), **settings) as served:
        clients = [await served.connected(name) for name in "AABBB"]
        leaving = await served.connected("A")
        leaving[1].write(struct.pack(">ii", 60_004, 0))
        interfering = asyncio.create_task(interfere(served.server))
        sending = [asyncio.create_task(send(writer)) for _, writer in clients]
        receiving = [asyncio.create_task(receive(reader)) for reader, _ in clients]
        await asyncio.sleep(0.05)
        leaving[1].close()
        async with asyncio.timeout(30):
            assert await asyncio.gather(*receiving) == [list(range(count))] * len(clients)
            await asyncio.gather(*sending)
        interfering.cancel()


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1"]),
        ("", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("", ["127.0.0.1", "::1"]),
    ],
)
async def test_listeners_bind_ipv4_and_ipv6_addresses(host: str, reached: list[str]) -> None:
    """An empty host is every address; both families then share one port, also when it is any free one."""
    if "::1" in reached:
        with skip_when_unavailable():
            need_ipv6()
    server = new_server(ListenerSettings(request_size_max=1 << 20))
    server.bind([Address("A", host, 0, SecurityProtocol.PLAINTEXT)])
    server.start(Script())
    try:
        for address in reached:
            reader, writer = await asyncio.open_connection(address, server.ports["A"])
            assert await is_served((reader, writer))
            writer.close()
    finally:
        server.stop_accepting()
        server.close_connections()


class Descriptors(DescriptorBudget):
    """A budget of 1,000 descriptors that is measured anew each time."""

    def __init__(self) -> None:
        super().__init__(1000, lambda: self.files + self.connections())
        self.files = 100
        self.connections: Callable[[], int] = lambda: 0

    def has_room(self, connections: int, now_s: float, *, is_protected: bool = False) -> bool:
        self._measured_again_s = now_s
        return super().has_room(connections, now_s, is_protected=is_protected)


async def test_new_connections_wait_while_files_need_descriptors_and_open_ones_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    descriptors = Descriptors()
    async with serving(ConnectionLimits(), "A", descriptors=descriptors) as served:
        descriptors.connections = lambda: served.server.quotas.count
        first = await served.connected("A")
        assert await is_served(first)
        descriptors.files = 990
        for _ in range(5):
            assert not await is_served(await served.connected("A"))
        assert await is_served(first)
        (listener,) = served.server.listeners
        assert (listener.refused_count, listener.connection_count, served.server.quotas.count) == (5, 1, 1)
        descriptors.files = 100
        assert await is_served(await served.connected("A"))
    assert caplog.text.count("refused a connection from 127.0.0.1") == 1


async def test_longest_idle_connections_are_closed_for_files(caplog: pytest.LogCaptureFixture) -> None:
    descriptors = Descriptors()
    async with serving(ConnectionLimits(), "A", descriptors=descriptors) as served:
        descriptors.connections = lambda: served.server.quotas.count
        clients = [await served.connected("A") for _ in range(130)]
        for client in clients:
            assert await is_served(client)
        await asyncio.sleep(0.05)  # what the kernel counts idle in milliseconds
        for client in clients[3:]:
            assert await is_served(client)
        descriptors.files = 1000 - 130 - 123
        descriptors._measured_again_s = 0
        served.server._leave_descriptors_to_files()
        assert served.server.closed_for_files_count == 0, "more than half of the reserve is free"
        descriptors.files = 1000 - 130 - 60
        for _ in range(100):
            served.server.quotas.turn_away()
        descriptors._measured_again_s = 0
        served.server._leave_descriptors_to_files()
        assert served.server.closed_for_files_count == 0, "those that were turned away close soon"
        for _ in range(100):
            served.server.quotas.close_turned_away()
        descriptors._measured_again_s = 0
        served.server._leave_descriptors_to_files()
        assert served.server.closed_for_files_count == 5, "as many as the connections are more than their share"
        await until(lambda: served.server.quotas.count == 125)
        assert not any([await is_served(client) for client in clients[:3]])
    assert caplog.text.count("closing 5 connections") == 1


async def test_address_in_use_releases_the_other_listeners() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = int(other.getsockname()[1])
        server = new_server(ListenerSettings(request_size_max=1 << 20))
        addresses = [Address("A", "127.0.0.1", 0, SecurityProtocol.PLAINTEXT)]
        server.bind(addresses)
        with pytest.raises(ListenError, match=str(taken)):
            server.bind([Address("B", "127.0.0.1", taken, SecurityProtocol.PLAINTEXT)])
        port = server.ports["A"]
        server.stop_accepting()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


async def test_sockets_have_the_configured_buffers_and_do_not_wait_to_fill_packets() -> None:
    settings = ListenerSettings(request_size_max=1 << 20, send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
    server = new_server(settings)
    server.bind([Address("A", "127.0.0.1", 0, SecurityProtocol.PLAINTEXT)])
    server.start(Script())
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["A"])
        assert await is_served((reader, writer))
        ((connection,),) = [list(listener.connections()) for listener in server.listeners]
        assert connection._transport is not None
        stream = connection._transport.get_extra_info("socket")
        # Linux doubles what is asked for, for its own bookkeeping.
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
    finally:
        server.stop_accepting()
        server.close_connections()
