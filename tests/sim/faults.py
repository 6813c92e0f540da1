"""Faults: what may happen to a cluster, and seeded schedules of it.

Owns the kinds and how each is applied and ended. Must not know clients or checkers.

A schedule is a list, drawn before the run, so that faults can be left out of a failing run one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final

from controller.store.state_store import Operation, SetData
from controller.tree.paths import CONTROLLER
from tests.sim.cluster import Cluster, Machine
from tests.sim.disk import DiskFiles
from tests.sim.zookeeper import HOST as ZOOKEEPER

SECOND_US: Final = 1_000_000
KILL_US_MAX: Final = 3_000
"""How long after a phase of a move has begun a broker is killed."""
LOOK_US: Final = 500
"""How often it is looked whether a controller has been elected."""
_TOPIC: Final = re.compile(r"/brokers/topics/[^/]+")
_STATE: Final = re.compile(r"(/brokers/topics/[^/]+)/partitions/(\d+)/state")
ELECTION_US_MAX: Final = 3 * SECOND_US
"""Less than a session that hears nothing lasts."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it begins `at_us` after the start of the schedule and lasts `duration_us`."""

    at_us: int
    kind: str
    broker: int
    other: str = ""
    """The other host of a fault of a link; `*` for all brokers."""
    duration_us: int = 0
    amount: int = 0

    def __str__(self) -> str:
        parts = [f"{self.at_us / SECOND_US:.3f} s {self.kind}: broker {self.broker}"]
        if self.other:
            parts.append(f"other {self.other}")
        if self.duration_us:
            parts.append(f"for {self.duration_us / SECOND_US:.3f} s")
        if self.amount:
            parts.append(f"amount {self.amount}")
        return ", ".join(parts)


class Phase(Enum):
    """How far a move is."""

    BEGINS = 0
    """The write of its node is on its way."""
    BEGUN = 1
    """Its node is written; the state of the partition is not."""
    ADDED = 2
    """The first state with the added replicas is written."""
    IN_SYNC = 3
    """All replicas that are to stay are in the ISR."""
    REMOVED = 4
    """The removed replicas have left the ISR, so that they are stopped."""
    DONE = 5
    """Its node is written again, without the removed replicas."""


@dataclass(slots=True)
class Move:
    """A move in progress, as its node in ZooKeeper states it."""

    adding: frozenset[int]
    removing: frozenset[int]
    replicas: frozenset[int]


class MovePhases:
    """Watches the nodes of topics and partitions, and calls back once when any move comes to a phase."""

    def __init__(self, cluster: Cluster) -> None:
        self._zookeeper = cluster.zookeeper
        self._waiting: list[tuple[Phase, Callable[[Move], None]]] = []
        self._moves: dict[tuple[str, str], Move] = {}
        cluster.zookeeper.on_commit.append(self._committed)
        cluster.zookeeper.on_write = self._written

    def on_phase(self, phase: Phase, callback: Callable[[Move], None]) -> None:
        self._waiting.append((phase, callback))

    def _reach(self, phase: Phase, move: Move) -> None:
        due = [it for it in self._waiting if it[0] is phase]
        self._waiting = [it for it in self._waiting if it[0] is not phase]
        for _, callback in due:
            callback(move)

    def _written(self, host: str, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, SetData) and _TOPIC.fullmatch(operation.path):
                for key, move in _moves_of(operation.data).items():
                    if (operation.path, key) not in self._moves:
                        self._reach(Phase.BEGINS, move)

    def _committed(self, operations: Sequence[Operation], session_id: int) -> None:
        for operation in operations:
            if not isinstance(operation, SetData):
                continue
            if _TOPIC.fullmatch(operation.path):
                self._note_topic(operation)
            elif found := _STATE.fullmatch(operation.path):
                move = self._moves.get((found[1], found[2]))
                if move is not None:
                    self._note_state(move, json.loads(operation.data or b"{}"))

    def _note_topic(self, operation: SetData) -> None:
        moves = _moves_of(operation.data)
        for path, key in [it for it in self._moves if it[0] == operation.path and it[1] not in moves]:
            self._reach(Phase.DONE, self._moves.pop((path, key)))
        for key, move in moves.items():
            self._moves[operation.path, key] = move
            self._reach(Phase.BEGUN, move)

    def _note_state(self, move: Move, state: dict[str, Any]) -> None:
        isr = set(state["isr"])
        self._reach(Phase.ADDED, move)
        if move.replicas - move.removing <= isr:
            self._reach(Phase.IN_SYNC, move)
            if move.removing and not move.removing & isr:
                self._reach(Phase.REMOVED, move)


def _moves_of(data: bytes | None) -> dict[str, Move]:
    """Return the moves in progress that the node of a topic names, by partition."""
    node = json.loads(data or b"{}")
    adding, removing = node.get("adding_replicas", {}), node.get("removing_replicas", {})
    return {
        key: Move(
            frozenset(adding.get(key, ())), frozenset(removing.get(key, ())), frozenset(node["partitions"].get(key, ()))
        )
        for key in sorted({*adding, *removing})
    }


class Injector:
    """Applies faults to a cluster, and heals it at the end."""

    def __init__(self, cluster: Cluster, clients: Sequence[str], lose: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._clients = clients
        self._lose = lose  # called when a machine loses data
        self._is_over = False
        self._links: set[tuple[str, str]] = set()
        self._moves = MovePhases(cluster)

    def schedule(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._cluster.world.after(fault.at_us, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def heal(self) -> None:
        """End all faults, and start all brokers that are down."""
        self._is_over = True
        cluster = self._cluster
        cluster.world.note("heal")
        for broker_id, machine in cluster.machines.items():
            if machine.disk.failing_folder is not None or _has_lost_a_directory(machine):
                cluster.kill(broker_id)  # a broker uses a log directory that has failed only after a restart
            machine.disk.heal()
            if machine.process is not None:
                machine.process.loop.resume()
                if isinstance(machine.process.files, DiskFiles):
                    machine.process.files.never_crash()
        for one, other in sorted(self._links):
            cluster.network.slow_down(one, other, 0)
            cluster.network.mend(one, other)
        cluster.network.tear_nothing()
        cluster.network.flip_nothing()
        cluster.zookeeper.forget_next_writes()
        cluster.zookeeper.become_available()
        for host in cluster.hosts:
            cluster.zookeeper.stop_lagging(host)
        for broker_id, machine in cluster.machines.items():
            if machine.process is None:
                self._start(broker_id)
            elif not machine.is_wanted:  # it is stopping
                self._start_after_stop(broker_id)

    def _start(self, broker_id: int) -> None:
        cluster = self._cluster
        if cluster.machines[broker_id].process is None:
            cluster.return_power(broker_id)
            cluster.start(broker_id)

    def _start_after_stop(self, broker_id: int) -> None:
        """Start a broker once its clean stop is complete; kill it if the stop takes too long."""
        machine = self._cluster.machines[broker_id]
        process = machine.process

        def again() -> None:
            if machine.process is process and process is not None:
                self._cluster.kill(broker_id)
            self._start(broker_id)

        self._cluster.world.after(10 * SECOND_US, again)

    # One fault

    def _begin(self, fault: Fault) -> None:
        if self._is_over:
            return
        self._cluster.world.note("fault", str(fault))
        _KINDS[fault.kind](self, fault)

    def _later(self, fault: Fault, step: Callable[[], None]) -> None:
        """End a fault after its time, unless the cluster is healed before."""

        def end() -> None:
            if not self._is_over:
                self._cluster.world.note("end of fault", fault.kind, fault.broker)
                step()

        self._cluster.world.after(fault.duration_us, end)

    def _kill(self, fault: Fault) -> None:
        self._cluster.kill(fault.broker)
        self._later(fault, lambda: self._start(fault.broker))

    def _kill_all(self, fault: Fault) -> None:
        for broker_id in self._cluster.machines:
            self._cluster.kill(broker_id)
        for broker_id in self._cluster.machines:
            self._later(fault, lambda broker_id=broker_id: self._start(broker_id))  # type: ignore[misc]

    def _kill_in_call(self, fault: Fault) -> None:
        self._cluster.kill_in_call(fault.broker, fault.amount)
        self._later(fault, lambda: self._start(fault.broker))

    def _kill_in_move(self, fault: Fault) -> None:
        """Kill the controller, a source or a target of the next move that comes to a phase."""
        phase, victim = Phase(fault.amount // len(VICTIMS)), VICTIMS[fault.amount % len(VICTIMS)]

        def kill(move: Move) -> None:
            broker = victim(self, move)
            if broker is None or self._is_over:
                return
            self._cluster.world.note("kill in a move", phase.name, broker)
            self._cluster.kill(broker)
            self._later(fault, lambda: self._start(broker))

        def reached(move: Move) -> None:
            # Some time later, so that the request to stop replicas is on its way in the one case or the other.
            self._cluster.world.after(fault.at_us % KILL_US_MAX, lambda: kill(move))

        self._moves.on_phase(phase, reached)

    def _lose_power(self, fault: Fault) -> None:
        self._cluster.lose_power(fault.broker)
        self._lose(fault.broker)
        self._later(fault, lambda: self._start(fault.broker))

    def _lose_disk(self, fault: Fault) -> None:
        self._cluster.kill(fault.broker)
        self._cluster.machines[fault.broker].disk.erase()
        self._lose(fault.broker)
        self._later(fault, lambda: self._start(fault.broker))

    def _stop(self, fault: Fault) -> None:
        process = self._cluster.machines[fault.broker].process
        if not self._cluster.is_running(fault.broker) or process is None:
            return
        self._cluster.stop(fault.broker)

        def start() -> None:
            if self._cluster.machines[fault.broker].process is process:
                self._start_after_stop(fault.broker)
            else:
                self._start(fault.broker)

        self._later(fault, start)

    def _pause(self, fault: Fault) -> None:
        process = self._cluster.machines[fault.broker].process
        if process is not None:
            process.loop.pause()
            self._later(fault, process.loop.resume)

    def _hosts(self, fault: Fault) -> list[tuple[str, str]]:
        here = self._cluster.machines[fault.broker].host
        others = [host for host in self._cluster.hosts if host != here] if fault.other == "*" else [fault.other]
        return [(here, other) for other in others]

    def _cut(self, fault: Fault) -> None:
        """Cut links: both ways with amount 0, else from the broker (1) or to it (2)."""
        for one, other in self._hosts(fault):
            self._links.add((one, other))
            if fault.amount == 2:
                self._cluster.network.cut(other, one, one_way=True)
            else:
                self._cluster.network.cut(one, other, one_way=bool(fault.amount))
            self._later(fault, lambda one=one, other=other: self._cluster.network.mend(one, other))  # type: ignore[misc]

    def _slow_link(self, fault: Fault) -> None:
        for one, other in self._hosts(fault):
            self._links.add((one, other))
            self._cluster.network.slow_down(one, other, fault.amount)
            self._later(  # type: ignore[misc]
                fault, lambda one=one, other=other: self._cluster.network.slow_down(one, other, 0)
            )

    def _tear(self, fault: Fault) -> None:
        for one, other in self._hosts(fault):
            source, target = (one, other) if fault.amount == 0 else (other, one)
            self._cluster.network.tear(source, target)

    def _flip_bits(self, fault: Fault) -> None:
        """Flip bits of the next batches from a broker to each other, and of the next batch from each client to it."""
        for here, other in self._hosts(fault):
            self._cluster.network.flip_bits(here, other, fault.amount, epochs=True)
        for client in self._clients:
            # The leader sets the epoch.
            self._cluster.network.flip_bits(client, self._cluster.machines[fault.broker].host, 1, epochs=False)

    def _slow_disk(self, fault: Fault) -> None:
        disk = self._cluster.machines[fault.broker].disk
        disk.delay_us = fault.amount

        def end() -> None:
            disk.delay_us = 0

        self._later(fault, end)

    def _fill_disk(self, fault: Fault) -> None:
        disk = self._cluster.machines[fault.broker].disk
        disk.is_full = True

        def end() -> None:
            disk.is_full = False

        self._later(fault, end)

    def _break_disk(self, fault: Fault) -> None:
        disk = self._cluster.machines[fault.broker].disk
        disk.is_failing = True

        def end() -> None:
            disk.is_failing = False

        self._later(fault, end)

    def _break_folder(self, fault: Fault) -> None:
        """Let one log directory fail, if the broker has several; then replace it, and start the broker again."""
        disk = self._cluster.machines[fault.broker].disk
        folders = self._cluster.folders
        if len(folders) == 1:
            return
        disk.failing_folder = folders[fault.amount]

        def end() -> None:
            disk.failing_folder = None
            self._cluster.kill(fault.broker)
            self._start(fault.broker)

        self._later(fault, end)

    def _expire_session(self, fault: Fault) -> None:
        self._cluster.zookeeper.expire(self._cluster.machines[fault.broker].host)

    def _expire_controller(self, fault: Fault) -> None:
        """End the session of the controller, wherever it is, right after a broker died: it has states to write."""
        cluster = self._cluster
        controller = self._controller()
        if controller is None:
            return
        self._leave_beside(controller, fault)
        cluster.world.after(fault.amount, lambda: cluster.zookeeper.expire(cluster.machines[controller].host))

    def _depose_controller(self, fault: Fault) -> None:
        """Delete the node of the controller, as operators do to have another one elected, while a write is on its way.

        The write is that of states, because a broker has died. It arrives when the next controller has been elected.
        """
        cluster, zookeeper = self._cluster, self._cluster.zookeeper
        controller = self._controller()
        if controller is None or len(cluster.machines) == 1:
            return
        host = cluster.machines[controller].host
        self._leave_beside(controller, fault)

        def depose() -> None:
            if self._controller() != controller:
                return
            self._cut_until_elected(host, fault)
            zookeeper.delete_as_operator(CONTROLLER)

        zookeeper.on_next_write(host, depose)

    def _cut_until_elected(self, host: str, fault: Fault) -> None:
        """Cut a host from ZooKeeper until `amount` after the next election, but not until its session expires."""
        cluster = self._cluster
        cluster.network.cut(host, ZOOKEEPER)
        self._links.add((host, ZOOKEEPER))
        latest_us = cluster.world.now_us + ELECTION_US_MAX

        def mend() -> None:
            cluster.network.mend(host, ZOOKEEPER)

        def look() -> None:
            if self._controller() is not None:
                cluster.world.after(fault.amount, mend)
            elif cluster.world.now_us > latest_us:
                mend()
            else:
                cluster.world.after(LOOK_US, look)

        cluster.world.after(LOOK_US, look)

    def _any_source(self, move: Move) -> int | None:
        """Return a replica that is removed, or else one that has the records already."""
        return min(move.removing or move.replicas - move.adding, default=None)

    def _any_target(self, move: Move) -> int | None:
        """Return a replica that is added, or else one that stays."""
        return min(move.adding or move.replicas - move.removing, default=None)

    def _controller(self) -> int | None:
        """Return the id of the controller, according to ZooKeeper."""
        entry = self._cluster.zookeeper.tree.entries.get(CONTROLLER)
        return None if entry is None else int(json.loads(entry.data or b"{}")["brokerid"])

    def _leave_beside(self, controller: int, fault: Fault) -> None:
        """Kill a broker that is not the controller, unless there is no other, and end its session."""
        cluster = self._cluster
        victim = fault.broker if fault.broker != controller else controller % len(cluster.machines) + 1
        cluster.kill(victim)
        cluster.zookeeper.expire(cluster.machines[victim].host)
        self._later(fault, lambda: self._start(victim))

    def _lose_store_connection(self, fault: Fault) -> None:
        self._cluster.zookeeper.lose_connection(self._cluster.machines[fault.broker].host)

    def _delay_store(self, fault: Fault) -> None:
        """Let the server of ZooKeeper that a broker is connected to lag behind the others."""
        host = self._cluster.machines[fault.broker].host
        self._cluster.zookeeper.begin_to_lag(host, fault.amount)
        self._later(fault, lambda: self._cluster.zookeeper.stop_lagging(host))

    def _stop_store(self, fault: Fault) -> None:
        self._cluster.zookeeper.become_unavailable()
        self._later(fault, self._cluster.zookeeper.become_available)

    def _restart_store(self, fault: Fault) -> None:
        """Let the server of the metadata die, at any time or, with amount 1, while it writes; start it again."""
        self._cluster.zookeeper.restart(fault.duration_us, in_write=bool(fault.amount))

    def _jump_clock(self, fault: Fault) -> None:
        self._cluster.machines[fault.broker].clock_error_ms += fault.amount


VICTIMS: Final[tuple[Callable[[Injector, Move], int | None], ...]] = (
    lambda injector, move: injector._controller(),
    Injector._any_source,
    Injector._any_target,
)
"""Which broker a fault kills in the middle of a move."""


_KINDS: Final[dict[str, Callable[[Injector, Fault], None]]] = {
    "kill": Injector._kill,
    "kill all": Injector._kill_all,
    "kill in a disk call": Injector._kill_in_call,
    "kill in a move": Injector._kill_in_move,
    "power loss": Injector._lose_power,
    "disk loss": Injector._lose_disk,
    "clean stop": Injector._stop,
    "pause": Injector._pause,
    "cut": Injector._cut,
    "slow link": Injector._slow_link,
    "torn message": Injector._tear,
    "flipped bits": Injector._flip_bits,
    "slow disk": Injector._slow_disk,
    "full disk": Injector._fill_disk,
    "failing disk": Injector._break_disk,
    "failing directory": Injector._break_folder,
    "expired session": Injector._expire_session,
    "expired controller": Injector._expire_controller,
    "deposed controller": Injector._depose_controller,
    "lost store connection": Injector._lose_store_connection,
    "lagging store server": Injector._delay_store,
    "store unavailable": Injector._stop_store,
    "store restart": Injector._restart_store,
    "clock jump": Injector._jump_clock,
}

WEIGHTS: Final = {
    "kill": 6,
    "kill all": 1,
    "kill in a disk call": 4,
    "kill in a move": 5,
    "power loss": 3,
    "disk loss": 1,
    "clean stop": 4,
    "pause": 5,
    "cut": 8,
    "slow link": 3,
    "torn message": 4,
    "flipped bits": 4,
    "slow disk": 2,
    "full disk": 1,
    "failing disk": 1,
    "failing directory": 3,
    "expired session": 3,
    "expired controller": 3,
    "deposed controller": 2,
    "lost store connection": 3,
    "lagging store server": 3,
    "store unavailable": 2,
    "store restart": 5,
    "clock jump": 1,
}


def _has_lost_a_directory(machine: Machine) -> bool:
    """Return whether a running broker has taken one of its log directories offline, for lack of space for example."""
    server = None if machine.process is None else machine.process.server
    log_manager = getattr(server, "_log_manager", None)  # a broker that starts has none yet
    return log_manager is not None and log_manager.directories.has_offline


def draw_schedule(random: Random, brokers: Sequence[int], clients: Sequence[str], duration_us: int) -> list[Fault]:
    """Return a schedule of some faults, in the order of their times."""
    faults: list[Fault] = []
    count = random.randint(2, 6)
    while len(faults) < count:
        at_us = random.randrange(duration_us)
        if faults and random.random() < 0.25:
            at_us = faults[-1].at_us + random.randrange(200_000)  # several at the same time
        faults.append(_draw(random, at_us, brokers, clients))
    return sorted(faults, key=lambda fault: fault.at_us)


def _draw(random: Random, at_us: int, brokers: Sequence[int], clients: Sequence[str]) -> Fault:
    kind = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    broker = random.choice(list(brokers))
    # Short ones interrupt, long ones outlast session timeout and lag time.
    duration_us = random.choice([300_000, 2 * SECOND_US, 9 * SECOND_US])
    duration_us = round(duration_us * (0.5 + random.random()))
    other = ""
    amount = 0
    if kind == "flipped bits":
        other = "*"
        amount = random.choice([1, 6])
    elif kind in ("cut", "slow link", "torn message"):
        peers = [f"broker-{one}" for one in brokers if one != broker]
        other = random.choice([*peers, "*", ZOOKEEPER, *([random.choice(list(clients))] if clients else [])])
        if kind == "cut":
            amount = random.choice([0, 0, 1, 2])
        elif kind == "slow link":
            amount = random.choice([5_000, 100_000, 1_500_000])
        else:
            amount = random.randrange(2)
    elif kind == "lagging store server":
        amount = random.choice([50_000, 500_000, 3 * SECOND_US])
    elif kind in ("failing directory", "store restart"):
        amount = random.randrange(2)
    elif kind == "kill in a disk call":
        amount = random.randrange(60)
    elif kind == "kill in a move":
        at_us //= 3  # it waits for a move
        amount = random.randrange(len(Phase) * len(VICTIMS))
    elif kind == "expired controller":
        amount = random.randrange(10_000)
    elif kind == "deposed controller":
        amount = random.randrange(3_000)
    elif kind == "slow disk":
        amount = random.choice([2_000, 30_000, 400_000])
    elif kind == "clock jump":
        amount = random.choice([-3_600_000, -5_000, 5_000, 3_600_000])
    return Fault(at_us, kind, broker, other, duration_us, amount)
