"""A cluster of brokers and its ZooKeeper as processes, with the failures that tests cause.

Owns: the processes, their settings, and waiting until the cluster has healed. Must not know what tests do with it. The
brokers are Milena's or, with `kafka_brokers`, Apache Kafka's: a test that fails with both is wrong.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self
from urllib.error import HTTPError

from kazoo.client import KazooClient

from tests.support.broker import BrokerProcess
from tests.support.metadata_probe import ask_metadata
from tests.support.processes import listening_ports
from tests.support.zookeeper import ZooKeeperProcess
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.bootstrap import Endpoint

DEADLINE_S = 60.0
POLL_S = 0.1
SESSION_TIMEOUT_S = 2.0
LAG_TIME_S = 1.5
REPLICAS = 3

SETTINGS: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "replica.lag.time.max.ms": str(int(LAG_TIME_S * 1000)),
    "replica.fetch.wait.max.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "200",
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
    # A move of leaders back to the preferred brokers would only be seen by tests that wait for minutes.
    "auto.leader.rebalance.enable": "false",
}
"""What all brokers share: short times, so that failures are noticed soon."""


class Broker(Protocol):
    """One broker process; a `ServerProcess` with its log directory."""

    port: int
    log_dir: Path

    @property
    def pid(self) -> int: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def is_running(self) -> bool: ...
    def spawn(self) -> None: ...
    def wait_until_ready(self) -> None: ...
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def halt(self) -> None: ...
    def resume(self) -> None: ...


class Coordination(Protocol):
    """The server of ZooKeeper's protocol that the brokers share."""

    @property
    def connect(self) -> str: ...
    @property
    def is_running(self) -> bool: ...
    def start(self) -> object: ...
    def kill(self) -> None: ...
    def resume(self) -> None: ...


NewBroker = Callable[[int, Path, str, Mapping[str, str]], Broker]
"""Returns a broker that is not started yet: its id, its folder, the value of `zookeeper.connect` and its settings."""


def milena_broker(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    own = {"zookeeper.connect": connect, "metrics.http.listener": "127.0.0.1:0"}
    return BrokerProcess(folder, {**own, **settings}, broker_id=broker_id)


def kafka_broker(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    from tests.support.apache_kafka import ApacheKafkaProcess  # its libraries are fetched on first use

    return ApacheKafkaProcess(folder, connect, broker_id=broker_id, overrides=settings)


class Cluster:
    """Brokers with the ids 1, 2, ... and one server of ZooKeeper's protocol; a context manager that runs all."""

    def __init__(
        self,
        folder: Path,
        broker_count: int = REPLICAS,
        settings: Mapping[str, str] | None = None,
        new_broker: NewBroker = milena_broker,
        *,
        one_by_one: bool = False,
        coordination: Coordination | None = None,
    ) -> None:
        """
        Args:
            one_by_one: starts each broker when the one before serves: several JVMs that start at a time are slow.
            coordination: a server that runs, in ZooKeeper's place.
        """
        self.folder = folder
        self._one_by_one = one_by_one
        self.zookeeper: Coordination = coordination or ZooKeeperProcess(folder / "zookeeper")
        self._settings = {**SETTINGS, **(settings or {})}
        self._new_broker = new_broker
        self._broker_ids = range(1, broker_count + 1)
        self.brokers: dict[int, Broker] = {}
        self._halted: set[int] = set()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.stop)
            if not self.zookeeper.is_running:
                self.zookeeper.start()
            for broker_id in self._broker_ids:
                broker = self.add_broker(broker_id)
                broker.spawn()
                if self._one_by_one:
                    broker.wait_until_ready()
            for broker in self.brokers.values():
                broker.wait_until_ready()
            self.wait_until(self._is_known_everywhere, "every broker knows all brokers")
            undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def add_broker(self, broker_id: int) -> Broker:
        """Return a new broker of the cluster, not started yet."""
        folder = self.folder / f"broker-{broker_id}"
        broker = self._new_broker(broker_id, folder, self.zookeeper.connect, self._settings)
        self.brokers[broker_id] = broker
        return broker

    def stop(self) -> None:
        """Stop all brokers at the same time, then ZooKeeper."""
        for broker in self.brokers.values():
            broker.resume()
        for broker in self.brokers.values():
            broker.stop()
        self.zookeeper.resume()
        self.zookeeper.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running(self) -> list[int]:
        """The ids of the brokers whose processes exist and are not halted."""
        return [it for it, broker in self.brokers.items() if broker.is_running and it not in self._halted]

    # -- failures ---------------------------------------------------------------------------------------------------

    def kill(self, *broker_ids: int) -> None:
        """Kill brokers with SIGKILL, all before the first is waited for."""
        for broker_id in broker_ids:
            self.brokers[broker_id].kill()

    @contextmanager
    def halted(self, broker_id: int) -> Iterator[None]:
        """Halt a broker with SIGSTOP during the block."""
        self.brokers[broker_id].halt()
        self._halted.add(broker_id)
        try:
            yield
        finally:
            self._halted.discard(broker_id)
            self.brokers[broker_id].resume()

    def start(self, *broker_ids: int) -> None:
        """Start brokers that do not run, at the same time, and wait until they respond.

        As in Kafka, a broker does not start before the session of its killed predecessor is over.
        """
        if not broker_ids:
            return
        client = KazooClient(self.zookeeper.connect)
        client.start()
        self.wait_until(
            lambda: not any(client.exists(f"/brokers/ids/{it}") for it in broker_ids), "the sessions are over"
        )
        client.stop()
        client.close()
        for broker_id in broker_ids:
            self.brokers[broker_id].spawn()
        for broker_id in broker_ids:
            self.brokers[broker_id].wait_until_ready()

    def restart(self, broker_id: int) -> None:
        """Stop a broker cleanly and start it again."""
        self.brokers[broker_id].stop()
        self.start(broker_id)

    def wipe(self, broker_id: int) -> None:
        """Delete all data of a broker that does not run, as if its disks had been replaced."""
        assert not self.brokers[broker_id].is_running
        shutil.rmtree(self.brokers[broker_id].log_dir)

    # -- state ------------------------------------------------------------------------------------------------------

    def controller(self) -> int:
        """Return the id of the controller, as one of the running brokers knows it."""
        found = -1

        def is_known() -> bool:
            nonlocal found
            views = [ask_metadata(self.brokers[broker_id].port) for broker_id in self.running[:1]]
            found = views[0].controller
            return found in self.running

        self.wait_until(is_known, "a running broker is the controller")
        return found

    def partitions(
        self, topic: str, broker_ids: Iterable[int] | None = None
    ) -> dict[int, tuple[int, list[int], list[int]]]:
        """Return the leader, the replicas and the in-sync replicas of each partition.

        They are as one of `broker_ids` knows them, or any running broker.
        """
        (found,) = self._partitions([topic], self.running if broker_ids is None else broker_ids)
        return found

    def _partitions(
        self, topics: Sequence[str], broker_ids: Iterable[int]
    ) -> list[dict[int, tuple[int, list[int], list[int]]]]:
        """Return the same of several topics, in one request to one of the brokers."""
        endpoints = [Endpoint("127.0.0.1", self.brokers[broker_id].port) for broker_id in broker_ids]
        with AdminClient(endpoints, timeout_ms=5000, request_timeout_ms=2000) as client:
            found = {topic.name: topic.partitions for topic in client.metadata(topics).topics}
        return [
            {it.partition_index: (it.leader_id, it.replica_nodes, it.isr_nodes) for it in found[topic]}
            for topic in topics
        ]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the leader, which runs."""
        found = -1

        def is_known() -> bool:
            nonlocal found
            found, *_ = self.partitions(topic)[partition]
            return found in self.running

        self.wait_until(is_known, f"a running broker leads {topic}-{partition}")
        return found

    def follower(self, topic: str, partition: int = 0) -> int:
        """Return the id of an in-sync follower that is not the controller, if there is one."""
        leader, _, isr = self.partitions(topic)[partition]
        controller = self.controller()
        return min((it for it in isr if it != leader), key=lambda it: it == controller)

    def wait_until_in_sync(self, *topics: str) -> None:
        """Wait until each partition of the topics has a running leader and all its replicas in sync.

        Every running broker has to know it: a client may ask any of them.
        """

        def is_so() -> bool:
            # A broker that has not heard of a new topic yet knows none of its partitions.
            return not topics or all(
                partitions
                and all(
                    leader in self.running and len(isr) == len(replicas)
                    for leader, replicas, isr in partitions.values()
                )
                for broker_id in self.running
                for partitions in self._partitions(topics, [broker_id])
            )

        self.wait_until(is_so, f"all replicas of {', '.join(topics)} are in sync")

    def heal(self, *topics: str) -> None:
        """Start and resume whatever does not run, and wait until everything is in sync."""
        self.zookeeper.resume()
        if not self.zookeeper.is_running:
            self.zookeeper.start()
        self.start(*(broker_id for broker_id in self.brokers if broker_id not in self.running))
        self.wait_until(self._is_known_everywhere, "every broker knows all brokers")
        self.wait_until_in_sync(*topics)

    def health(self, broker_id: int, check: str) -> tuple[bool, dict[str, object]]:
        """Return the result of a check of Milena's broker: `live`, `ready` or `safe`."""
        try:
            with urllib.request.urlopen(f"{self._metrics_url(broker_id)}/health/{check}", timeout=5) as response:
                return True, json.load(response)
        except HTTPError as error:
            return False, json.load(error)

    def metric(self, broker_id: int, sample: str) -> float:
        """Return a sample of Milena's broker, by its name with its labels; 0 if there is none yet."""
        with urllib.request.urlopen(f"{self._metrics_url(broker_id)}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} ")), 0.0)

    def _metrics_url(self, broker_id: int) -> str:
        broker = self.brokers[broker_id]
        (port,) = (port for port in listening_ports(broker.pid) if port != broker.port)
        return f"http://127.0.0.1:{port}"

    def processor_waits_s(self) -> dict[int, float]:
        """Return how long each process has waited for a processor since its start, by process id; Linux counts it."""
        processes: list[Broker | ZooKeeperProcess] = [*self.brokers.values()]
        if isinstance(self.zookeeper, ZooKeeperProcess):
            processes.append(self.zookeeper)
        return {it.pid: _processor_wait_s(it.pid) for it in processes if it.is_running}

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
        """Wait for a condition; brokers that do not respond make it false."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if condition():
                    return
            except (OSError, CallTimedOut, ValueError, KeyError):
                pass
            assert time.monotonic() < deadline, f"after {timeout_s:g} s it is not so that {what}"
            time.sleep(POLL_S)

    def _is_known_everywhere(self) -> bool:
        """Return whether every broker knows all brokers and the same controller."""
        views = [ask_metadata(broker.port) for broker in self.brokers.values()]
        controllers = {view.controller for view in views}
        return len(controllers) == 1 and all(view.brokers == set(self.brokers) for view in views)


def _processor_wait_s(pid: int) -> float:
    waited_ns = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended
            waited_ns += int(thread.read_text().split()[1])
    return waited_ns / 1e9


def log_bytes(brokers: Iterable[Broker], topic: str, partition: int) -> Iterator[bytes]:
    """Yield the content of the segments of each broker's replica, one after another."""
    for broker in brokers:
        folder = broker.log_dir / f"{topic}-{partition}"
        yield b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
