"""One run: a cluster, its clients, a schedule of faults, healing, and the judgement.

Owns the order of a run and what a seed decides. Must not know how faults or checkers work.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from controller.active.sender import state_log
from protocol.errors import ErrorCode
from tests.sim.checkers import check
from tests.sim.clients.admin import MIN_INSYNC_REPLICAS, SEGMENT_BYTES, Admin, Mover
from tests.sim.clients.base import SimulatedClient
from tests.sim.clients.consumer import IDS_VERSION, LEADER_VERSION, NAMES_VERSION, Consumer
from tests.sim.clients.consumer_member import SESSION_MS, ConsumerMember
from tests.sim.clients.copier import Copier
from tests.sim.clients.extra_reader import ExtraReader
from tests.sim.clients.member import Member
from tests.sim.clients.pipelined import PipelinedProducer
from tests.sim.clients.producer import Producer
from tests.sim.clients.share_member import ShareMember
from tests.sim.cluster import FOLDER, FOLDERS, WITHOUT_IDS, Cluster, Machine
from tests.sim.coordination import SimulatedCoordination
from tests.sim.faults import SECOND_US, Fault, Injector, draw_schedule
from tests.sim.history import Anomaly, DataLoss, Departure, History, Partition
from tests.sim.inspection import (
    StateRecorder,
    copies_of_decision,
    copies_of_text,
    directory_of,
    has_offset,
    hosted_partition,
    moves_in,
    remains_of_topics,
    replica_logs,
)
from tests.sim.invariant_checks import InvariantChecks
from tests.sim.network import SimulatedHost
from tests.sim.plain_log import KEPT
from tests.sim.replica_checks import ReplicaChecks, stored_batches
from tests.sim.rules import OFFSETS, SHARE_STATES, TRANSACTIONS, Violation, forgiven, partition_of
from tests.sim.trace import formatted
from tests.sim.wait_checks import WaitChecks
from tests.sim.world import ProcessLoop, World

BROKERS: Final = 3
COPIER: Final = "copier"
SECOND_COPIER: Final = "copier-2"
"""Another instance with the same transactional id."""
STATIC_MEMBER: Final = "member-2"
SHARE_GROUP: Final = "share-group"
LOCK_MS: Final = 3000
"""How long a record is locked for a member of a share group."""
CLIENTS: Final = (
    "plain",
    "leader-only",
    "idempotent",
    COPIER,
    SECOND_COPIER,
    "reader",
    "committed-reader",
    "extra-reader",
    "member-1",
    "member-2",
    "admin",
)
SESSIONS: Final = 0.7
"""How many of the readers have fetch sessions."""
RETENTION: Final = 0.3
"""How many of the runs delete the oldest segments of a topic."""
CLEANED: Final = 0.3
"""How many of the runs clean the logs of the internal topics."""
RETAINED_BYTES: Final = 1500
NEAR_READS: Final = 0.6
"""How many of the runs have racks, with consumers that read near followers."""
COORDINATED: Final = 0.5
"""How many of the runs have the real coordination server in place of the model of ZooKeeper."""
UPGRADES: Final = 0.2
"""How many of the runs begin with brokers of an older protocol, which are upgraded when they are stopped cleanly."""
PROTOCOLS: Final = (WITHOUT_IDS, "2.8", "3.2")
UPGRADE_US: Final = 300_000
"""How long a broker is down that is upgraded."""
FEATURES: Final = 0.6
"""How many of the other runs have the features of Kafka 4."""
ENABLE_VERSION_2: Final = "transaction.version.2.enable"
GROUP_PROTOCOLS: Final = ("classic", "classic", "consumer", "consumer", "share")
"""What the members of a run speak. A run of a share group takes a third more time: it writes more states."""
NEWER_GROUPS: Final = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    # The records of one change are one batch, which has to fit into a segment.
    "offsets.topic.segment.bytes": "4096",
    "share.coordinator.state.topic.segment.bytes": "4096",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    **{
        f"group.{protocol}.{limit}{name}": value
        for protocol in ("consumer", "share")
        for limit in ("min.", "")
        for name, value in (("session.timeout.ms", str(SESSION_MS)), ("heartbeat.interval.ms", "1000"))
    },
}
"""The settings of brokers that offer the newer protocols of groups."""
DELIVERY_COUNTS: Final = (2, 3, 5)
"""Values of `group.share.delivery.count.limit`."""
UNCLEAN: Final = 0.1
"""How many of the runs allow unclean elections."""
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
MOVER: Final = "mover"
"""Takes part unless there is only one broker; moves less if there are not more brokers than replicas."""
FAULTS_US: Final = 15 * SECOND_US
START_LIMIT_US: Final = 60 * SECOND_US
LOOKS_US: Final = SECOND_US
"""The longest time between two comparisons of replicas while faults hit."""
STUCK_US: Final = 30 * SECOND_US
"""After healing every client must have finished within this time, and every ISR must be complete."""

SETTINGS: Final = "a changed setting reaches all replicas"
_ATTRIBUTES: Final = {SEGMENT_BYTES: "segment_bytes", MIN_INSYNC_REPLICAS: "min_insync_replicas"}

PLAIN: Final = [Partition("plain", 0), Partition("plain", 1)]
SOURCE: Final = Partition("source", 0)
TARGETS: Final = [Partition("target", 0), Partition("target", 1)]


@dataclass(slots=True)
class Outcome:
    """The result of one run."""

    seed: int
    violations: list[Violation]
    counts: Counter[str]
    faults: list[Fault]
    virtual_us: int
    trace: list[str] = field(default_factory=list)

    @property
    def counts_as_test(self) -> bool:
        """Whether records were acknowledged and a fault hit."""
        return self.counts["acknowledged records"] > 0 and any(name.startswith("fault: ") for name in self.counts)


class Run:
    """The surroundings of the clients of one run."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = BROKERS,
        clients: Sequence[str] | None = None,
        faults: Sequence[Fault] | None = None,
        traces_messages: bool = True,
        is_coordinated: bool | None = None,
    ) -> None:
        """`clients` and `faults` take part; None: all that `clients_of` names, and the faults that the seed draws.

        `is_coordinated`: whether there is a coordination server; None leaves that to the seed.
        """
        self.seed = seed
        self.world = World(seed, traces_messages=traces_messages)
        self._replication_factor = min(brokers, 3)
        self.history = History(min_isr=min(brokers, 2))
        self.is_ending = False
        self.is_healed = False
        self._client_names = [name for name in clients_of(brokers) if clients is None or name in clients]
        factor, min_isr = str(self._replication_factor), str(self.history.min_isr)
        self.fixed_properties = {
            "min.insync.replicas": min_isr,
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": min_isr,
        }
        self.cluster = Cluster(
            self.world,
            brokers,
            {**drawn_properties(Random(f"{seed}/properties")), **self.fixed_properties},
            is_coordinated=Random(f"{seed}/store").random() < COORDINATED if is_coordinated is None else is_coordinated,
        )
        if isinstance(self.cluster.zookeeper, SimulatedCoordination):
            self.cluster.zookeeper.note_anomaly = self._note
            self.history.counts["runs with the coordination server"] += 1
        self._settle_in_racks(Random(f"{seed}/racks"))
        upgrades = self._begin_with_older_protocols(Random(f"{seed}/protocols"))
        self.has_version_2 = not upgrades and Random(f"{seed}/raise").random() < FEATURES
        if self.has_version_2:
            self.cluster.properties[ENABLE_VERSION_2] = "true"
            self.history.counts["runs with transactions of version 2"] += 1
        # Members of the newer protocols need ids of topics.
        protocols = ("classic",) if self.history.leaders_write_states else GROUP_PROTOCOLS
        self._group_protocol = Random(f"{seed}/groups").choice(protocols)
        if self._group_protocol != "classic":
            self._offer_newer_groups(Random(f"{seed}/share"), min_isr)
        self.history.counts[f"runs with members of the {self._group_protocol} protocol"] += 1
        if Random(f"{seed}/retention").random() < RETENTION:
            self.history.retained["plain"] = RETAINED_BYTES
        self.history.allows_unclean = self.cluster.properties["unclean.leader.election.enable"] == "true"
        self.states = StateRecorder(self.cluster, self.history)
        self.cluster.zookeeper.on_session_end = self._depart
        self._checks = ReplicaChecks(self.cluster, self.history, self.states, self._note)
        self._invariants = InvariantChecks(self.cluster, self._note)
        self.cluster.on_started.append(WaitChecks(self.history, self._note).watch)
        random = Random(f"{seed}/schedule")
        drawn = draw_schedule(random, sorted(self.cluster.machines), CLIENTS, FAULTS_US)
        drawn = sorted(drawn + upgrades, key=lambda fault: fault.at_us)
        self.faults = list(drawn if faults is None else faults)
        self._injector = Injector(self.cluster, self._client_names, self._lose)
        self._clients: list[SimulatedClient] = []
        for machine in self.cluster.machines.values():
            machine.clock_error_ms = random.randrange(-200, 200)

    def _offer_newer_groups(self, random: Random, min_isr: str) -> None:
        """Let brokers serve members of the newer protocols."""
        self._shared = random.choice([[*PLAIN, SOURCE], [PLAIN[0], *TARGETS]])
        self.history.lock_us = LOCK_MS * 1000
        self.history.delivery_count_max = random.choice(DELIVERY_COUNTS)
        self.cluster.properties |= {
            **NEWER_GROUPS,
            "group.share.delivery.count.limit": str(self.history.delivery_count_max),
            "share.coordinator.state.topic.num.partitions": str(random.choice([1, 1, 3])),
            "share.coordinator.state.topic.replication.factor": str(self._replication_factor),
            "share.coordinator.state.topic.min.isr": min_isr,
        }

    def _settle_in_racks(self, random: Random) -> None:
        """In some of the runs, put the brokers into two or three racks, and have consumers read near followers."""
        self._racks: list[str] = []
        if random.random() < NEAR_READS:
            self._racks = [f"rack-{number}" for number in range(random.choice([2, 3]))]
            self.cluster.properties["replica.selector.class"] = RACK_AWARE
            for machine in self.cluster.machines.values():
                machine.rack = self._racks[machine.broker_id % len(self._racks)]

    def _begin_with_older_protocols(self, random: Random) -> list[Fault]:
        """In some of the runs, let brokers begin with an older protocol; return the clean stops that upgrade them."""
        if random.random() >= UPGRADES:
            return []
        older = random.choice(PROTOCOLS)
        machines = list(self.cluster.machines.values())
        for machine in machines:
            machine.protocol = random.choice([older, older, ""])
        self.history.leaders_write_states = older == WITHOUT_IDS
        self.history.counts[f"runs with brokers of {older}"] += 1
        first_us, pause_us = random.randrange(FAULTS_US // 2), FAULTS_US // 2 // len(machines)
        return [
            Fault(first_us + pause_us * number, "clean stop", machine.broker_id, duration_us=UPGRADE_US)
            for number, machine in enumerate(machines)
            if machine.protocol
        ]

    # Surroundings

    def rack_of(self, client: str) -> str:
        return Random(f"{self.seed}/{client}/rack").choice(self._racks) if self._racks else ""

    def new_client(self, name: str) -> tuple[SimulatedHost, ProcessLoop, Random]:
        loop = self.world.new_loop(name)
        return self.cluster.network.host(name, loop), loop, Random(f"{self.seed}/{name}")

    def brokers(self) -> dict[int, str]:
        return {broker_id: machine.host for broker_id, machine in self.cluster.machines.items()}

    def incarnation_of(self, broker_id: int) -> int:
        return self.cluster.machines[broker_id].starts

    def copies_of(self, partition: Partition, offset: int) -> int:
        return sum(has_offset(machine.disk, partition, offset) for machine in self.cluster.machines.values())

    def copies_of_commit(self, token: str) -> int:
        return copies_of_text(self.cluster, OFFSETS.topic, token)

    def copies_of_decision(self, transactional_id: str, epoch: int, broker_id: int) -> int | None:
        return copies_of_decision(self.cluster, transactional_id, epoch, broker_id)

    def readable(self, broker_id: int, partition: Partition, epoch: int, *, is_committed: bool) -> int:
        hosted = hosted_partition(self.cluster.machines[broker_id], partition)
        if hosted is None or not (hosted.is_leader or hosted.is_follower) or hosted.leader_epoch != epoch:
            return -1
        return hosted.log.last_stable_offset if is_committed else hosted.log.high_watermark

    def remembered(
        self, broker_id: int, partition: Partition, producer: tuple[int, int], sequence: int
    ) -> object | None:
        machine = self.cluster.machines[broker_id]
        hosted = hosted_partition(machine, partition)
        if hosted is None:
            return None
        batches = stored_batches(machine.disk, directory_of(machine.disk, partition))
        of_producer = [batch for batch in batches if (batch.producer_id, batch.producer_epoch) == producer]
        for batch in of_producer[-KEPT:]:
            # A start knows no producer whose records were all deleted.
            if batch.first_sequence == sequence and batch.base_offset >= hosted.log.log_start_offset:
                return batch, machine.starts, machine.disk.log_truncations
        return None

    # The run

    def perform(self) -> list[Violation]:
        """Run to the end; return the violations."""
        steps = (self._start, self._work, self._heal, self._read_everything)
        with self._invariants.after_every_event():
            for step in steps:
                if not step():
                    break
            else:
                self._collect_logs()
        return self._judge()

    def _judge(self) -> list[Violation]:
        self.history.counts["log truncations"] = sum(
            machine.disk.log_truncations for machine in self.cluster.machines.values()
        )
        self.history.counts["partitions of internal topics"] = sum(
            max(self.history.partition_counts.get(topic, {0})) for topic in (OFFSETS.topic, TRANSACTIONS.topic)
        )
        self.history.counts["messages with a flipped bit"] = self.cluster.network.flipped_bits
        for failure in self.cluster.collect_failures():
            self._note("no exception in a broker", failure)
        return check(self.history)

    def _note(self, name: str, text: str, partition: Partition | None = None) -> None:
        self.history.anomalies.append(Anomaly(name, text, self.world.now_us, partition))

    def _note_stuck(self, client: SimulatedClient) -> None:
        """Note a client that has not finished.

        If the state of a transaction is lost, nothing ends it: its commits stay unstable until an administrator aborts
        it (KIP-664). So the checkers judge that as a loss of records of the transaction log. And if the source has lost
        the records before the committed position of the copier, that one waits until there are as many again, because
        it resets no position: a reset would hide a loss against the rules. A share group whose states are lost begins
        them again when the next member joins.
        """
        transactions = partition_of(self.history, TRANSACTIONS.topic, COPIER)
        lost_states = (it for it in sorted(forgiven(self.history)) if it.topic == SHARE_STATES.topic)
        waits_for = {
            ErrorCode.UNSTABLE_OFFSET_COMMIT: transactions,
            ErrorCode.OFFSET_OUT_OF_RANGE: SOURCE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: next(lost_states, SHARE_STATES),
        }
        concerned = (partition for code, partition in waits_for.items() if code.name in client.doing)
        self._note("no client is stuck", f"{client.name}: {client.doing}", next(concerned, None))

    def _lose(self, broker_id: int) -> None:
        self.history.losses.append(DataLoss(self.world.now_us, broker_id))

    def _depart(self, host: str) -> None:
        self.history.departures += [
            Departure(self.world.now_us, broker_id)
            for broker_id, machine in self.cluster.machines.items()
            if machine.host == host
        ]

    def _until(self, is_over: Any, limit_us: int) -> bool:
        """Run until `is_over()`, which is asked every 50 ms, for at most `limit_us`."""
        end_us = self.world.now_us + limit_us
        while not is_over():
            if self.world.now_us >= end_us:
                return False
            self.world.run_for(50_000)
        return True

    def _start(self) -> bool:
        """Start brokers and create topics, without faults."""
        for broker_id in self.cluster.machines:
            self.world.after(
                self.world.random.randrange(SECOND_US),
                lambda broker_id=broker_id: self.cluster.start(broker_id),  # type: ignore[misc]
            )
        cluster = self.cluster
        if not self._until(lambda: all(map(cluster.is_running, cluster.machines)), START_LIMIT_US):
            self._note("I12 replicas are complete after healing", "the brokers did not start")
            return False
        creator = Admin("creator", self, [], count=0, replication_factor=self._replication_factor)

        async def create() -> None:
            for topic, count in (("plain", 2), ("source", 1), ("target", 2)):
                retained = self.history.retained.get(topic)
                await creator.create(topic, count, None if retained is None else {"retention.bytes": str(retained)})
            if self._group_protocol == "share":
                await creator.change_group(SHARE_GROUP, "share.auto.offset.reset", "earliest")

        task = creator.loop.start(create())
        if not self._until(task.done, START_LIMIT_US):
            self._note("no client is stuck", f"creator: {creator.doing}")
            return False
        task.result()
        if self._group_protocol == "share":
            self.world.run_for(SECOND_US)  # until all brokers have heard where the group begins
        return True

    def _work(self) -> bool:
        """Let clients work while faults hit."""
        self._clients = [self._new_client(name) for name in self._client_names]
        for client in self._clients:
            client.start()
        self._injector.schedule(self.faults)
        before = self.world.now_us
        end_us = before + max(FAULTS_US, *(fault.at_us + 1 for fault in self.faults), 0)
        looks = Random(f"{self.seed}/looks")
        while self.world.now_us < end_us:
            self.world.run_for(min(looks.randrange(LOOKS_US), end_us - self.world.now_us))
            self._checks.look()
            self._invariants.look()
        for _, kind, details in self.world.trace:
            if kind == "fault":
                text = str(details[0]).partition(" s ")[2].partition(":")[0]
                self.history.counts[f"fault: {text}"] += 1
            if kind == "coordination server dies":
                self.history.counts["deaths of the coordination server"] += 1
            self.history.counts["upgrades of brokers"] += kind == "upgrade"
            if kind == "kill in a move":
                self.history.counts[f"kills in a move: {details[0]}"] += 1
            self.history.counts["cleanings of logs"] += kind == "clean"
        return self.world.now_us > before

    def _new_client(self, name: str) -> SimulatedClient:
        if name == "plain":
            return Producer(name, self, PLAIN, count=28)
        if name == "leader-only":
            return Producer(name, self, PLAIN, count=14, acks=1)
        if name == "idempotent":
            return PipelinedProducer(name, self, [SOURCE, PLAIN[0]], count=24)
        if name == COPIER:
            # A transaction is ten appends to the internal topics, each with four fetches of followers.
            return Copier(name, self, SOURCE, TARGETS, count=6, pause_s=2.0)
        if name == SECOND_COPIER:
            return Copier(name, self, SOURCE, TARGETS, count=2, pause_s=6.0, transactional_id=COPIER)
        if name in ("reader", "committed-reader"):
            random = Random(f"{self.seed}/{name}/session")
            return Consumer(
                name,
                self,
                [*PLAIN, SOURCE, *TARGETS],
                is_committed=name == "committed-reader",
                version=random.choice(
                    [NAMES_VERSION, NAMES_VERSION if self.history.leaders_write_states else IDS_VERSION]
                ),
                has_sessions=random.random() < SESSIONS,
            )
        if name == "extra-reader":
            return ExtraReader(name, self)
        if name == MOVER:
            moved = [*PLAIN, SOURCE, *TARGETS, *self._internal()]
            count = 12 if len(self.cluster.machines) > BROKERS else 3
            return Mover(name, self, moved, count=count, replication_factor=self._replication_factor)
        if name == "admin":
            return Admin(
                name,
                self,
                [*PLAIN, SOURCE, *TARGETS],
                count=6,
                replication_factor=self._replication_factor,
                polls_metadata=True,
                folders=self.cluster.folders,
                moved=[*PLAIN, SOURCE, *TARGETS, *self._internal()],
            )
        if self._group_protocol == "share":
            return ShareMember(name, self, SHARE_GROUP, self._shared, count=8)
        instance_id = "static" if name == STATIC_MEMBER else None
        kind = ConsumerMember if self._group_protocol == "consumer" else Member
        return kind(name, self, "group", [*PLAIN, SOURCE], count=10, instance_id=instance_id)

    def _internal(self) -> list[Partition]:
        """Return the partitions of internal topics that are moved."""
        return [OFFSETS, TRANSACTIONS, *([SHARE_STATES] if self._group_protocol == "share" else [])]

    def _heal(self) -> bool:
        """End all faults; clients must finish, and replicas become complete."""
        self._injector.heal()
        self.is_healed = self.is_ending = True
        healed_us = self.world.now_us

        def is_over() -> bool:
            return all(client.task.done() for client in self._clients) and self._is_complete()

        is_in_time = self._until(is_over, STUCK_US)
        for client in self._clients:
            if not client.task.done():
                self._note_stuck(client)
            elif client.task.exception() is not None:
                self._note("no exception in a client", f"{client.name}: {client.task.exception()!r}")
        if is_in_time:
            self.world.run_for(2 * SECOND_US)  # until the followers know the last high watermark
        self.history.healed_us = healed_us
        for partition in {state.partition for state in self.history.leader_states}:
            self.history.final_replicas[partition] = self.states.assignment(partition)
        return True

    def _is_complete(self) -> bool:
        cluster = self.cluster
        return (
            all(map(cluster.is_running, cluster.machines))
            and all(machine.is_wanted for machine in cluster.machines.values())  # none is stopping
            and not self.states.is_reassigning()
            and self.states.are_isrs_complete(self.history.deleted_topics.keys())
        )

    def _read_everything(self) -> bool:
        """Read all partitions from the start to the end, both ways."""
        everything = [*PLAIN, SOURCE, *TARGETS]
        readers: list[SimulatedClient] = [
            Consumer(
                f"final-{name}", self, everything, is_committed=is_committed, until_end=True, version=LEADER_VERSION
            )
            for name, is_committed in (("reader", False), ("committed-reader", True))
        ]
        if self._group_protocol == "share" and self._client_names:
            self.history.share_groups[SHARE_GROUP] = self._shared
            readers.append(ShareMember("final-member", self, SHARE_GROUP, self._shared, until_end=True))
        for reader in readers:
            reader.start()
        if not self._until(lambda: all(reader.task.done() for reader in readers), STUCK_US):
            doing = (f"{reader.name}: {reader.doing}" for reader in readers if not reader.task.done())
            self._note("no client is stuck", ", ".join(doing))
        for reader in readers:
            if reader.task.done() and reader.task.exception() is not None:
                self._note("no exception in a client", f"{reader.name}: {reader.doing}: {reader.task.exception()!r}")
        return True

    def _has_settled(self) -> bool:
        """Return whether deletions are complete, and all running replicas know what is committed and deleted."""
        if self.history.deleted_topics.keys() & remains_of_topics(self.cluster, self.history).keys():
            return False
        if any(moves_in(machine.disk) for machine in self.cluster.machines.values()):
            return False
        logs = [
            log
            for broker_id, machine in self.cluster.machines.items()
            if self.cluster.is_running(broker_id)
            for log in replica_logs(machine, self.history)
            if log.partition.topic not in self.history.deleted_topics
        ]
        starts = {
            log.partition: log.log_start for log in logs if log.broker == self.states.latest[log.partition].leader
        }
        return all(
            log.high_watermark >= log.end and log.log_start >= starts.get(log.partition, log.log_start) for log in logs
        )

    def _collect_logs(self) -> None:
        # The leaders may have been rebalanced a moment ago. The checkers report what has not settled in time.
        self._until(self._has_settled, 5 * SECOND_US)
        self._checks.look()
        self._invariants.look()
        self.history.remains = remains_of_topics(self.cluster, self.history)
        for broker_id, machine in self.cluster.machines.items():
            if self.cluster.is_running(broker_id):
                self.history.logs += replica_logs(machine, self.history)
                self._check_settings(machine)
            for path in moves_in(machine.disk):
                self._note("a move between log directories ends", f"{machine.host} still has {path}")

    def _check_settings(self, machine: Machine) -> None:
        """Note replicas whose log has other settings than the administrator has set."""
        for (topic, key), value in self.history.settings.items():
            for index in range(max(self.history.partition_counts.get(topic, {0}))):
                hosted = hosted_partition(machine, Partition(topic, index))
                if hosted is not None and value not in (None, str(getattr(hosted.log.config, _ATTRIBUTES[key]))):
                    self._note(
                        SETTINGS, f"replica {machine.broker_id} of {topic}-{index} has not heard of {key}={value}"
                    )


def drawn_properties(random: Random) -> dict[str, str]:
    """Return the settings of brokers that differ from run to run."""
    segment_bytes = str(random.choice([400, 1000, 4096]))
    return {
        "log.dirs": random.choice([FOLDER, ",".join(FOLDERS)]),
        "log.segment.bytes": segment_bytes,
        "offsets.topic.segment.bytes": segment_bytes,
        "transaction.state.log.segment.bytes": segment_bytes,
        "offsets.topic.num.partitions": str(random.choice([1, 1, 3])),
        "transaction.state.log.num.partitions": str(random.choice([1, 1, 3])),
        "unclean.leader.election.enable": "true" if random.random() < UNCLEAN else "false",
        # The internal topics are compacted. What is counted shortly after a commit or decision stays.
        "log.cleaner.enable": "true" if random.random() < CLEANED else "false",
        "log.cleaner.backoff.ms": "2000",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.min.compaction.lag.ms": "7000",
        "log.cleaner.delete.retention.ms": str(random.choice([100, 60_000])),
        "transactional.id.expiration.ms": str(random.choice([4_000, 604_800_000])),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        # How soon segments below a log start are removed, and their files, and when a log start is on the disk.
        "log.retention.check.interval.ms": str(random.choice([2000, 300_000])),
        "log.segment.delete.delay.ms": str(random.choice([100, 60_000])),
        "log.flush.start.offset.checkpoint.interval.ms": str(random.choice([3000, 60_000])),
        # Whether a replica that is behind needs many fetches, between which a throttle can hold it.
        "replica.fetch.max.bytes": str(random.choice([400, 1_048_576])),
    }


def clients_of(brokers: int) -> tuple[str, ...]:
    """Return the names of all clients of a run with so many brokers."""
    return (*CLIENTS, MOVER) if brokers > 1 else CLIENTS


def run_seed(
    seed: int,
    *,
    brokers: int = BROKERS,
    clients: Sequence[str] | None = None,
    faults: Sequence[Fault] | None = None,
    traced: bool = False,
) -> Outcome:
    """Perform the run of a seed; leave out what is not among `clients` and `faults`."""
    quiet, states_level = logging.root.manager.disable, state_log.level
    if not traced:
        logging.disable(logging.CRITICAL)
    # Brokers log states in slices, which are steps of their own. So a traced run would be another one.
    state_log.setLevel(logging.WARNING)
    gc.disable()  # a collection in the middle of a run takes time, and would run finalizers at random times
    try:
        run = Run(seed, brokers=brokers, clients=clients, faults=faults, traces_messages=traced)
        with run.world as world:
            violations = run.perform()
            return Outcome(
                seed,
                violations,
                run.history.counts,
                run.faults,
                world.now_us,
                formatted(world.trace) if traced else [],
            )
    finally:
        gc.enable()
        state_log.setLevel(states_level)
        logging.disable(quiet)


def run_alone(brokers: int, seed: int) -> Outcome:
    """Perform one of many runs of a process, and free its memory."""
    gc.freeze()  # so that the collection looks only at what the run has made; it stays: all that a process has is large
    try:
        outcome = run_seed(seed, brokers=brokers)
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")  # a defect of the simulator
        raise
    gc.collect()
    return outcome
