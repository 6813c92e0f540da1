"""The least that a Produce request costs in CPython, beside the CPU time of the broker and of Apache Kafka.

    PYTHONPATH=. python -m bench.floor [--rounds 3] [--quick]

The floor is a server of one function: it reads Produce v9 with acks=1, compares the CRC of each batch, numbers and
appends the batch, and responds. It has no metrics, no quotas or permissions, no errors, no log segments or indexes, no
state of producers or replicas, and it inspects no record. So a broker in CPython cannot be cheaper; how much of a goal
it leaves for everything else is the point of the comparison.

The load is that of the cases `threads-produce-v9` and `threads-produce-ten`: sixteen threads of a compiled client, each
with one request in flight. The servers take turns.

Owns the floor's server, the order of measurements and the report.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from crc32c import crc32c

from bench import machine
from bench.admin import create_topic
from bench.cases.clients import SMALL_VALUE, TEN, THREADS
from bench.frames import batch_of_one
from bench.names import KAFKA, MILENA, TITLES
from bench.request_loop import measured, produce_request
from bench.scale import FULL, QUICK, Scale
from bench.servers import contenders
from bench.subject import now_ms, running
from protocol.frame import LENGTH
from protocol.records.batch import LOG_OVERHEAD, MAGIC

TOPIC, VERSION = "bench-floor", 9
COUNTS = (1, len(TEN))
WARM_UP_S = 8.0

# -- the server of one function ---------------------------------------------------------------------------------------

SCRATCH = memoryview(bytearray(256 << 10))
_unpack_frame = struct.Struct(">ihhih").unpack_from
_unpack_terms = struct.Struct(">BhiBB").unpack_from
_unpack_partition = struct.Struct(">iB").unpack_from
_unpack_batch = struct.Struct(">qiiBIhiqqqhii").unpack_from
_pack_offset = struct.Struct(">q").pack_into
_pack_row = struct.Struct(">ihqqq").pack
_pack_start = struct.Struct(">iix").pack
_CRC_COVERED = slice(21, None)
_ROW_END = b"\x01\x00\x00"  # no record errors, no message, no tagged fields
_RESPONSE_END = b"\0" + bytes(4) + b"\0"  # tagged fields of the topic, throttle time, tagged fields


class Partition:
    """A file that batches are appended to."""

    __slots__ = ("descriptor", "offset", "size")

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        self.offset = self.size = 0


class Floor(asyncio.BufferedProtocol):
    """One connection. It expects a whole Produce v9 request per read, as the client of the comparison sends it."""

    def __init__(self, folder: Path, partitions: dict[tuple[str, int], Partition]) -> None:
        self._folder = folder
        self._partitions = partitions

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._descriptor = transport.get_extra_info("socket").fileno()

    def get_buffer(self, sizehint: int) -> Any:
        return SCRATCH

    def buffer_updated(self, nbytes: int) -> None:
        size, api_key, version, correlation_id, length = _unpack_frame(SCRATCH)
        if size != nbytes - LENGTH.size or api_key or version != VERSION:
            raise ValueError(f"{nbytes} bytes, key {api_key}, version {version}: not one Produce v{VERSION}")
        position = 14 + length + 1
        _, _, _, _, name_size = _unpack_terms(SCRATCH, position)
        position += 9
        name = str(SCRATCH[position : (position := position + name_size - 1)], "utf-8")
        count = SCRATCH[position]
        position += 1
        rows: list[bytes] = []
        for _ in range(count - 1):
            index, records_size = _unpack_partition(SCRATCH, position)
            position += 5
            if records_size > 127:
                records_size += (SCRATCH[position] << 7) - 128
                position += 1
            records = SCRATCH[position : (position := position + records_size - 1)]
            position += 1
            (_, batch_length, _, magic, crc, _, delta, _, _, _, _, _, record_count) = _unpack_batch(records)
            if (
                magic != MAGIC
                or batch_length != len(records) - LOG_OVERHEAD
                or record_count != delta + 1
                or crc32c(records[_CRC_COVERED]) != crc
            ):
                raise ValueError("a damaged batch")
            partition = self._partitions.get((name, index)) or self._new_partition(name, index)
            offset = partition.offset
            _pack_offset(records, 0, offset)
            partition.size += os.pwrite(partition.descriptor, records, partition.size)
            partition.offset = offset + record_count
            rows += (_pack_row(index, 0, offset, -1, 0), _ROW_END)
        start = b"\x02%c%b%c" % (name_size, name.encode(), count)
        response = b"".join((start, *rows, _RESPONSE_END))
        os.write(self._descriptor, _pack_start(len(response) + 5, correlation_id) + response)

    def _new_partition(self, name: str, index: int) -> Partition:
        partition = self._partitions[name, index] = Partition(self._folder / f"{name}-{index}")
        return partition


async def _serve(folder: Path) -> None:
    """Serve until the process is terminated; print the port."""
    partitions: dict[tuple[str, int], Partition] = {}
    server = await asyncio.get_running_loop().create_server(lambda: Floor(folder, partitions), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    gc.freeze()
    await asyncio.Event().wait()


# -- the comparison ---------------------------------------------------------------------------------------------------


class Player(NamedTuple):
    title: str
    port: int
    pid: int


@contextmanager
def floor_server(folder: Path) -> Iterator[Player]:
    command = [sys.executable, "-m", "bench.floor", "--serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Player("floor", int(process.stdout.readline()), process.pid)
        finally:
            process.terminate()


def _measured(player: Player, partition_count: int, scale: Scale) -> tuple[float, float]:
    """Return the CPU time of a request in microseconds, and the requests per second."""
    machine.settle()
    batch = batch_of_one(SMALL_VALUE, now_ms())
    threads = [
        [produce_request(TOPIC, TEN if partition_count > 1 else [thread % len(TEN)], batch, VERSION)]
        for thread in range(THREADS)
    ]
    values = measured(player.port, player.pid, threads, scale)
    return values["CPU"], values["rate"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per server (default: 3)")
    parser.add_argument("--quick", action="store_true", help="short sections; the figures are rough")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.install()
        asyncio.run(_serve(options.serve))
        return
    scale = QUICK if options.quick else FULL
    with ExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="milena-floor-")))
        players = [started.enter_context(floor_server(folder))]
        for contender in started.enter_context(contenders([MILENA, KAFKA], folder / "brokers")):
            server = contender.new_server({})
            started.enter_context(running(server))
            create_topic(server.port, TOPIC, len(TEN))
            players.append(Player(TITLES[contender.name], server.port, server.pid))
        results: dict[tuple[str, int], list[tuple[float, float]]] = {}
        warm_up = replace(scale, section_s=WARM_UP_S)
        for player in players:
            for count in COUNTS:
                _measured(player, count, warm_up)
        for _ in range(options.rounds):
            for count in COUNTS:
                for player in players:
                    results.setdefault((player.title, count), []).append(_measured(player, count, scale))
    _report(results)


def _report(results: Mapping[tuple[str, int], Sequence[tuple[float, float]]]) -> None:
    print(f"{'partitions':>10}  {'server':8}  {'CPU, us/request':22}  {'requests/s':10}  CPU, ratio to Kafka")
    for (title, count), values in sorted(results.items(), key=lambda one: one[0][1]):
        cpu = sorted(value for value, _ in values)
        kafka = statistics.median(value for value, _ in results[TITLES[KAFKA], count])
        median = statistics.median(cpu)
        spread = f"{median:5.1f} [{cpu[0]:.1f}-{cpu[-1]:.1f}]"
        rate = statistics.median(value for _, value in values)
        print(f"{count:10}  {title:8}  {spread:22}  {rate:10,.0f}  {median / kafka:.2f} x")


if __name__ == "__main__":
    main()
