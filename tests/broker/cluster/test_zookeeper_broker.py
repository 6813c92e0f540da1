"""A broker of a cluster of one, as a process on a real ZooKeeper, with a real client: it loses nothing when either of
them is stopped, killed or paused.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.support.broker import BrokerProcess
from tests.support.parts import skip_when_unavailable
from tests.support.processes import STOP_TIMEOUT_S
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperProcess
from tools.zookeeper import metadata_copy

TOPIC = "t"
SESSION_TIMEOUT_MS = 1_500
WAIT_S = 30.0

until = partial(wait_until, timeout_s=WAIT_S)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def connect(zookeeper: ZooKeeperProcess) -> str:
    """A chroot that does not exist yet."""
    return f"{zookeeper.connect}/{uuid.uuid4()}/kafka"


@pytest.fixture
def broker(tmp_path: Path, connect: str) -> Iterator[BrokerProcess]:
    process = _broker(tmp_path / "broker", connect)
    process.start()
    yield process
    process.stop()


def _broker(
    folder: Path,
    connect: str | None,
    broker_id: int = 1,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    further: Mapping[str, str] | None = None,
) -> BrokerProcess:
    cluster = {} if connect is None else {"zookeeper.connect": connect}
    settings = {"zookeeper.session.timeout.ms": str(session_timeout_ms), "zookeeper.connection.timeout.ms": "10000"}
    return BrokerProcess(folder, {**settings, **cluster, **(further or {})}, broker_id=broker_id)


def _create(broker: BrokerProcess, topic: str = TOPIC) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in client.create_topics([NewTopic(topic, 2, 1)], operation_timeout=WAIT_S).values():
        created.result(WAIT_S)


def _produce(broker: BrokerProcess, values: range) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(
            TOPIC, str(value), partition=value % 2, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert failed == []


def _consumed(broker: BrokerProcess, count: int) -> list[int]:
    """Return the values in both partitions, sorted; `count` are expected."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(2)])
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [int(record.value()) for record in consumer.consume(1000, 0.2) if record.error() is None]
    found += [int(record.value()) for record in consumer.consume(1000, 0.2) if record.error() is None]
    consumer.close()
    return sorted(found)


def _line_of(process: BrokerProcess, text: str) -> str:
    return next((line for line in process.log.read_text().splitlines() if text in line), "")


def _refusal(process: BrokerProcess) -> str:
    """Return the only error line of a broker that must not start."""
    process.spawn()
    assert process.wait_for_exit() == 1
    (line,) = [line for line in process.log.read_text().splitlines() if "] ERROR " in line]
    assert "Traceback" not in process.log.read_text()
    return line


@contextmanager
def _lasting_session(broker: BrokerProcess, connect: str) -> Iterator[None]:
    """Kill the broker; its registration stays in the block, as long as a real session might."""
    hosts, _, chroot = connect.partition("/")
    client, path = KazooClient(hosts), f"/{chroot}/brokers/ids/1"
    client.start()
    data, _ = client.get(path)
    broker.kill()
    until(lambda: client.exists(path) is None)
    client.create(path, data, ephemeral=True)
    try:
        yield
    finally:
        client.stop()
        client.close()


def test_records_stay_over_a_stop_and_a_kill(broker: BrokerProcess, connect: str) -> None:
    _create(broker)
    _produce(broker, range(100))
    broker.stop()
    assert "controlled shutdown succeeded" in broker.log.read_text()
    broker.start()
    assert _consumed(broker, 100) == list(range(100))
    _produce(broker, range(100, 200))
    with _lasting_session(broker, connect):
        broker.spawn()
        until(lambda: "waiting up to 6500 ms for the end of an earlier session" in broker.log.read_text())
    broker.wait_until_ready()
    assert _consumed(broker, 200) == list(range(200))


def test_broker_paused_past_its_session_registers_again(broker: BrokerProcess, connect: str) -> None:
    _create(broker)
    _produce(broker, range(50))
    os.kill(broker.pid, signal.SIGSTOP)
    hosts, _, chroot = connect.partition("/")
    client = KazooClient(hosts)
    client.start()
    until(lambda: client.exists(f"/{chroot}/brokers/ids/1") is None)
    assert client.exists(f"/{chroot}/controller") is None
    os.kill(broker.pid, signal.SIGCONT)
    until(lambda: client.exists(f"/{chroot}/brokers/ids/1") is not None)
    client.stop()
    client.close()
    _produce(broker, range(50, 100))
    _create(broker, "another")
    assert _consumed(broker, 100) == list(range(100))
    assert "is registered with epoch" in broker.log.read_text()
    assert "] ERROR " not in broker.log.read_text()


def test_data_is_served_and_the_broker_stops_while_zookeeper_is_away(tmp_path: Path) -> None:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        # On a busy machine ZooKeeper is away for longer than a short session lasts.
        broker = _broker(tmp_path / "broker", f"{zookeeper.connect}/kafka", session_timeout_ms=10_000)
        with broker:
            _create(broker)
            _produce(broker, range(10))
            zookeeper.kill()
            until(lambda: bool(_line_of(broker, "lost the connection to ZooKeeper")))
            _produce(broker, range(10, 20))
            assert _consumed(broker, 20) == list(range(20))
            zookeeper.start()
            _create(broker, "another")
            _produce(broker, range(20, 30))
            assert _consumed(broker, 30) == list(range(30))
            assert "] ERROR " not in broker.log.read_text()
            zookeeper.kill()
            begin = time.monotonic()
            broker.stop()
            assert time.monotonic() - begin < STOP_TIMEOUT_S
            zookeeper.start()
            broker.start()
            assert _consumed(broker, 30) == list(range(30))
            broker.stop()
            assert "was not closed cleanly" not in broker.log.read_text()


@pytest.mark.timeout(300)
def test_session_moves_to_other_servers_and_changes_wait_for_a_quorum(tmp_path: Path) -> None:
    """The leader of three servers is killed, so that all clients lose their connections; then a second server."""
    with skip_when_unavailable(), ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble:
        broker = _broker(tmp_path / "broker", f"{ensemble.connect}/kafka", session_timeout_ms=30_000)
        with broker:
            _create(broker)
            _produce(broker, range(10))
            epoch = _broker_epoch(ensemble.connect)
            leader = ensemble.leader()
            leader.kill()
            _produce(broker, range(10, 20))
            _create(broker, "while-a-server-is-away")
            assert _broker_epoch(ensemble.connect) == epoch, "the broker has the same session"

            second = next(server for server in ensemble.servers if server.is_running)
            second.kill()
            until(lambda: not ensemble.has_quorum)
            _produce(broker, range(20, 30))
            assert _consumed(broker, 30) == list(range(30))
            client = AdminClient({"bootstrap.servers": broker.bootstrap})
            created = client.create_topics([NewTopic("waits", 1, 1)], operation_timeout=WAIT_S, request_timeout=WAIT_S)
            with pytest.raises(TimeoutError):
                created["waits"].result(1.0)
            ensemble.start(leader, second)
            until(lambda: "waits" in client.list_topics(timeout=WAIT_S).topics)
            _produce(broker, range(30, 40))
            assert _consumed(broker, 40) == list(range(40))
            assert "] ERROR " not in broker.log.read_text()


def _broker_epoch(connect: str) -> int:
    client = KazooClient(f"{connect}/kafka")
    client.start()
    try:
        return int(client.get("/brokers/ids/1")[1].czxid)
    finally:
        client.stop()
        client.close()


def test_embedded_metadata_moves_into_zookeeper_without_the_records(tmp_path: Path, connect: str) -> None:
    folder = tmp_path / "broker"
    with _broker(folder, None) as alone:
        _create(alone)
        _produce(alone, range(100))
    files = _segments(alone.log_dir)

    uncopied = _broker(folder, connect)
    refusal = _refusal_in(uncopied)
    assert "the metadata store holds no metadata: copy that of the cluster into it (metadata-copy)" in refusal

    assert metadata_copy.main(["--from-log-dir", str(alone.log_dir), "--to-zookeeper", connect]) == 0
    with _broker(folder, connect) as first:
        assert _consumed(first, 100) == list(range(100))
        _produce(first, range(100, 110))
        assert _consumed(first, 110) == list(range(110))
    moved = _segments(alone.log_dir)
    assert {path: inode for path, (inode, _) in moved.items()} == {path: inode for path, (inode, _) in files.items()}
    assert all(moved[path][1].startswith(content) for path, (_, content) in files.items())

    assert "copy that of the cluster into it (metadata-copy)" in _refusal_in(_broker(folder, None))
    assert metadata_copy.main(["--from-zookeeper", connect, "--to-log-dir", str(alone.log_dir)]) == 0
    with _broker(folder, None) as again:
        assert _consumed(again, 110) == list(range(110))


def _segments(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the inode and the records of each log file of the topic."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes().rstrip(b"\0"))
        for path in folder.glob(f"{TOPIC}-*/*.log")
    }


def _refusal_in(process: BrokerProcess) -> str:
    """Return the error line of a broker whose log also has those of an earlier one."""
    before = process.log.read_text() if process.log.exists() else ""
    process.log.unlink(missing_ok=True)
    line = _refusal(process)
    process.log.write_text(before + process.log.read_text())
    return line


def test_second_broker_with_an_id_in_use_is_refused(broker: BrokerProcess, tmp_path: Path, connect: str) -> None:
    second = _broker(tmp_path / "second", connect, further={"zookeeper.registration.wait.ms": "0"})
    line = _refusal(second)
    assert "a broker with id 1 is already registered: stop it, or set another broker.id" in line
    _create(broker)
    _produce(broker, range(10))


def test_log_directory_of_another_cluster_is_refused(broker: BrokerProcess, zookeeper: ZooKeeperProcess) -> None:
    broker.stop()
    other = f"{zookeeper.connect}/{uuid.uuid4()}"
    with _broker(broker.folder.parent / "other", other, broker_id=2):
        line = _refusal_in(_broker(broker.folder, other))
    assert "the log directories belong to cluster" in line
    assert "check log.dirs and zookeeper.connect" in line
    broker.start()


def test_zookeeper_that_is_missing_at_the_start_is_named(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "broker", {"zookeeper.connect": "127.0.0.1:1,127.0.0.1:2", "zookeeper.connection.timeout.ms": "300"}
    )
    line = _refusal(broker)
    assert "no connection to ZooKeeper at 127.0.0.1:1,127.0.0.1:2 (zookeeper.connect) within 300 ms" in line


def test_broker_without_an_id_gets_one_from_zookeeper(tmp_path: Path, connect: str) -> None:
    folder = tmp_path / "broker"
    with BrokerProcess(folder, {"zookeeper.connect": connect}, broker_id=-1):
        pass
    assert "broker.id=1001" in (folder / "data" / "meta.properties").read_text()
    with BrokerProcess(tmp_path / "second", {"zookeeper.connect": connect}, broker_id=-1):
        pass
    assert "broker.id=1002" in (tmp_path / "second" / "data" / "meta.properties").read_text()
    with BrokerProcess(folder, {"zookeeper.connect": connect}, broker_id=-1) as again:
        assert "broker 1001 is registered" in again.log.read_text()
