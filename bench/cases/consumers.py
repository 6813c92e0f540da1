"""Cases about waiting consumers: many long polls at the end of idle partitions.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from bench import machine
from bench.admin import create_topic
from bench.case import LOWER, Case
from bench.client import SMALL_BUFFER, connect, receive_frame
from bench.frames import FetchFrame, FetchResponseLayout
from bench.measures import Measure, Values, absolute
from bench.processes import anonymous_mib, cpu_seconds
from bench.scale import Scale
from bench.servers import Server
from bench.subject import running

TOPIC = "bench-idle"
PARTITIONS = 100
IDLE_CONSUMERS = 10_000
# The longest wait that the usual request timeout of clients, 30 s, allows.
MAX_WAIT_S = 29.0
WAIT_MIN_S = 0.2
TURNS = 2


def idle_consumers(server: Server, scale: Scale, *, max_wait_s: float) -> Values:
    """Run consumers on one connection each; they repeat their long polls, whose ends are evenly spread."""
    consumers, wait_s = scale.count(IDLE_CONSUMERS), max(WAIT_MIN_S, max_wait_s * scale.part)
    frames = [_poll_frame(partition, wait_s) for partition in range(PARTITIONS)]
    with running(server), ExitStack() as connections, select.epoll() as poll:
        create_topic(server.port, TOPIC, PARTITIONS)
        machine.settle()
        memory_mib = anonymous_mib(server.pid)
        waiting: dict[int, tuple[socket.socket, bytearray]] = {}
        start = time.perf_counter()
        for number in range(consumers):
            connection = connections.enter_context(connect(server.port))
            waiting[connection.fileno()] = connection, frames[number % PARTITIONS]
            poll.register(connection, select.EPOLLIN)
            connection.sendall(frames[number % PARTITIONS])
            _response_until(start + wait_s * (number + 1) / consumers, poll, waiting)
        cpu, begin = cpu_seconds(server.pid), time.perf_counter()
        responses = _response_until(begin + TURNS * wait_s, poll, waiting)
        seconds, cpu_s = time.perf_counter() - begin, cpu_seconds(server.pid) - cpu
        if responses < consumers:
            raise RuntimeError(f"{responses} responses in {TURNS} waits of {consumers} consumers")
        return {
            "CPU": cpu_s / seconds * 100,
            "CPU of a poll": cpu_s / responses * 1e6,
            "memory": (anonymous_mib(server.pid) - memory_mib) * 1024 / consumers,
        }


def _poll_frame(partition: int, wait_s: float) -> bytearray:
    frame = FetchFrame(TOPIC, partition, SMALL_BUFFER, max_wait_ms=int(wait_s * 1000))
    frame.move_to(0)
    return frame.data


def _response_until(moment: float, poll: select.epoll, waiting: Mapping[int, tuple[socket.socket, bytearray]]) -> int:
    """Repeat the request for every response before `moment`; return their number. Raises RuntimeError for records."""
    layout, buffer = FetchResponseLayout(TOPIC), memoryview(bytearray(SMALL_BUFFER))
    responses = 0
    while (left := moment - time.perf_counter()) > 0:
        for descriptor, _ in poll.poll(left):
            connection, frame = waiting[descriptor]
            receive_frame(connection, buffer)
            if layout.record_bytes(buffer):
                raise RuntimeError("records of a partition that was not written to")
            connection.sendall(frame)
            responses += 1
    return responses


CASES = (
    Case(
        "idle-consumers",
        f"{IDLE_CONSUMERS:,} idle consumers, polls of {MAX_WAIT_S:g} s",
        (
            Measure("CPU", "% of a core", LOWER, absolute(3), decimals=1),
            Measure("CPU of a poll", "µs", LOWER, decimals=1),
            Measure("memory", "KiB a consumer", LOWER, decimals=1),
        ),
        on_new=partial(idle_consumers, max_wait_s=MAX_WAIT_S),
        rounds_max=2,
    ),
)
