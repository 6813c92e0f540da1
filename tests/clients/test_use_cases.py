"""What the system is for: one test for each use case, in a short form, and in its full size as a soak test.

Use cases with tests elsewhere: stages of streams (`spark_jobs/test_stages.py`), tables from a log
(`test_compaction.py`), offline loads (`spark_jobs/test_offline_loads.py`), a hub of databases
(`spark_jobs/test_jdbc.py`).
"""

import hashlib
import re
import statistics
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from tests.support.broker import BrokerProcess
from tests.tools.conftest import run_module
from tools.admin import configs

TIMEOUT_S = 60
EARLIEST = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 100}


def create(bootstrap: str, *topics: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, partitions, 1, config=config or {}) for topic in topics]
    for created in admin.create_topics(new).values():
        created.result(TIMEOUT_S)


def produce(producer: Producer, topic: str, values: Sequence[bytes], **parts: object) -> None:
    """Queue records, however many; `parts` are further arguments of `Producer.produce`."""
    for value in values:
        while True:
            try:
                producer.produce(topic, value, **parts)
                break
            except BufferError:
                producer.poll(0.05)


@contextmanager
def member(bootstrap: str, group: str, topics: Sequence[str], **settings: object) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **EARLIEST, **settings})
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def read_in_groups(
    bootstrap: str, topics: Sequence[str], sizes: dict[str, int], expected: int
) -> dict[str, Counter[bytes]]:
    """Read with groups of so many members, each in a thread, until each group has `expected` records or time is up."""
    values: dict[str, Counter[bytes]] = {group: Counter() for group in sizes}
    lock, end = threading.Lock(), time.monotonic() + TIMEOUT_S

    def run(group: str) -> None:
        with member(bootstrap, group, topics) as consumer:
            while values[group].total() < expected and time.monotonic() < end:
                found = [message.value() for message in consumer.consume(1_000, 0.1) if message.error() is None]
                with lock:
                    values[group].update(found)

    with ThreadPoolExecutor(sum(sizes.values())) as pool:
        for done in [pool.submit(run, group) for group, size in sizes.items() for _ in range(size)]:
            done.result()
    return values


def stored(bootstrap: str, topic: str, partitions: int = 1) -> Iterator[Message]:
    """Yield the records of a topic, up to its ends."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True, **EARLIEST}
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    try:
        ends, deadline = 0, time.monotonic() + TIMEOUT_S
        while ends < partitions:
            assert time.monotonic() < deadline, f"no end of {topic}"
            for message in consumer.consume(10_000, 0.1):
                if message.error() is None:
                    yield message
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    ends += 1
    finally:
        consumer.close()


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_messaging_gives_each_group_each_message_once(broker: BrokerProcess, topic: str, count: int) -> None:
    create(broker.bootstrap, topic, partitions=4)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    messages = [b"%d" % number for number in range(count)]
    reading = ThreadPoolExecutor(1).submit(
        read_in_groups, broker.bootstrap, [topic], {f"{topic}-a": 4, f"{topic}-b": 2}, count
    )
    produce(producer, topic, messages)
    assert producer.flush(TIMEOUT_S) == 0
    assert reading.result() == {f"{topic}-a": Counter(messages), f"{topic}-b": Counter(messages)}


@pytest.mark.soak  # a figure of this machine
def test_messages_arrive_within_20_ms_at_a_thousand_a_second(broker: BrokerProcess, topic: str) -> None:
    create(broker.bootstrap, topic)
    latencies_s: list[float] = []
    with member(broker.bootstrap, topic, [topic]) as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
        start = time.monotonic()
        for number in range(10_000):
            while (wait_s := start + number / 1_000 - time.monotonic()) > 0:
                message = consumer.poll(wait_s)
                if message is not None:
                    latencies_s.append(time.monotonic() - float(message.value()))
            producer.produce(topic, str(time.monotonic()))
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
    print(f"median {statistics.median(latencies_s) * 1000:.1f} ms of {len(latencies_s)}")
    assert len(latencies_s) > 9_000
    assert statistics.median(latencies_s) < 0.020


def scraped(broker: BrokerProcess, metric: str) -> float:
    """Return the sum of a metric of all topics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response:
        text = response.read().decode()
    (of_all,) = re.findall(rf"^{metric} (\S+)$", text, re.MULTILINE)
    return float(of_all)


@pytest.mark.parametrize(("topics", "count"), [(20, 100), pytest.param(20, 50_000, marks=pytest.mark.soak)])
def test_activity_of_many_topics_reaches_many_groups_beside_a_slow_one(tmp_path: Path, topics: int, count: int) -> None:
    names = [f"activity-{number}" for number in range(topics)]
    with BrokerProcess(tmp_path / "broker", {"metrics.http.listener": "127.0.0.1:0"}) as broker:
        create(broker.bootstrap, *names)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 20})
        values = [b"%d page view" % number * 10 for number in range(count)]
        for name in names:
            produce(producer, name, values)
        assert producer.flush(TIMEOUT_S) == 0
        bytes_in = scraped(broker, "kafka_server_brokertopicmetrics_bytesin_total")
        with member(broker.bootstrap, "slow", names, **{"queued.max.messages.kbytes": 1}) as slow:
            assert slow.poll(TIMEOUT_S) is not None  # the only record that it handles
            of_slow = scraped(broker, "kafka_server_brokertopicmetrics_bytesout_total")
            groups = {f"group-{number}": 1 for number in range(5)}
            read = read_in_groups(broker.bootstrap, names, groups, topics * count)
            bytes_out = scraped(broker, "kafka_server_brokertopicmetrics_bytesout_total") - of_slow
    of_one = Counter(dict.fromkeys(values, topics))
    assert all(read[group] == of_one for group in groups)
    assert 5 * bytes_in <= bytes_out <= 1.05 * 5 * bytes_in, (bytes_in, bytes_out)


@pytest.mark.parametrize(
    ("producers", "rounds", "pause_s"), [(20, 30, 0), pytest.param(200, 600, 0.1, marks=pytest.mark.soak)]
)
def test_metrics_of_many_hosts_are_deleted_by_segments_when_they_are_old(
    tmp_path: Path, producers: int, rounds: int, pause_s: float
) -> None:
    """The first half of the records is an hour old; retention leaves the segment with the first of the others."""
    settings = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "0"}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        create(broker.bootstrap, "metrics", config={"retention.ms": "600000", "segment.bytes": "2000"})
        hosts = [KafkaProducer(bootstrap_servers=broker.bootstrap) for _ in range(producers)]
        bases: set[int] = set()
        sent = []
        for number in range(rounds):
            due = time.monotonic() + pause_s
            timestamp_ms = int(time.time() * 1000) - (3_600_000 if number < rounds // 2 else 0)
            futures = [host.send("metrics", b"load 0.5", timestamp_ms=timestamp_ms) for host in hosts]
            sent += [(future.get(TIMEOUT_S).offset, timestamp_ms) for future in futures]
            bases.update(int(path.stem) for path in (broker.log_dir / "metrics-0").glob("*.log"))
            time.sleep(max(0.0, due - time.monotonic()))
        for host in hosts:
            host.close()
        first_new = min(offset for offset, timestamp_ms in sent if timestamp_ms > time.time() * 1000 - 1_800_000)
        expected = max(base for base in bases if base <= first_new)
        assert 0 < expected < max(bases), "the segments are too large for this test"
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
        place, end = TopicPartition("metrics", 0), time.monotonic() + TIMEOUT_S
        while consumer.get_watermark_offsets(place, TIMEOUT_S) != (expected, producers * rounds):
            assert time.monotonic() < end, (expected, consumer.get_watermark_offsets(place, TIMEOUT_S))
            time.sleep(0.05)
        consumer.close()


def test_logs_are_rebuilt_byte_for_byte_by_the_key_of_their_host(broker: BrokerProcess, topic: str) -> None:
    create(broker.bootstrap, topic, partitions=4)
    count, hosts = 200, [b"host-%d" % number for number in range(6)]
    logs = {
        host: [b"%d of %s\t\xc3\xa4%s" % (number, host, b" x" * number) for number in range(count)] for host in hosts
    }
    lines = [b"%s\t%s\n" % (host, logs[host][number]) for number in range(count) for host in hosts]
    flags = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--property", "parse.key=true"]
    outcome = run_module("records.console_producer", *flags, stdin=b"".join(lines))
    assert (outcome.status, outcome.stderr) == (0, "")
    rebuilt: dict[bytes, list[bytes]] = defaultdict(list)
    for message in stored(broker.bootstrap, topic, 4):
        rebuilt[message.key()].append(message.value())
    assert rebuilt == logs


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_replay_of_all_events_gives_the_same_state_after_a_restart(tmp_path: Path, count: int) -> None:
    with BrokerProcess(tmp_path / "broker", {"log.segment.bytes": "1000000", "log.retention.ms": "-1"}) as broker:
        create(broker.bootstrap, "events")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        produce(producer, "events", [b"%d %d" % (number % 997, number * number) for number in range(count)])
        assert producer.flush(TIMEOUT_S) == 0

        def replayed() -> str:
            state: dict[bytes, int] = defaultdict(int)
            history = hashlib.sha256()
            for message in stored(broker.bootstrap, "events"):
                account, amount = message.value().split()
                state[account] = state[account] * 31 + int(amount) & 0xFFFFFFFF
                history.update(b"%d %s" % (message.offset(), message.value()))
            return history.hexdigest() + str(sorted(state.items()))

        before = replayed()
        broker.stop()
        broker.start()
        assert replayed() == before
        assert before.count("(") == min(count, 997)


def limit_producer(broker: BrokerProcess, client_id: str, bytes_a_second: int) -> None:
    entity = ["--entity-type", "clients", "--entity-name", client_id]
    limit = ["--alter", "--add-config", f"producer_byte_rate={bytes_a_second}"]
    assert configs.main(["--bootstrap-server", broker.bootstrap, *limit, *entity]) == 0


def test_a_flooding_tenant_is_throttled_and_another_is_not(broker: BrokerProcess, topic: str) -> None:
    create(broker.bootstrap, topic)
    throttled: dict[str, list[float]] = defaultdict(list)

    def tenant(name: str) -> Producer:
        def on_throttle(event: ThrottleEvent) -> None:
            throttled[name].append(event.throttle_time)

        return Producer({"bootstrap.servers": broker.bootstrap, "client.id": name, "throttle_cb": on_throttle})

    limit_producer(broker, f"{topic}-flood", 1_000_000)
    flood, other = tenant(f"{topic}-flood"), tenant(f"{topic}-other")
    produce(flood, topic, [b"x" * 100_000] * 150)
    for _ in range(50):
        produce(other, topic, [b"small"])
        flood.poll(0)
        other.poll(0.02)
    assert other.flush(TIMEOUT_S) == 0
    flood.purge(in_queue=True, in_flight=True)
    flood.flush(TIMEOUT_S)
    assert sum(throttled[f"{topic}-flood"]) > 0
    assert throttled[f"{topic}-other"] == []


@pytest.mark.soak  # a figure of this machine; rates are tested on virtual time in broker/quotas/test_accuracy.py
def test_the_slowest_requests_of_a_tenant_are_as_fast_beside_a_flood(broker: BrokerProcess, topic: str) -> None:
    create(broker.bootstrap, topic)
    limit_producer(broker, f"{topic}-flood", 1_000_000)
    stop, sizes = threading.Event(), list[tuple[float, int]]()

    def flood() -> None:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "client.id": f"{topic}-flood", "batch.size": 50_000}
        )
        while not stop.is_set():
            try:
                produced = (topic, b"x" * 10_000)
                producer.produce(
                    *produced, on_delivery=lambda _, message: sizes.append((time.monotonic(), len(message)))
                )
            except BufferError:
                pass
            producer.poll(0.001)
        producer.purge()
        producer.flush(TIMEOUT_S)

    def slowest_s(seconds: float) -> float:
        """Send a hundred records a second; return the 99th percentile of the time to their acknowledgement."""
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
        latencies: list[float] = []
        end = time.monotonic() + seconds
        while (sent := time.monotonic()) < end:
            producer.produce(
                topic, b"y" * 100, on_delivery=lambda _, __, sent=sent: latencies.append(time.monotonic() - sent)
            )
            while time.monotonic() < sent + 0.01:
                producer.poll(0.001)
        assert producer.flush(TIMEOUT_S) == 0
        return statistics.quantiles(latencies, n=100)[-1]

    quiet = slowest_s(20)
    thread = threading.Thread(target=flood)
    thread.start()
    try:
        slowest_s(12)  # the burst that empty windows allow
        start = time.monotonic()
        beside = slowest_s(22)
        rate = sum(size for at, size in sizes if at >= start) / (time.monotonic() - start)
    finally:
        stop.set()
        thread.join()
    print(f"99th percentile {quiet * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside {rate / 1e6:.2f} MB/s")
    assert beside <= max(1.5 * quiet, quiet + 0.005)


@pytest.mark.parametrize("count", [30_000, pytest.param(3_000_000, marks=pytest.mark.soak)])
def test_clicks_without_acknowledgements_survive_a_restart_except_those_on_the_way(tmp_path: Path, count: int) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        create(broker.bootstrap, "clicks")
        settings = {"acks": 0, "linger.ms": 1, "reconnect.backoff.max.ms": 100}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        clicks = [b"%d" % number for number in range(count)]
        produce(producer, "clicks", clicks[: count // 2])
        broker.kill()
        broker.start()
        produce(producer, "clicks", clicks[count // 2 :])
        assert producer.flush(TIMEOUT_S) == 0
        found = [int(message.value()) for message in stored(broker.bootstrap, "clicks")]
    print(f"{count - len(found)} of {count} clicks were lost")
    assert found == sorted(set(found)), "a click is there twice or out of order"
    assert found[-1] == count - 1, "the last click came after the restart"
    assert 0 < len(found) <= count
