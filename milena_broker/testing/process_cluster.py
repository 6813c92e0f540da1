"""A cluster whose brokers have a process each, so that each can be killed, halted and isolated.

Owns these processes, and one more that hosts the coordination server of the brokers and performs commands of the whole
cluster (`tools.launch.fixture.cluster_host`). Must not know pytest.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from milena_broker.testing import arguments
from milena_broker.testing.broker import Cluster
from milena_broker.testing.controls import Controls
from milena_broker.testing.hosted_process import START_TIMEOUT_S, BrokerError, HostedProcess
from milena_broker.testing.nursery import Kind
from milena_broker.testing.steps import Change

__tracebackhide__ = True

CLUSTER_SETTINGS: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "30000",
    "replica.fetch.wait.max.ms": "100",
}
"""Settings that differ from Kafka's: a halted or isolated broker loses its leaderships after 3 s, not after 18."""


class ClusterBroker(Controls):
    """One broker of a `ProcessCluster`. Methods raise BrokerError."""

    def __init__(self, broker_id: int, cluster: ProcessCluster) -> None:
        self.broker_id = broker_id
        self._cluster = cluster
        self._process: HostedProcess | None = None
        self._is_paused = False
        self.port = 0
        self.own_port = 0
        """The port at which brokers, and commands of the fixture, connect to it."""

    @property
    def bootstrap_server(self) -> str:
        """The address of this broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running().pid

    @property
    def log(self) -> Path:
        """The file with the log of this broker."""
        return self._cluster.folder / f"broker-{self.broker_id}.log"

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would.

        The cluster ends its session with the coordination server, so other brokers become leaders immediately, and not
        after the timeout of the session.
        """
        process, self._process, self._is_paused = self._process, None, False
        if process is not None:
            process.kill()
            self._cluster.left(self, is_dead=True)

    def stop(self) -> None:
        """Stop the broker cleanly: its leaderships move before it ends."""
        self.resume()
        self._cluster.left(self, is_dead=False)
        self._running().exchange({"command": "stop"}, START_TIMEOUT_S)
        self.kill()

    def start(self) -> None:
        """Start a broker that was stopped or killed, over its data and with its address."""
        if self._process is not None:
            raise BrokerError(f"broker {self.broker_id} is running")
        self.spawn()
        self._cluster.joined(self)

    def restart(self) -> None:
        """Stop the broker cleanly if it runs, and start it again."""
        if self._process is not None:
            self.stop()
        self.start()

    def pause(self) -> Change:
        """Halt the process until `resume`, or the end of a `with` block: connections stay open, nothing responds."""
        self._running().send_signal(signal.SIGSTOP)
        self._is_paused = True
        self._cluster.left(self, is_dead=False)
        return Change(self.resume)

    def resume(self) -> None:
        """Continue after `pause`; return when the others know the broker. Has no effect if it is not halted."""
        if self._is_paused:
            self._is_paused = False
            self._running().send_signal(signal.SIGCONT)
            self._cluster.joined(self)

    # -- for the cluster -----------------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the process, and wait until its broker serves."""
        self._process = HostedProcess(self.log, self._cluster.kind)
        ((self.port, self.own_port),) = self._process.exchange(self._cluster.order_of(self), START_TIMEOUT_S)

    def call(self, command: str, **arguments: object) -> Any:
        if self._is_paused:
            raise BrokerError(f"broker {self.broker_id} is paused: call resume() before {command}")
        return self._running().exchange({"command": command, "arguments": arguments}, START_TIMEOUT_S)

    def _control(self, command: str, **arguments: object) -> list[Any]:
        return [self.call(command, **arguments)]

    def _running(self) -> HostedProcess:
        if self._process is None:
            raise BrokerError(f"broker {self.broker_id} is not running")
        return self._process


class ProcessCluster(Cluster):
    """Brokers with the ids 0, 1 and so on, each in a process of its own. Use as a context manager.

    The processes end with this one, however this one ends. Methods raise BrokerError. A clock that a test moves is that
    of the brokers; their sessions with the coordination server go by the machine's.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        racks: Sequence[str] = (),
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        """See `Cluster`. Broker 0 is in the first of `racks`, broker 1 in the next, and so on from the first again."""
        super().__init__(
            brokers,
            settings,
            topics=topics,
            seed=seed,
            folder=folder,
            tls=tls,
            users=users,
            movable_clock=movable_clock,
        )
        self._settings = {**CLUSTER_SETTINGS, **_internal_replication(brokers), **self._settings}
        self._racks = arguments.names("racks", racks)
        self._brokers = [ClusterBroker(broker_id, self) for broker_id in range(brokers)]
        self._doors: list[int] = []

    @property
    def kind(self) -> Kind:
        """What the process of a broker has to prepare."""
        return Kind.MOVABLE_CLOCK if self._has_movable_clock else Kind.CLUSTER

    @property
    def folder(self) -> Path:
        """The folder of the data and logs."""
        return self.log.parent

    @property
    def logs(self) -> Sequence[Path]:
        """The files with the logs of all processes."""
        return [self.log, *(broker.log for broker in self._brokers)]

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return one of the brokers."""
        if arguments.integer("broker_id", broker_id, 0) >= len(self._brokers):
            raise BrokerError(f"there is no broker {broker_id}, expected 0 to {len(self._brokers) - 1}")
        return self._brokers[broker_id]

    def leader_of(self, topic: str, partition: int = 0) -> ClusterBroker:
        """Return the broker that leads a partition, when there is one that runs."""
        arguments.text("topic", topic)
        arguments.integer("partition", partition, 0)
        return self.broker(self._call("leader_of", topic=topic, partition=partition))

    def isolate(self, *broker_ids: int) -> Change:
        """Cut these brokers off from the others, from each other and from the coordination server, but not from
        clients, until the next call, or the end of a `with` block. Without ids, nothing is cut, and the call returns
        when the brokers know each other again.
        """
        cut = {self.broker(broker_id).broker_id for broker_id in broker_ids}
        self._call("isolate", broker_ids=sorted(cut))
        for broker in self._brokers:
            others = [
                other.own_port
                for other in self._brokers
                if other is not broker and (broker.broker_id in cut or other.broker_id in cut)
            ]
            if broker.is_running:
                broker.call("cut", ports=others)
        if not cut:
            self._call("know_each_other")
        return Change(self.isolate)

    # -- Cluster -------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End all processes with SIGKILL. The data stays until `stop`, for `restart`."""
        super().kill()  # first: what the brokers would report is not needed
        for broker in self._brokers:
            broker.kill()

    def stop(self) -> None:
        """End the brokers. Data in a given folder is closed cleanly, temporary data is removed."""
        if self._kept_folder is not None and self._process is not None:
            self._stop_brokers()
        super().stop()

    def restart(self) -> None:
        """Stop all brokers cleanly that run, and start all again over their data, with the same addresses."""
        if self._process is not None:
            self._stop_brokers()
        super().restart()

    def pause(self) -> Change:
        """Halt all brokers until `resume`, or the end of a `with` block."""
        for broker in self._running():
            broker.pause()
        return Change(self.resume)

    def resume(self) -> None:
        """Continue after `pause`."""
        for broker in self._brokers:
            broker.resume()

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker cleanly: its leaderships move, and its clients get no connection."""
        self.broker(broker_id).stop()

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed again, with the same address."""
        self.broker(broker_id).start()

    def _control(self, command: str, **arguments: object) -> list[Any]:
        return [broker.call(command, **arguments) for broker in self._running()]

    def _running(self) -> list[ClusterBroker]:
        return [broker for broker in self._brokers if broker.is_running]

    def _stop_brokers(self) -> None:
        for broker in reversed(self._running()):
            with suppress(BrokerError):
                broker.stop()

    # -- the processes -------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        self._process = HostedProcess(self.log, Kind.CLUSTER)
        self._doors = self._process.exchange(self._order([], [], None), START_TIMEOUT_S)
        with ThreadPoolExecutor(len(self._brokers)) as threads:
            _all(threads.submit(broker.spawn).result for broker in self._brokers)
        self._ports = [[broker.port, broker.own_port] for broker in self._brokers]
        for broker in self._brokers:
            self.joined(broker, waits=False)
        self._call("know_each_other")

    def order_of(self, broker: ClusterBroker) -> Mapping[str, object]:
        """Return what the process of a broker has to start."""
        order = self._order(
            [broker.broker_id], [[broker.port, broker.own_port]], f"127.0.0.1:{self._doors[broker.broker_id]}"
        )
        if self._racks:
            rack = self._racks[broker.broker_id % len(self._racks)]
            order["settings"] = {**self._settings, "broker.rack": rack}
        return order

    def joined(self, broker: ClusterBroker, *, waits: bool = True) -> None:
        """Let commands use a broker; with `waits`, return when the others know it."""
        self._call("joined", broker_id=broker.broker_id, port=broker.own_port)
        if waits:
            self._call("know_each_other")

    def left(self, broker: ClusterBroker, *, is_dead: bool) -> None:
        """Let commands use a broker no more, and end its session if it is dead."""
        if self._process is not None:
            self._call("left", broker_id=broker.broker_id, is_dead=is_dead)


def _internal_replication(brokers: int) -> Mapping[str, str]:
    """Return settings with which internal topics can be created, and used, when one broker is dead already."""
    copies = str(min(max(brokers - 1, 1), 3))
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
    }


def _all(calls: Iterable[Callable[[], object]]) -> None:
    """Call all functions, and then raise the first error."""
    errors = []
    for call in list(calls):
        try:
            call()
        except BrokerError as error:
            errors.append(error)
    if errors:
        raise errors[0]
