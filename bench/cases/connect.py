"""Cases about Kafka Connect's worker and both MirrorMakers: their rate, CPU time, memory and start.

Both servers' programs work at brokers of Milena, so that only the programs differ. A program copies twice as many
records as the case says: the first half is warming up, the second half is measured. Records are produced beforehand in
batches of 16 KB.

Owns the cases and their table. Must not know which server's program is measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import repeat
from pathlib import Path

from bench import machine
from bench.admin import create_topic, end_offset
from bench.case import HIGHER, LOWER, Case
from bench.client import ProduceStream, closed_loop
from bench.frames import Batch
from bench.measures import Measure, Target, Values, absolute, times
from bench.processes import cpu_seconds, resident_mib
from bench.scale import Scale
from bench.servers import Program, plugin_path, program_command
from bench.subject import closing_all, now_ms
from protocol.records.builder import RecordData, build_batch
from tests.support.broker import ROOT, BrokerProcess
from tests.support.connect_workers import MIRROR_REPLICATION
from tests.support.processes import ServerProcess

RECORDS = 1_000_000
LINE_SIZE = 90
RECORD_SIZE = 100
BLOCK_RECORDS = 160
"""Records of a batch of 16 KB, each different from the others."""
TOPIC = "lines"
MIRRORED_TOPIC = f"a.{TOPIC}"
CONNECTOR = "bench"
POLL_S = 0.02
COPY_TIMEOUT_S = 600.0
REST_TIMEOUT_S = 5.0

TEXT = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"

Settings = Mapping[str, str]


def start(name: str, folder: Path, scale: Scale) -> Values:
    """Start a worker without connectors, and then one with a file source on its command line, on new folders."""
    with BrokerProcess(folder / "broker") as broker:
        create_topic(broker.port, TOPIC)
        machine.settle()
        begin = time.perf_counter()
        with _worker(name, folder, broker, TEXT) as worker:
            seconds = time.perf_counter() - begin
            time.sleep(scale.idle_s)
            memory = resident_mib(worker.pid)
        (folder / "source").write_bytes(b"line\n")
        worker = _worker(name, folder, broker, TEXT, _file_source(folder / "source"))
        with _spawned(worker):
            begin = time.perf_counter()
            _wait_for(worker, lambda: end_offset(broker.port, TOPIC), 1)
            return {"start": seconds, "idle memory": memory, "first record": time.perf_counter() - begin}


def file_source(name: str, folder: Path, scale: Scale, *, converter: str) -> Values:
    """Measure a file source on a file of lines."""
    blocks = _blocks(scale)
    with (folder / "source").open("wb") as file:
        file.writelines(repeat(_file_block(), blocks))
    with BrokerProcess(folder / "broker") as broker:
        create_topic(broker.port, TOPIC)
        worker = _worker(name, folder, broker, converter, _file_source(folder / "source"))
        return _copied(worker, lambda: end_offset(broker.port, TOPIC), blocks * BLOCK_RECORDS)


def file_sink(name: str, folder: Path, scale: Scale, *, converter: str) -> Values:
    """Measure a file sink, whose file has exactly the lines of the topic at the end."""
    with BrokerProcess(folder / "broker") as broker:
        blocks = _fill(broker.port, [_stored(line, converter) for line in _lines(LINE_SIZE)], _blocks(scale))
        file = folder / "sink"
        connector = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": TOPIC,
            "file": str(file),
        }
        worker = _worker(name, folder, broker, converter, connector)

        def copied() -> int:
            return file.stat().st_size // (LINE_SIZE + 1) if file.exists() else 0

        values = _copied(worker, copied, blocks * BLOCK_RECORDS)
        _check_file(file, blocks)
        return values


def kafka_mirror_maker(name: str, folder: Path, scale: Scale) -> Values:
    """Measure the first MirrorMaker: one topic of one partition from one broker to another."""
    with _two_brokers(folder, scale) as (source, target, count):
        create_topic(target.port, TOPIC)
        consumer = {"bootstrap.servers": source.bootstrap, "group.id": "bench", "auto.offset.reset": "earliest"}
        producer = folder / "producer.properties"
        producer.write_text(f"bootstrap.servers={target.bootstrap}\n")
        # fmt: off
        program = _program(
            name, Program.KAFKA_MIRROR_MAKER, folder, consumer,
            lambda settings: ["--consumer.config", settings, "--producer.config", str(producer), "--include", TOPIC],
        )
        # fmt: on
        return _copied(program, lambda: end_offset(target.port, TOPIC), count)


def connect_mirror_maker(name: str, folder: Path, scale: Scale) -> Values:
    """Measure the second MirrorMaker, as a process of its own, in the same way.

    There are no heartbeats: their idle topic would be mirrored too, and Kafka's consumer, which has one fetch in
    flight, would wait 500 ms for it between any two fetches of the other topic.
    """
    with _two_brokers(folder, scale) as (source, target, count):
        settings = {
            "clusters": "a, b",
            "a.bootstrap.servers": source.bootstrap,
            "b.bootstrap.servers": target.bootstrap,
            "a->b.enabled": "true",
            "a->b.topics": TOPIC,
            "b->a.enabled": "false",
            "emit.heartbeats.enabled": "false",
            **MIRROR_REPLICATION,
        }
        program = _program(name, Program.CONNECT_MIRROR_MAKER, folder, settings, lambda file: [file])
        return _copied(program, lambda: end_offset(target.port, MIRRORED_TOPIC), count)


def _copied(program: ServerProcess, progress: Callable[[], int], count: int) -> Values:
    """Start a program, wait until it has copied `count` records, and stop it; measure the second half of them."""
    machine.settle()
    with _spawned(program):
        begin = time.perf_counter()
        _wait_for(program, progress, 1)
        first = time.perf_counter() - begin
        half = _wait_for(program, progress, count // 2)
        cpu, begin = cpu_seconds(program.pid), time.perf_counter()
        _wait_for(program, progress, count)
        # A count that is reached before the first look again takes at most the time between two of them.
        seconds = max(POLL_S, time.perf_counter() - begin)
        rest = count - half
        values = {
            "first record": first,
            "rate": rest / seconds,
            "CPU": (cpu_seconds(program.pid) - cpu) / max(1, rest) * 1e6,
            "memory": resident_mib(program.pid),
        }
    if (found := progress()) != count:
        raise RuntimeError(f"{program.name} has copied {count} records as {found}")
    return values


def _wait_for(program: ServerProcess, progress: Callable[[], int], count: int) -> int:
    """Return how many records are copied when they are at least `count`. Raises RuntimeError."""
    give_up_s = time.monotonic() + COPY_TIMEOUT_S
    while (copied := progress()) < count:
        if not program.is_running or time.monotonic() > give_up_s:
            log = program.log.read_text(errors="replace")
            raise RuntimeError(f"{program.name} has copied {copied} of {count} records; its log ends: {log[-2000:]}")
        time.sleep(POLL_S)
    return copied


@contextmanager
def _spawned(program: ServerProcess) -> Iterator[None]:
    """Start a program without waiting; stop it afterwards."""
    try:
        program.spawn()
        yield
    finally:
        program.stop()


@contextmanager
def _two_brokers(folder: Path, scale: Scale) -> Iterator[tuple[BrokerProcess, BrokerProcess, int]]:
    """Yield a broker with a filled topic, an empty broker, and the number of records."""
    with BrokerProcess(folder / "source") as source, BrokerProcess(folder / "target") as target:
        yield source, target, _fill(source.port, _lines(RECORD_SIZE), _blocks(scale)) * BLOCK_RECORDS


def _worker(
    name: str, folder: Path, broker: BrokerProcess, converter: str, connector: Settings | None = None
) -> ServerProcess:
    """Return a worker of its own, with a connector if there is one; it is ready when its REST interface responds."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": "http://127.0.0.1:0",
        "plugin.path": plugin_path(name),
    }
    files = []
    if connector is not None:
        file = folder / "connector.properties"
        lines = {"name": CONNECTOR, "tasks.max": "1", **connector}
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        files.append(str(file))
    return _program(name, Program.CONNECT_STANDALONE, folder, settings, lambda worker: [worker, *files])


def _program(
    name: str, program: Program, folder: Path, settings: Settings, arguments: Callable[[str], Sequence[str]]
) -> ServerProcess:
    """Return a program that gets the arguments for the file of its settings."""
    file = folder / "program.properties"
    return ServerProcess(
        f"{program.value} of {name}",
        program_command(name, program, arguments(str(file))),
        folder / "program.log",
        _responds,
        settings=file,
        properties=lambda _: settings,
        environment={"PYTHONPATH": str(ROOT)},
    )


def _responds(port: int) -> bool:
    """Whether a worker responds to GET /. Raises OSError if it does not listen."""
    connection = HTTPConnection("127.0.0.1", port, timeout=REST_TIMEOUT_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except HTTPException:
        return False
    finally:
        connection.close()


def _file_source(file: Path) -> Settings:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "topic": TOPIC,
        "file": str(file),
    }


def _blocks(scale: Scale) -> int:
    return 2 * max(1, scale.count(RECORDS) // BLOCK_RECORDS)


def _lines(size: int) -> list[bytes]:
    """Return the records of a block, each of that size."""
    return [f"{number} ".ljust(size, "x").encode() for number in range(BLOCK_RECORDS)]


def _file_block() -> bytes:
    return b"".join(line + b"\n" for line in _lines(LINE_SIZE))


def _stored(line: bytes, converter: str) -> bytes:
    """Return a line as a converter with its default settings writes it, byte for byte."""
    if converter == TEXT:
        return line
    envelope = {"schema": {"type": "string", "optional": False}, "payload": line.decode()}
    return json.dumps(envelope, separators=(",", ":")).encode()


def _fill(port: int, values: Sequence[bytes], blocks: int) -> int:
    """Create the topic and produce blocks of these values; return how many there are."""
    create_topic(port, TOPIC)
    timestamp_ms = now_ms()
    batch = Batch(build_batch([RecordData(timestamp_ms, None, value) for value in values]), len(values))
    with closing_all([ProduceStream(port, TOPIC, 0, batch, in_flight=5)]) as streams:
        return closed_loop(streams, requests=blocks).requests


def _check_file(file: Path, blocks: int) -> None:
    """Compare the file of a sink with the lines of the topic. Raises RuntimeError at the first difference."""
    expected = _file_block()
    with file.open("rb") as content:
        for number in range(blocks):
            if content.read(len(expected)) != expected:
                raise RuntimeError(f"{file} differs from the topic in its lines from {number * BLOCK_RECORDS} on")
        if content.read(1):
            raise RuntimeError(f"{file} is longer than the topic")


def _measures(cpu: Target | None, memory: Target) -> tuple[Measure, ...]:
    return (
        Measure("rate", "records/s", HIGHER, times(1.0)),
        Measure("CPU", "s/million records", LOWER, cpu, decimals=3),
        Measure("memory", "MiB", LOWER, memory),
        Measure("first record", "s", LOWER, decimals=2),
    )


CASES = (
    Case(
        "connect-start",
        "connect-standalone, start, idle",
        (
            Measure("start", "s", LOWER, absolute(0.5), decimals=2),
            Measure("idle memory", "MiB", LOWER, absolute(60)),
            Measure("first record", "s", LOWER, decimals=2),
        ),
        of_worker=start,
    ),
    *(
        Case(
            f"connect-{direction}{suffix}",
            f"file {direction}, {LINE_SIZE} B, {title}",
            _measures(None, absolute(60)),
            of_worker=partial(function, converter=converter),
            rounds_max=3,
        )
        for suffix, title, converter in (("", "texts", TEXT), ("-json", "JSON with schemas", JSON))
        for direction, function in (("source", file_source), ("sink", file_sink))
    ),
    *(
        Case(
            f"connect-{title.lower().replace(' ', '-')}",
            f"{title}, {RECORD_SIZE} B",
            _measures(times(0.5), times(0.5)),
            of_worker=function,
            rounds_max=3,
        )
        for title, function in (("MirrorMaker 1", kafka_mirror_maker), ("MirrorMaker 2", connect_mirror_maker))
    ),
)
