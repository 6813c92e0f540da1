"""The memory of arriving requests: how much each connection uses, and which ones are held until others finish."""

from base.line_limit import LineLimit
from broker.network.channel import Authentication, Channel, Hold
from broker.network.connection import Buffers
from broker.network.request_memory import AccountedConnection, RequestMemory
from broker.network.turn_writes import TurnWrites
from broker.network.unsent_responses import UnsentResponses
from protocol.frame import LENGTH, FrameReader
from tests.support.manual_clock import ManualClock

SIZE_MAX = 1 << 20
MEMORY_SIZE = 100_000
LARGE = 60_000


class Served:
    """A dispatcher that returns no responses, and a registry."""

    def dispatch(self, frame: memoryview, channel: Channel) -> Buffers | None:
        return None

    closing_lines = LineLimit(10)
    turn_writes = TurnWrites(lambda: 0.0)
    awaited_writes = TurnWrites(lambda: 0.0)

    def flush_writes(self) -> None:
        pass

    def closed(self, connection: object, traffic: object = None) -> None:
        pass

    def monotonic_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0


class Transport:
    """What a connection needs of one: whether it is read."""

    def __init__(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        """It has no socket."""


class Client:
    """A connection, and what is sent to it."""

    def __init__(self, memory: RequestMemory) -> None:
        served = Served()
        reader = FrameReader(memoryview(bytearray(256 << 10)), SIZE_MAX)
        unsent = UnsentResponses(lambda *_: None)
        self.connection = AccountedConnection(served, served, reader, unsent, Channel("127.0.0.1", 1, "A"), memory)
        self.transport = Transport()
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        assert self.is_read
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    @property
    def is_read(self) -> bool:
        return self.transport.is_read


def framed(size: int) -> bytes:
    return LENGTH.pack(size) + bytes(size)


def test_length_that_arrives_in_pieces_is_counted() -> None:
    memory = RequestMemory(MEMORY_SIZE, ManualClock().monotonic_s)
    clients = [Client(memory) for _ in range(20)]
    request = framed(LARGE)
    for client in clients:
        client.send(request[:3])
    assert memory.size_left == MEMORY_SIZE, "nothing is announced yet"
    for client in clients:
        client.send(request[3:1000])
    assert [client.is_read for client in clients] == [True] * 2 + [False] * 18
    assert memory.size_left == MEMORY_SIZE - 2 * len(request)


def test_next_request_is_counted_separately() -> None:
    memory = RequestMemory(MEMORY_SIZE, ManualClock().monotonic_s)
    small_first, other = Client(memory), Client(memory)
    small_first.send(framed(500)[:100])
    assert memory.size_left == MEMORY_SIZE - 504
    small_first.send(framed(500)[100:] + framed(LARGE)[:1000])
    assert memory.size_left == MEMORY_SIZE - LARGE - 4
    other.send(framed(LARGE)[:1000])
    assert memory.size_left < 0
    small_first.send(framed(LARGE)[1000:] + framed(2 * LARGE)[:1000])
    assert memory.size_left == MEMORY_SIZE - 3 * LARGE - 8, "there was some left again when it asked"
    other.send(framed(LARGE)[1000:] + framed(LARGE)[:1000])
    assert not other.is_read, "its turn comes after the others'"


def test_connection_waiting_for_memory_is_not_released_for_another_reason() -> None:
    memory = RequestMemory(MEMORY_SIZE, ManualClock().monotonic_s)
    first, second = Client(memory), Client(memory)
    first.send(framed(2 * LARGE)[:1000])
    second.send(framed(LARGE)[:1000])
    assert not second.is_read
    for client in (first, second):
        client.connection.hold(Hold.REQUEST_QUEUE)
    for client in (first, second):
        client.connection.release(Hold.REQUEST_QUEUE)
    assert (first.is_read, second.is_read) == (True, False)
    first.send(framed(2 * LARGE)[1000:])
    assert second.is_read
    second.send(framed(LARGE)[1000:])
    assert memory.size_left == MEMORY_SIZE


def test_each_reason_to_hold_ends_by_itself() -> None:
    memory = RequestMemory(MEMORY_SIZE, ManualClock().monotonic_s)
    client = Client(memory)
    client.connection.hold(Hold.REQUEST_QUEUE)
    client.connection.hold(Hold.REQUEST_MEMORY)
    for ended, is_read in ((Hold.TURN_OVER, False), (Hold.REQUEST_MEMORY, False), (Hold.REQUEST_QUEUE, True)):
        client.connection.release(ended)
        assert client.is_read is is_read


def test_closed_connection_stops_waiting_for_memory() -> None:
    memory = RequestMemory(MEMORY_SIZE, ManualClock().monotonic_s)
    first, second, third = [Client(memory) for _ in range(3)]
    for client in (first, second, third):
        client.send(framed(2 * LARGE)[:1000])
    second.connection.connection_lost(None)
    first.connection.connection_lost(None)
    assert third.is_read
    third.connection.connection_lost(None)
    assert memory.size_left == MEMORY_SIZE


def test_time_without_memory_is_added_up_while_a_connection_waits() -> None:
    clock = ManualClock()
    memory = RequestMemory(MEMORY_SIZE, clock.monotonic_s)
    first, second = Client(memory), Client(memory)
    first.send(framed(2 * LARGE)[:1000])
    clock.advance(1000)
    assert memory.depleted_s == 0, "nobody waits"
    second.send(framed(LARGE)[:1000])
    clock.advance(2000)
    assert memory.depleted_s == 2
    first.send(framed(2 * LARGE)[1000:])
    clock.advance(4000)
    assert memory.depleted_s == 2
    second.send(framed(LARGE)[1000:])
    first.send(framed(2 * LARGE)[:1000])
    second.send(framed(LARGE)[:1000])
    clock.advance(8000)
    second.connection.connection_lost(None)
    clock.advance(16_000)
    assert memory.depleted_s == 10


def test_what_comes_before_the_login_does_not_use_the_memory() -> None:
    memory = RequestMemory(MEMORY_SIZE, ManualClock().monotonic_s)
    strangers = [Client(memory) for _ in range(10)]
    for stranger in strangers:
        stranger.connection.channel.authentication = Authentication.PENDING
        stranger.send(framed(LARGE)[:1000])
        assert stranger.is_read
    assert memory.size_left == MEMORY_SIZE
    stranger.connection.channel.authentication = Authentication.COMPLETE
    stranger.send(framed(LARGE)[1000:] + framed(LARGE)[:1000])
    assert memory.size_left == MEMORY_SIZE - LARGE - 4
