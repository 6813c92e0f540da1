"""Workers of Apache Kafka's Connect and Milena's: they replace each other, and share a group.

The connectors have the same classes in both. Everything is in the topics of the group, in Kafka's formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.broker import BrokerProcess
from tests.support.connect_workers import ConnectWorker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.soak
PACKAGE = "org.apache.kafka.connect.file"
GROUP = "workers"
INTERVALS = {
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "500",
}
BOTH = pytest.mark.parametrize("first_is_kafkas", [True, False], ids=["kafka-first", "milena-first"])


class Files:
    """A source file, the topic that its lines go to, and the file that a sink copies them to."""

    def __init__(self, folder: Path) -> None:
        self.source, self.sink = folder / "source.txt", folder / "sink.txt"
        self.source.write_text("")
        self._count = 0

    def append(self, count: int) -> None:
        with self.source.open("a") as target:
            target.writelines(f"line {self._count + number}\n" for number in range(count))
        self._count += count

    def create_connectors(self, worker: ConnectWorker) -> None:
        source = {"connector.class": f"{PACKAGE}.FileStreamSourceConnector", "file": str(self.source), "topic": "lines"}
        sink = {"connector.class": f"{PACKAGE}.FileStreamSinkConnector", "file": str(self.sink), "topics": "lines"}
        for name, config in (("source", source), ("sink", sink)):
            wait_until(partial(is_created, worker, name, {**config, "tasks.max": "1"}))

    def wait_for_copy(self, *, may_repeat: bool = False) -> None:
        """Wait for the last line. Kafka's own sink repeats lines after a kill."""
        wait_until(lambda: self.sink.exists() and f"line {self._count - 1}\n" in self.sink.read_text(), timeout_s=90)
        lines = self.sink.read_text().splitlines()
        assert (list(dict.fromkeys(lines)) if may_repeat else lines) == self.source.read_text().splitlines()

    def are_at_end(self, worker: ConnectWorker) -> bool:
        """Whether the stored offset of the source is the size of its file."""
        found = worker.send("GET", "/connectors/source/offsets").body
        size = self.source.stat().st_size
        return bool(found["offsets"] == [{"partition": {"filename": str(self.source)}, "offset": {"position": size}}])


def is_created(worker: ConnectWorker, name: str, config: dict[str, str]) -> bool:
    """Create a connector; False while the group rebalances."""
    response = worker.send("PUT", f"/connectors/{name}/config", config)
    assert response.status in (200, 201, 409), response
    return response.status != 409


def runs_everything(worker: ConnectWorker) -> bool:
    return {(state, worker_id) for state, worker_id in worker.all_states().values()} == {("RUNNING", worker.worker_id)}


def shares_everything(worker: ConnectWorker) -> bool:
    states = worker.all_states()
    return {state for state, _ in states.values()} == {"RUNNING"} and len({owner for _, owner in states.values()}) == 2


def have_equal_states(first: ConnectWorker, second: ConnectWorker) -> bool:
    return first.all_states() == second.all_states()


def is_paused(worker: ConnectWorker) -> bool:
    return worker.all_states()["source-0"][0] == "PAUSED"


def has_started(worker: ConnectWorker) -> bool:
    return worker.send("GET", "/connectors").status == 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@BOTH
def test_workers_of_the_other_kind_continue_on_the_same_topics(
    first_is_kafkas: bool, tmp_path: Path, files: Files
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        files.append(100)
        for number, is_kafkas in enumerate((first_is_kafkas, not first_is_kafkas, first_is_kafkas)):
            with ConnectWorker(
                tmp_path / str(number), broker.bootstrap, GROUP, is_kafkas=is_kafkas, overrides=INTERVALS
            ) as worker:
                wait_until(partial(has_started, worker))
                if number == 0:
                    files.create_connectors(worker)
                files.append(100)
                files.wait_for_copy()
                wait_until(partial(files.are_at_end, worker))


@BOTH
def test_workers_of_both_kinds_share_a_group(first_is_kafkas: bool, tmp_path: Path, files: Files) -> None:
    with ExitStack() as running:
        broker = running.enter_context(BrokerProcess(tmp_path / "broker"))

        def start(is_kafkas: bool) -> ConnectWorker:
            folder = tmp_path / ("kafka" if is_kafkas else "milena")
            return running.enter_context(
                ConnectWorker(folder, broker.bootstrap, GROUP, is_kafkas=is_kafkas, overrides=INTERVALS)
            )

        leader = start(first_is_kafkas)
        wait_until(partial(has_started, leader))
        files.create_connectors(leader)
        files.append(100)
        files.wait_for_copy()
        follower = start(not first_is_kafkas)

        wait_until(partial(shares_everything, leader), timeout_s=90)
        wait_until(partial(have_equal_states, leader, follower))
        files.append(100)
        files.wait_for_copy()
        paused = follower.send("PUT", "/connectors/source/pause")  # the leader gets it from the follower
        assert paused.status == 202
        wait_until(partial(is_paused, leader))
        follower.send("PUT", "/connectors/source/resume")
        leader.kill()
        wait_until(partial(runs_everything, follower), timeout_s=90)
        files.append(100)
        files.wait_for_copy(may_repeat=True)


def test_two_workers_of_kafka_run_on_milenas_broker_and_send_in_transactions(
    broker: BrokerProcess, tmp_path: Path, files: Files
) -> None:
    overrides = {
        **INTERVALS,
        "exactly.once.source.support": "enabled",
        "consumer.isolation.level": "read_committed",
    }
    with ExitStack() as running:
        first, second = (
            running.enter_context(
                ConnectWorker(tmp_path / name, broker.bootstrap, "javas", is_kafkas=True, overrides=overrides)
            )
            for name in ("first", "second")
        )
        wait_until(partial(has_started, first))
        files.create_connectors(first)
        files.append(100)
        files.wait_for_copy()
        second.kill()
        wait_until(partial(runs_everything, first), timeout_s=90)
        files.append(100)
        files.wait_for_copy(may_repeat=True)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    low, high = consumer.get_watermark_offsets(TopicPartition("lines", 0), 30)
    consumer.close()
    assert high - low > 200, "the topic has the markers of transactions beside the 200 records"
