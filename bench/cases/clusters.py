"""Cases about a cluster of three brokers: replication, failures and leadership. CPU time is summed over the brokers.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import io
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from functools import partial

from bench import machine
from bench.case import HIGHER, LOWER, Case
from bench.client import FetchStream, ProduceStream, closed_loop
from bench.cluster import (
    SESSION_TIMEOUT_S,
    ClusterSubject,
    RetryingProducer,
    cpu_of_idle,
)
from bench.frames import Batch, batch_of_one
from bench.measures import Measure, Values, absolute, medians, moved_bytes, percentile, times
from bench.processes import MIB
from bench.scale import Scale
from bench.subject import GB, KIB_16, MB, bulk_batch, closing_all, now_ms
from tests.support.metadata_probe import ask_metadata
from tools.admin import reassign_partitions

SMALL_VALUE = 100
ON_EACH = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
"""Three partitions, one led by each broker."""
FAILURE_PARTITIONS = 100
IDLE_PARTITIONS = 1_000
CREATED_PARTITIONS = 1_000
FAILOVER_PARTITIONS = 5_000
MOVES, MOVED_PARTITIONS = 20, 50
MOVED_TO = ((2, 3), (3, 1), (1, 2))
THROTTLED_SECTIONS = 50
"""How many sections a throttled move would last. A limited rate allows a burst of up to ten seconds of it at first."""
UNLIMITED = 10_000_000_000
IDLE_S = 20.0
AFTER_CREATION_S = 10.0
"""A new topic causes work that ends seconds later: followers join the ISR, and checkpoints are written."""


def produce_batches(subject: ClusterSubject, scale: Scale, *, size: int) -> Values:
    batch = bulk_batch(size)
    leaders = [replicas[0] for replicas in ON_EACH]
    with subject.topic(ON_EACH) as topic, subject.producers(topic, leaders, batch, in_flight=5) as streams:
        loads = subject.measured_in_bulk(streams, scale, size)
        values = medians([load.bulk(load.section.requests * size) for load in loads])
        latencies = sorted(latency for load in loads for latency in load.section.latencies_ns)
        return {**values, "p99": percentile(latencies, 0.99) / 1e6}


def warm_up(subject: ClusterSubject, scale: Scale) -> None:
    """Send batches and single records to all brokers: a JVM first interprets hot code and compiles it later."""
    leaders = [replicas[0] for replicas in ON_EACH]
    with subject.topic(ON_EACH) as topic:
        for batch in (bulk_batch(KIB_16), batch_of_one(SMALL_VALUE, now_ms())):
            with subject.producers(topic, leaders, batch, in_flight=5) as streams:
                closed_loop(streams, seconds=scale.warm_up_s / 2)


def produce_one(subject: ClusterSubject, scale: Scale) -> Values:
    batch = batch_of_one(SMALL_VALUE, now_ms())
    with subject.topic([(1, 2, 3)]) as topic, subject.producers(topic, [1], batch, in_flight=1) as streams:
        return subject.measured_for_a_time(streams, scale).small_requests()


def catch_up(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure how fast an empty follower copies a partition, and the leader's produce latency during the copy."""
    batch, small = bulk_batch(KIB_16), batch_of_one(SMALL_VALUE, now_ms())
    byte_count = scale.bulk_bytes // KIB_16 * KIB_16
    with subject.topic([(1, 2)]) as topic, subject.topic([(1, 2)]) as other:
        with closing_all([ProduceStream(subject.port_of(1), topic, 0, batch, in_flight=5)]) as streams:
            closed_loop(streams, requests=byte_count // KIB_16)
        with subject.producers(other, [1], small, in_flight=1) as streams:
            alone = sorted(closed_loop(streams, seconds=scale.section_s).latencies_ns)
            machine.settle(byte_count)
            cpu, begin = subject.cpu_seconds(1, 3), time.perf_counter()
            subject.reassign(topic, [1, 2, 3])
            beside = _produce_until(streams[0], lambda: 3 in subject.isr(topic))
            seconds = time.perf_counter() - begin
            spent = subject.cpu_seconds(1, 3) - cpu
    return {
        "throughput": byte_count / MB / seconds,
        "CPU": spent / (byte_count / GB),
        "p99 beside": percentile(sorted(beside), 0.99) / max(percentile(alone, 0.99), 1),
    }


def throttled_move(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the produce latency of another partition, without a move and beside one whose rate is limited."""
    batch, small = bulk_batch(KIB_16), batch_of_one(SMALL_VALUE, now_ms())
    byte_count = scale.bulk_bytes // KIB_16 * KIB_16
    rate = int(byte_count / (THROTTLED_SECTIONS * scale.section_s))
    with subject.topic([(1, 2)]) as topic, subject.topic([(1, 2)]) as other:
        with closing_all([ProduceStream(subject.port_of(1), topic, 0, batch, in_flight=5)]) as streams:
            closed_loop(streams, requests=byte_count // KIB_16)
        end_offset = byte_count // KIB_16 * batch.record_count
        subject.wait_until(lambda: subject.high_watermark(topic, 1) >= end_offset, "the follower has caught up")
        machine.settle(byte_count)
        with subject.producers(other, [1], small, in_flight=1) as streams:
            alone = subject.measured_for_a_time(streams, scale).small_requests()["p99"]
            with _plan(topic, [1, 2, 3]) as plan:
                _reassign(subject, "--execute", "--throttle", str(rate), *plan)
                beside = subject.measured_for_a_time(streams, scale).small_requests()["p99"]
                _reassign(subject, "--execute", "--additional", "--throttle", str(UNLIMITED), *plan)
                subject.wait_until(lambda: not subject.has_moves(), "the move is complete")
                _reassign(subject, "--verify", *plan)
    return {"p99 alone": alone, "p99 beside": beside / max(alone, 1)}


@contextmanager
def _plan(topic: str, replicas: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yield the option of kafka-reassign-partitions that names a plan for partition 0."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [*replicas]}]}, file)
        file.flush()
        yield "--reassignment-json-file", file.name


def _reassign(subject: ClusterSubject, *arguments: str) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        status = reassign_partitions.main(["--bootstrap-server", subject.cluster.bootstrap, *arguments])
    if status:
        raise RuntimeError(printed.getvalue())


def many_moves(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the time of moves of many partitions at once, one after another, of empty partitions."""
    moves, partitions = scale.count(MOVES), scale.count(MOVED_PARTITIONS)
    with subject.topic([(1, 2)] * partitions) as topic:
        machine.settle()
        cpu, begin = subject.cpu_seconds(), time.perf_counter()
        for number in range(moves):
            subject.reassign(topic, MOVED_TO[number % len(MOVED_TO)], partitions)
            ended = subject.wait_until(lambda: not subject.has_moves(), "all partitions are moved")
        return {"until moved": ended - begin, "CPU": subject.cpu_seconds() - cpu}


def near_reads(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the leader's CPU time while consumers read from it, and while they read from a follower instead."""
    batch = bulk_batch(KIB_16)
    requests = scale.fetch_bytes // KIB_16
    end_offset = requests * batch.record_count
    with subject.topic([(1, 2, 3)]) as topic:
        with subject.producers(topic, [1], batch, in_flight=5) as streams:
            closed_loop(streams, requests=requests)
        for broker_id in (1, 2):
            subject.wait_until(
                lambda it=broker_id: subject.high_watermark(topic, it) >= end_offset,  # type: ignore[misc]
                "the replica serves all records",
            )
        far, near = (_read_from(subject, scale, topic, batch, end_offset, broker_id) for broker_id in (1, 2))
    return {"leader CPU": far["leader CPU"], "near": near["leader CPU"], "throughput": near["throughput"]}


def _read_from(
    subject: ClusterSubject, scale: Scale, topic: str, batch: Batch, end_offset: int, broker_id: int
) -> Values:
    """Return the throughput of a consumer of one replica, and the CPU time of broker 1, which leads, per GB."""
    reader = FetchStream(subject.port_of(broker_id), topic, 0, batch, end_offset, MIB)
    with closing_all([reader]) as streams:
        closed_loop(streams, seconds=scale.lead_in_s)
        machine.settle()
        cpu = subject.cpu_seconds(1)
        section = closed_loop(streams, seconds=scale.section_s)
        spent = subject.cpu_seconds(1) - cpu
        byte_count = reader.record_bytes
    return {"leader CPU": spent / (byte_count / GB), "throughput": byte_count / MB / section.wall_s}


def _produce_until(stream: ProduceStream, is_over: Callable[[], bool]) -> list[int]:
    """Produce, one request in flight, until a condition holds, which another thread checks; return the latencies."""
    over = threading.Event()

    def watch() -> None:
        while not is_over():
            time.sleep(0.01)
        over.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    stream.start()
    while not over.is_set():
        stream.advance()
    stream.drain()
    watcher.join()
    return list(stream.latencies_ns)


def idle(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the CPU of many replicas between two brokers, without load and with load on one partition."""
    small = batch_of_one(SMALL_VALUE, now_ms())
    with subject.topic([(1, 2)]) as topic, subject.producers(topic, [1], small, in_flight=1) as streams:
        alone = subject.measured_for_a_time(streams, scale).small_requests()["CPU"]
    partitions = scale.count(IDLE_PARTITIONS)
    with subject.topic([(1, 2)] * partitions) as topic:
        machine.settle()
        time.sleep(AFTER_CREATION_S * scale.part)
        values = cpu_of_idle(subject, IDLE_S * scale.part)
        with subject.producers(topic, [1], small, in_flight=1) as streams:
            among_others = subject.measured_for_a_time(streams, scale).small_requests()["CPU"]
    return {**values, "CPU beside": among_others / alone if alone else 0.0}


def kill_leader(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the time from kill -9 of a leader to acknowledgements on all its partitions, less the session timeout."""
    partitions = scale.count(FAILURE_PARTITIONS)
    with (
        subject.topic([(1, 2, 3)] * partitions) as topic,
        closing(RetryingProducer(subject, topic, partitions, batch_of_one(SMALL_VALUE, now_ms()))) as producer,
    ):
        producer.until_all_acknowledged_since(time.perf_counter())
        machine.settle()
        producer.round()
        killed = time.perf_counter()
        subject.cluster.kill(1)
        seconds = producer.until_all_acknowledged_since(killed) - killed
        return {"to acks": max(seconds - SESSION_TIMEOUT_S, 0.0)}


def stop_leader(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the longest gap between acknowledgements of a partition while its leader is stopped."""
    replicas = [(1, 2, 3)] * scale.count(FAILURE_PARTITIONS)
    return _longest_gap_while(subject, replicas, lambda topic: subject.cluster.brokers[1].stop())


def replace_brokers(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the longest gap between acknowledgements of a partition while each broker stops and a new process comes.

    The new process has the data of the old one, as when the brokers of a cluster are replaced one by one.
    """

    def replace_all(topic: str) -> None:
        for broker_id in subject.cluster.brokers:
            subject.cluster.restart(broker_id)
            subject.cluster.wait_until_in_sync(topic)

    replicas = [ON_EACH[number % 3] for number in range(scale.count(FAILURE_PARTITIONS))]
    return _longest_gap_while(subject, replicas, replace_all)


def _longest_gap_while(
    subject: ClusterSubject, replicas: Sequence[tuple[int, ...]], change: Callable[[str], None]
) -> Values:
    """Measure the longest gap between acknowledgements of a partition while `change` runs with the topic's name."""
    with (
        subject.topic(replicas) as topic,
        closing(RetryingProducer(subject, topic, len(replicas), batch_of_one(SMALL_VALUE, now_ms()))) as producer,
    ):
        producer.until_all_acknowledged_since(time.perf_counter())
        machine.settle()
        for _ in range(5):
            producer.round()
        producer.forget_gaps()
        changing = threading.Thread(target=change, args=(topic,))
        changing.start()
        while changing.is_alive():
            producer.round()
        producer.until_all_acknowledged_since(time.perf_counter())
        return {"longest gap": producer.longest_gap_s * 1000}


def fail_controller(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the time from kill -9 of the controller until all others have heard of the next, less the session."""
    partitions = scale.count(FAILOVER_PARTITIONS)
    with subject.topic([ON_EACH[number % 3] for number in range(partitions)]):
        machine.settle()
        controller = subject.cluster.controller()
        others = [broker_id for broker_id in subject.cluster.brokers if broker_id != controller]
        killed = time.perf_counter()
        subject.cluster.kill(controller)

        def have_heard() -> bool:
            views = [ask_metadata(subject.port_of(broker_id)) for broker_id in others]
            return all(view.controller in others and controller not in view.brokers for view in views)

        heard = subject.wait_until(have_heard, "the other brokers know a new controller")
        return {"until heard": max(heard - killed - SESSION_TIMEOUT_S, 0.0)}


def create(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure the time until all partitions of a new topic have leaders on every broker's metadata."""
    partitions = scale.count(CREATED_PARTITIONS)
    machine.settle()
    begin = time.perf_counter()
    with subject.topic([ON_EACH[number % 3] for number in range(partitions)]):
        return {"until all lead": time.perf_counter() - begin}


CASES = (
    Case(
        "cluster-16k",
        "RF 3, acks=all, 16 KB batches",
        (*moved_bytes(times(1.0), times(0.7)), Measure("p99", "ms", LOWER, decimals=1)),
        on_cluster=partial(produce_batches, size=KIB_16),
    ),
    Case(
        "cluster-1m",
        "RF 3, acks=all, 1 MB batches",
        (*moved_bytes(times(1.0), times(0.7)), Measure("p99", "ms", LOWER, decimals=1)),
        on_cluster=partial(produce_batches, size=MIB),
    ),
    Case(
        "cluster-one-record",
        "RF 3, acks=all, one record, one in flight",
        (
            Measure("p50", "µs", LOWER, times(0.8)),
            Measure("p99", "µs", LOWER),
            Measure("CPU", "µs", LOWER, times(0.5)),
        ),
        on_cluster=produce_one,
    ),
    Case(
        "cluster-catch-up",
        "an empty follower catches up, 16 KB batches",
        (
            Measure("throughput", "MB/s", HIGHER, times(1.0)),
            Measure("CPU", "s/GB", LOWER, times(0.7), decimals=2),
            Measure("p99 beside", "x", LOWER, absolute(2), decimals=1),
        ),
        on_cluster=catch_up,
    ),
    Case(
        "cluster-throttled-move",
        "a throttled move of 16 KB batches",
        (
            Measure("p99 alone", "µs", LOWER),
            Measure("p99 beside", "x", LOWER, absolute(1.2), decimals=2),
        ),
        on_cluster=throttled_move,
    ),
    Case(
        "cluster-moves",
        f"{MOVES} moves of {MOVED_PARTITIONS} partitions",
        (
            Measure("until moved", "s", LOWER, times(1.0), decimals=2),
            Measure("CPU", "s", LOWER, decimals=2),
        ),
        on_cluster=many_moves,
        rounds_max=3,
    ),
    Case(
        "cluster-near-reads",
        "consumers of the leader, and of a follower, in 1 MB pieces",
        (
            Measure("leader CPU", "s/GB", LOWER, decimals=3),
            Measure("near", "s/GB", LOWER, decimals=3),
            Measure("throughput", "MB/s", HIGHER, times(1.0)),
        ),
        on_cluster=near_reads,
    ),
    Case(
        "cluster-idle",
        f"{IDLE_PARTITIONS:,} replicas between two brokers",
        (
            Measure("idle CPU", "%", LOWER, absolute(2), decimals=1),
            Measure("CPU beside", "x", LOWER, absolute(1.2), decimals=2),
        ),
        on_cluster=idle,
    ),
    Case(
        "cluster-kill",
        f"kill -9 of the leader of {FAILURE_PARTITIONS} partitions",
        (Measure("to acks", "s", LOWER, times(1.0), decimals=2),),
        on_cluster=kill_leader,
        rounds_max=3,
    ),
    Case(
        "cluster-stop",
        f"stop of the leader of {FAILURE_PARTITIONS} partitions",
        (Measure("longest gap", "ms", LOWER, times(0.5)),),
        on_cluster=stop_leader,
        rounds_max=3,
    ),
    Case(
        "cluster-replace",
        f"rolling replacement of three brokers, {FAILURE_PARTITIONS} partitions",
        (Measure("longest gap", "ms", LOWER, times(1.0)),),
        on_cluster=replace_brokers,
        rounds_max=3,
    ),
    Case(
        "cluster-controller",
        f"another controller, {FAILOVER_PARTITIONS:,} partitions",
        (Measure("until heard", "s", LOWER, times(1.0), decimals=2),),
        on_cluster=fail_controller,
        rounds_max=3,
    ),
    Case(
        "cluster-create",
        f"a topic of {CREATED_PARTITIONS:,} partitions, RF 3",
        (Measure("until all lead", "s", LOWER, times(1.0), decimals=2),),
        on_cluster=create,
        rounds_max=3,
    ),
)
