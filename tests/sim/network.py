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
from zlib import crc32

from broker.network.network import Arrival, ListenError, ListeningPort, SocketOptions
from tests.sim.bit_flips import with_flipped_bit
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
        self._ends: dict[SimulatedTransport, None] = {}
        self._half_open: list[SimulatedTransport] = []
        self._cut: set[tuple[str, str]] = set()
        self._slow_us: dict[tuple[str, str], int] = {}
        self._to_tear: set[tuple[str, str]] = set()
        self._to_flip: dict[tuple[str, str], tuple[int, bool]] = {}
        self.flipped_bits = 0
        self._connecting: list[tuple[str, str, ProcessLoop, asyncio.Future[None]]] = []
        self._on_mended: list[Callable[[], None]] = []
        self._next_port = FIRST_PORT

    def host(self, name: str, loop: ProcessLoop) -> SimulatedHost:
        """Return the network as the process of `loop` uses it, which runs on the host `name`."""
        return SimulatedHost(self, name, loop)

    # Faults

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Deliver nothing between two hosts until `mend`; what is sent before arrives then: TCP sends it again.

        With `one_way`, what `other` sends still arrives.
        """
        self._cut.add((one, other))
        if not one_way:
            self._cut.add((other, one))

    def mend(self, one: str, other: str) -> None:
        """Deliver again what two hosts send to each other, in both directions."""
        self._cut -= {(one, other), (other, one)}
        for end in list(self._ends):
            if {end.host, end.peer_host} == {one, other}:
                end.send_again()
        waiting, self._connecting = self._connecting, []
        for source, target, loop, mended in waiting:
            if {source, target} == {one, other}:
                loop.call_soon(_wake, mended)
            else:
                self._connecting.append((source, target, loop, mended))
        for callback in self._on_mended:
            callback()

    def mend_all(self) -> None:
        for source, target in sorted(self._cut):
            self.mend(source, target)

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether nothing that `source` sends arrives at `target`."""
        return (source, target) in self._cut

    def on_mended(self, callback: Callable[[], None]) -> None:
        self._on_mended.append(callback)

    def slow_down(self, one: str, other: str, delay_us: int) -> None:
        """Deliver all that two hosts send to each other later by up to `delay_us`; 0 ends it."""
        for link in ((one, other), (other, one)):
            if delay_us:
                self._slow_us[link] = delay_us
            else:
                self._slow_us.pop(link, None)

    def tear(self, source: str, target: str) -> None:
        """Cut the next message from `source` to `target` in its middle, and reset its connection."""
        self._to_tear.add((source, target))

    def tear_nothing(self) -> None:
        """Forget the messages that are still to be torn."""
        self._to_tear.clear()

    def flip_bits(self, source: str, target: str, count: int, *, epochs: bool) -> None:
        """Flip a bit in each of the next messages with record batches; with `epochs` perhaps of a leader epoch."""
        self._to_flip[source, target] = count, epochs

    def flip_nothing(self) -> None:
        """Forget the messages of which a bit is still to be flipped."""
        self._to_flip.clear()

    def process_died(self, loop: ProcessLoop) -> None:
        """Close the ports and connections of a killed process, as the kernel of its machine does."""
        self._ports = {address: port for address, port in self._ports.items() if port.loop is not loop}
        for end in [end for end in self._ends if end.loop is loop]:
            end.reset()

    def machine_died(self, loop: ProcessLoop) -> None:
        """Remove the ports and connections of a process whose machine is gone. Its peers are not notified."""
        self._ports = {address: port for address, port in self._ports.items() if port.loop is not loop}
        for end in [end for end in self._ends if end.loop is loop]:
            end.vanish()
            self._half_open.append(end)

    def machine_returned(self, host: str) -> None:
        """Reset the connections that peers of a machine kept from before its power loss."""
        for end in [end for end in self._half_open if end.host == host]:
            self._half_open.remove(end)
            end.reset()

    # Connections

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
        here = SimulatedTransport(self, client.name, client.loop, is_client=True)
        there = SimulatedTransport(self, port.host, port.loop, is_client=False)
        here.peer, there.peer = there, here
        self._ends[here] = self._ends[there] = None
        return here, there

    async def reachable(self, source: str, target: str, loop: ProcessLoop) -> None:
        """Wait for a round trip between two hosts, while the link is cut until it is mended."""
        while True:
            await asyncio.sleep((self.delay_us(source, target) + self.delay_us(target, source)) / 1_000_000)
            if not self.is_cut(source, target) and not self.is_cut(target, source):
                return
            mended = loop.create_future()
            self._connecting.append((source, target, loop, mended))
            await mended

    def forget(self, end: SimulatedTransport) -> None:
        self._ends.pop(end, None)

    def is_to_tear(self, source: str, target: str) -> bool:
        """Return whether this message is to be torn; only once."""
        if (source, target) not in self._to_tear:
            return False
        self._to_tear.remove((source, target))
        return True

    def as_received(self, source: str, target: str, message: bytes) -> bytes:
        """Return a message, with a bit flipped if that is due and it has a batch."""
        count, epochs = self._to_flip.get((source, target), (0, False))
        flipped = with_flipped_bit(message, self.world.random, epochs=epochs) if count else None
        if flipped is None:
            return message
        self._to_flip[source, target] = count - 1, epochs
        self.flipped_bits += 1
        self.world.note("flipped bit", source, target)
        return flipped

    def delay_us(self, source: str, target: str) -> int:
        slow_us = self._slow_us.get((source, target), 0) if self._slow_us else 0
        return DELAY_US_MIN + self.world.below(DELAY_US_MAX - DELAY_US_MIN + slow_us + 1)


def _wake(mended: asyncio.Future[None]) -> None:
    if not mended.done():
        mended.set_result(None)


class SimulatedHost:
    """`Network` of one process, and the way to open connections from it."""

    def __init__(self, network: SimulatedNetwork, name: str, loop: ProcessLoop) -> None:
        self.name = name
        self.loop = loop
        self.network = network

    def listen(self, host: str, port: int, options: SocketOptions) -> Sequence[ListeningPort]:
        return [self.network.listen(self.name, port, self.loop)]

    async def connect(
        self, protocol: Protocol, host: str, port: int, options: SocketOptions | None = None
    ) -> SimulatedTransport:
        """Connect to a listening process. Raises ConnectionRefusedError; waits while the link is cut."""
        await self.network.reachable(self.name, host, self.loop)
        target = self.network.port_at(host, port)
        if target is None:
            raise ConnectionRefusedError(f"{host}:{port}")
        here, there = self.network.connection(self, target)
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

    async def serve(self, protocol: asyncio.BufferedProtocol, tls: None = None) -> asyncio.Transport:
        self._end.begin(protocol)
        return self._end

    def close(self) -> None:
        self._end.abort()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimulatedTransport

    def __init__(self, network: SimulatedNetwork, host: str, loop: ProcessLoop, *, is_client: bool) -> None:
        super().__init__()
        self.host = host
        self.loop = loop
        self.is_client = is_client
        """Whether this end has opened the connection."""
        self._network = network
        self._protocol: Protocol | None = None
        self._received = bytearray()
        self._unsent: deque[Callable[[], None]] = deque()
        self._last_us = 0
        self._is_reading = True
        self._is_ended = False  # the peer has closed its end
        self._is_closed = False
        self._is_buffered = False

    @property
    def peer_host(self) -> str:
        return self.peer.host

    def begin(self, protocol: Protocol) -> None:
        """Connect the protocol of this end; deliver what has arrived."""
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
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
        if self._is_closed:
            return
        content = bytes(data)
        network, peer = self._network, self.peer
        world = network.world
        if network.is_to_tear(self.host, peer.host):
            content = content[: world.random.randrange(len(content) or 1)]
            self._send(peer._receive, content)
            world.note("torn", self.host, peer.host, len(content))
            self.close()
            return
        content = network.as_received(self.host, peer.host, content)
        if world.traces_messages:
            world.note("sent", self.host, peer.host, self.is_client, content[:16], len(content), crc32(content))
        self._send(peer._receive, content)

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
        self.vanish()
        self._send(self.peer._end)

    def vanish(self) -> None:
        """Close this end; the peer is not notified."""
        self._is_closed = True
        self._network.forget(self)

    def send_again(self) -> None:
        """Send what a cut link has kept back."""
        if self._network.is_cut(self.host, self.peer_host):
            return
        kept, self._unsent = self._unsent, deque()
        for step in kept:
            self._send(step)

    def _send(self, step: Callable[..., None], *arguments: object) -> None:
        """Run `step` in the peer's process, after all that was sent before."""
        network, peer = self._network, self.peer
        if network.is_cut(self.host, peer.host):
            self._unsent.append(partial(step, *arguments))
            return
        due_us = self.loop.now_us() + network.delay_us(self.host, peer.host)
        self._last_us = due_us if due_us > self._last_us else self._last_us + 1
        peer.loop.deliver(self._last_us - network.world.now_us, step, *arguments)

    def _receive(self, data: bytes) -> None:
        self._received += data
        self._deliver()

    def _deliver(self) -> None:
        protocol: Any = self._protocol
        if protocol is None or self._is_closed:
            return
        received = self._received
        while received and self._is_reading and not self._is_closed:
            if self._is_buffered:
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(len(buffer), len(received))
                buffer[:size] = received[:size]
                del received[:size]
                protocol.buffer_updated(size)
            else:
                data = bytes(received)
                received.clear()
                protocol.data_received(data)
        if self._is_ended and not received and not self._is_closed:
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
