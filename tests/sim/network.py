"""The network between simulated processes: TCP connections that deliver bytes late, but in order.

Owns: connections, their delays, and links that are cut. Must not know what is sent.

Every step belongs to the process that it concerns: a paused process receives nothing until it continues, a killed one
never does. Its kernel closes its connections, unless the whole machine is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from broker.network.network import Arrival, ListenError, ListeningPort, SocketOptions
from tests.sim.world import ProcessLoop, World

DELAY_US_MIN: Final = 20
DELAY_US_MAX: Final = 400
FIRST_PORT: Final = 10_000

Protocol = asyncio.Protocol | asyncio.BufferedProtocol


class SimulatedNetwork:
    """All hosts, the ports that they listen on, and the open connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ports: dict[tuple[str, int], SimulatedPort] = {}
        self._ends: list[SimulatedTransport] = []
        self._cut: set[frozenset[str]] = set()
        self._next_port = FIRST_PORT

    def host(self, name: str, loop: ProcessLoop) -> SimulatedHost:
        """Return the network as the process of `loop` uses it, which runs on the host `name`."""
        return SimulatedHost(self, name, loop)

    def cut(self, one: str, other: str) -> None:
        """Deliver nothing between two hosts until `mend`; what is sent before arrives then: TCP sends it again."""
        self._cut.add(frozenset((one, other)))

    def mend(self, one: str, other: str) -> None:
        self._cut.discard(frozenset((one, other)))
        for end in self._ends:
            if {end.host, end.peer_host} == {one, other}:
                end.send_again()

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cut

    def process_died(self, loop: ProcessLoop) -> None:
        """Close the ports and connections of a killed process, as the kernel of its machine does."""
        self._ports = {address: port for address, port in self._ports.items() if port.loop is not loop}
        for end in [end for end in self._ends if end.loop is loop]:
            end.reset()

    def listen(self, host: str, port: int, loop: ProcessLoop) -> SimulatedPort:
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        if (host, port) in self._ports:
            raise ListenError(f"cannot listen on {host}:{port}: Address already in use")
        opened = self._ports[host, port] = SimulatedPort(self, host, port, loop)
        return opened

    def close_port(self, host: str, port: int) -> None:
        self._ports.pop((host, port), None)

    def port_at(self, host: str, port: int) -> SimulatedPort | None:
        return self._ports.get((host, port))

    def connection(self, client: SimulatedHost, port: SimulatedPort) -> tuple[SimulatedTransport, SimulatedTransport]:
        """Return the two ends of a new connection: the client's and the listener's."""
        here = SimulatedTransport(self, client.name, client.loop)
        there = SimulatedTransport(self, port.host, port.loop)
        here.peer, there.peer = there, here
        self._ends += here, there
        return here, there

    def forget(self, end: SimulatedTransport) -> None:
        if end in self._ends:
            self._ends.remove(end)

    def delay_us(self) -> int:
        return self.world.random.randint(DELAY_US_MIN, DELAY_US_MAX)


class SimulatedHost:
    """`Network` of one process, and the way to open connections from it."""

    def __init__(self, network: SimulatedNetwork, name: str, loop: ProcessLoop) -> None:
        self.name = name
        self.loop = loop
        self._network = network

    def listen(self, host: str, port: int, options: SocketOptions) -> Sequence[ListeningPort]:
        return [self._network.listen(self.name, port, self.loop)]

    async def connect(self, protocol: Protocol, host: str, port: int) -> SimulatedTransport:
        """Connect to a listening process. Raises ConnectionRefusedError; waits while the link is cut."""
        network = self._network
        while True:
            await asyncio.sleep(2 * network.delay_us() / 1_000_000)
            if not network.is_cut(self.name, host):
                break
        target = network.port_at(host, port)
        if target is None:
            raise ConnectionRefusedError(f"{host}:{port}")
        here, there = network.connection(self, target)
        here.begin(protocol)
        target.arrive(SimulatedArrival(self.name, there))
        return here


class SimulatedPort:
    """`ListeningPort` of one process."""

    def __init__(self, network: SimulatedNetwork, host: str, port: int, loop: ProcessLoop) -> None:
        self.host = host
        self.port = port
        self.loop = loop
        self._network = network
        self._backlog: deque[SimulatedArrival] = deque()
        self._on_arrival: Callable[[ListeningPort], None] | None = None

    def arrive(self, arrival: SimulatedArrival) -> None:
        self._backlog.append(arrival)
        self._notify_later()

    def watch(self, on_arrival: Callable[[ListeningPort], None]) -> None:
        self._on_arrival = on_arrival
        self._notify_later()

    def unwatch(self) -> None:
        self._on_arrival = None

    def accept(self) -> Arrival | None:
        return self._backlog.popleft() if self._backlog else None

    def close(self) -> None:
        self.unwatch()
        self._network.close_port(self.host, self.port)
        while self._backlog:
            self._backlog.popleft().close()

    def _notify_later(self) -> None:
        if self._backlog:
            self.loop.call_soon(self._notify)

    def _notify(self) -> None:
        if self._backlog and self._on_arrival is not None:
            self._on_arrival(self)
            self._notify_later()


class SimulatedArrival:
    """`Arrival`: the listener's end of a connection."""

    def __init__(self, host: str, end: SimulatedTransport) -> None:
        self.host = host
        self.port = 0
        self._end = end

    async def serve(self, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
        self._end.begin(protocol)
        return self._end

    def close(self) -> None:
        self._end.abort()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimulatedTransport

    def __init__(self, network: SimulatedNetwork, host: str, loop: ProcessLoop) -> None:
        super().__init__()
        self.host = host
        self.loop = loop
        self._network = network
        self._protocol: Protocol | None = None
        self._received = bytearray()
        self._unsent: deque[Callable[[], None]] = deque()
        self._last_us = 0
        self._is_reading = True
        self._is_ended = False  # the peer has closed its end
        self._is_closed = False

    @property
    def peer_host(self) -> str:
        return self.peer.host

    def begin(self, protocol: Protocol) -> None:
        """Connect the protocol of this end; deliver what has arrived."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._deliver()

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.loop.call_soon(self._deliver)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._send(partial(self.peer._receive, bytes(data)))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        if not self._is_closed:
            self._send(self.peer._end)
            self._lose()

    abort = close

    # The way to the other end

    def reset(self) -> None:
        """Close this end for a process that is gone."""
        self._is_closed = True
        self._send(self.peer._end)
        self._network.forget(self)

    def send_again(self) -> None:
        """Send what a cut link has kept back."""
        kept, self._unsent = self._unsent, deque()
        for step in kept:
            self._send(step)

    def _send(self, step: Callable[[], None]) -> None:
        """Run `step` in the peer's process, after all that was sent before."""
        if self._network.is_cut(self.host, self.peer_host):
            self._unsent.append(step)
            return
        world = self._network.world
        self._last_us = max(self._last_us + 1, world.now_us + self._network.delay_us())
        world.after(self._last_us - world.now_us, lambda: self.peer.loop.call_soon(step))

    def _receive(self, data: bytes) -> None:
        self._received += data
        self._deliver()

    def _deliver(self) -> None:
        protocol = self._protocol
        if protocol is None or self._is_closed:
            return
        while self._received and self._is_reading and not self._is_closed:
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(len(buffer), len(self._received))
                buffer[:size] = self._received[:size]
                del self._received[:size]
                protocol.buffer_updated(size)
            else:
                data, self._received = bytes(self._received), bytearray()
                protocol.data_received(data)
        if self._is_ended and not self._received and not self._is_closed:
            self._lose()

    def _end(self) -> None:
        self._is_ended = True
        if self._protocol is None:
            self._is_closed = True
        else:
            self._deliver()

    def _lose(self) -> None:
        self._is_closed = True
        self._network.forget(self)
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, None)
