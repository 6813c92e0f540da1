"""Handle brokers that register, fail, restart, shut down or lose a log directory.

Owns the consequences of each for partitions and replicas (docs/controller.md).
"""

import logging
from collections.abc import Collection, Iterable, Iterator

from base.pause import through
from base.topic_partition import TopicPartition
from controller.active.deletions import Deletions
from controller.active.elections import Elections
from controller.active.reassignments import Reassignments
from controller.active.term import Term
from controller.machine.events import (
    BrokerModified,
    BrokersChanged,
    ControlledShutdown,
    LeaderAndIsrDue,
    LeaderAndIsrResponseReceived,
    LogDirEventsNotified,
)
from controller.machine.leadership import ElectionReason
from controller.machine.model import Broker, PartitionReplica
from controller.machine.partition_states import PartitionState
from controller.machine.replica_states import ReplicaState
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr import LeaderAndIsrRequest

logger = logging.getLogger("kafka.controller.KafkaController")

# A LeaderAndIsr with one of these was sent by an older controller, or to an earlier registration of the broker.
_STALE = frozenset({ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH})

# The pauses before a LeaderAndIsr that failed as a whole is sent again; then the controller gives up.
RESEND_PAUSES_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)


class Brokers:
    def __init__(self, term: Term, deletions: Deletions, reassignments: Reassignments, elections: Elections) -> None:
        self._term = term
        self._context = term.context
        self._deletions = deletions
        self._reassignments = reassignments
        self._elections = elections
        self._failed_requests: dict[int, int] = {}

    async def read(self) -> dict[int, Broker]:
        """Return the registered brokers by id. `BrokersChanged` is queued at the next change of the list."""
        names = await self._term.store.children(paths.BROKER_IDS, self._term.on_change(BrokersChanged()))
        ids = sorted(int(name) for name in names if name.isdecimal())
        return await self._term.store.read_brokers(ids, self._term.on_broker_change())

    # -- coming and going ------------------------------------------------------------------------------------------

    async def brokers_changed(self, _: BrokersChanged) -> None:
        """Compare the registered brokers with the known ones; a higher epoch means that a broker restarted."""
        registered = await self.read()
        known = self._context.live_brokers
        new = {it: broker for it, broker in registered.items() if it not in known}
        bounced = {it: broker for it, broker in registered.items() if it in known and broker.epoch > known[it].epoch}
        dead = known.keys() - registered.keys()
        if new:
            await self._start(new)
        if bounced:
            await self._lose(bounced)
            await self._start(bounced)
        if dead:
            await self._lose(dead)

    async def broker_modified(self, event: BrokerModified) -> None:
        """Send the changed listeners of one broker to all brokers."""
        found = await self._term.store.read_brokers([event.broker_id], self._term.on_broker_change())
        broker = found.get(event.broker_id)
        known = self._context.live_brokers.get(event.broker_id)
        if broker is not None and known is not None and broker != known and broker.epoch == known.epoch:
            self._context.live_brokers[event.broker_id] = broker
            self._term.sender.open_to(broker)
            await self._term.transitions.send_metadata(self._context.live_brokers)

    async def _start(self, brokers: dict[int, Broker]) -> None:
        logger.info("brokers %s are up", sorted(brokers))
        existing = list(self._context.live_brokers)
        self._context.live_brokers |= brokers
        for broker in brokers.values():
            self._term.sender.open_to(broker)
        transitions = self._term.transitions
        await transitions.send_metadata(existing)
        await transitions.send_all_metadata(brokers)
        replicas = await self._replicas_on(brokers)
        startable = [it for it in replicas if not self._context.is_partition_to_be_deleted(it.partition)]
        await transitions.move_replicas(startable, ReplicaState.ONLINE)
        await self._elections.elect_missing()
        await self._reassignments.resume_on(brokers)
        to_delete = {it.topic for it in replicas if self._context.is_partition_to_be_deleted(it.partition)}
        if to_delete:
            await self._deletions.resume(to_delete)

    async def _lose(self, broker_ids: Collection[int]) -> None:
        logger.info("brokers %s are gone", sorted(broker_ids))
        for broker_id in broker_ids:
            self._term.sender.close_to(broker_id)
            self._context.live_brokers.pop(broker_id, None)
            self._context.shutting_down.discard(broker_id)
            self._context.offline_directory_replicas.pop(broker_id, None)
            self._failed_requests.pop(broker_id, None)
        await self._handle_offline_replicas(await self._replicas_on(broker_ids))

    async def _replicas_on(self, broker_ids: Iterable[int]) -> list[PartitionReplica]:
        return await self._context.replicas_on(broker_ids, self._term.pause)

    async def _handle_offline_replicas(self, replicas: Iterable[PartitionReplica]) -> None:
        """Elect other leaders, then remove the replicas from the ISR."""
        staying: list[PartitionReplica] = []
        to_delete: list[PartitionReplica] = []
        for replica in replicas:
            (to_delete if self._context.is_partition_to_be_deleted(replica.partition) else staying).append(replica)
        transitions = self._term.transitions
        sent_before = transitions.metadata_requests
        leaderless = await self._context.led_offline(self._term.pause)
        await transitions.move_partitions(leaderless, PartitionState.OFFLINE)
        await self._elections.elect_missing()
        await transitions.move_replicas(staying, ReplicaState.OFFLINE)
        if to_delete:
            await self._deletions.fail(to_delete)
        await self._reassignments.complete(leaderless)
        if transitions.metadata_requests == sent_before:
            # Every UpdateMetadata names the live brokers, but none was sent: no state has changed.
            await transitions.send_metadata(self._context.live_brokers)

    # -- shutting down ---------------------------------------------------------------------------------------------

    async def controlled_shutdown(self, event: ControlledShutdown) -> list[TopicPartition]:
        """Move leadership off a broker that shuts down; return the partitions that it still leads."""
        broker_id = event.broker_id
        broker = self._context.live_brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker_id} does not exist.")
        if event.broker_epoch not in (-1, broker.epoch):
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        self._context.shutting_down.add(broker_id)
        led: list[TopicPartition] = []
        followed: list[PartitionReplica] = []
        async for replica in through(await self._replicas_on([broker_id]), self._term.pause):
            leadership = self._context.leaderships.get(replica.partition)
            if leadership is None or self._context.is_partition_to_be_deleted(replica.partition):
                continue
            if len(self._context.assignment(replica.partition).replicas) == 1:
                continue
            if leadership.state.leader == broker_id:
                led.append(replica.partition)
            else:
                followed.append(replica)
        await self._term.transitions.elect(led, ElectionReason.CONTROLLED_SHUTDOWN)
        await self._term.transitions.move_replicas(followed, ReplicaState.OFFLINE)
        return [it for it in led if self._context.leaderships[it].state.leader == broker_id]

    # -- log directories -------------------------------------------------------------------------------------------

    async def log_dir_events_notified(self, event: LogDirEventsNotified) -> None:
        """Send LeaderAndIsr for all replicas of brokers with an offline log directory, to learn which are in it."""
        folder = paths.LOG_DIR_EVENT_NOTIFICATIONS
        names = await self._term.store.children(folder, self._term.on_change(event))
        notes = [f"{folder}/{name}" for name in names]
        brokers = await self._term.store.read_log_dir_events(notes)
        replicas = await self._replicas_on(brokers & self._context.live_brokers.keys())
        await self._term.transitions.move_replicas(replicas, ReplicaState.ONLINE)
        await self._term.store.remove(notes)

    async def leader_and_isr_response_received(self, event: LeaderAndIsrResponseReceived) -> None:
        """Apply the errors of a LeaderAndIsr response: replicas in offline log directories, and recovered ones."""
        request = event.request
        is_current = self._context.is_current(event.broker_id, request.broker_epoch, request.controller_epoch)
        if not is_current or event.response.error_code in _STALE:
            return
        if event.response.error_code:
            self._send_later(event)
            return
        self._failed_requests.pop(event.broker_id, None)
        failed: set[TopicPartition] = set()
        opened: set[TopicPartition] = set()
        for topic in event.response.topics:
            async for it in through(topic.partition_errors, self._term.pause):
                partition = (self._context.topic_names.get(topic.topic_id, ""), it.partition_index)
                if it.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    failed.add(partition)
                elif it.error_code == ErrorCode.NONE:
                    opened.add(partition)
        before = self._context.offline_directory_replicas.get(event.broker_id, set())
        newly_failed, recovered = failed - before, opened & before
        if not newly_failed and not recovered:
            return
        self._context.offline_directory_replicas[event.broker_id] = (before - opened) | failed
        if newly_failed:
            await self._handle_offline_replicas([PartitionReplica(it, event.broker_id) for it in sorted(newly_failed)])
        if recovered:
            await self._elections.elect_missing()
            await self._reassignments.complete(recovered)
            await self._term.transitions.send_metadata(self._context.live_brokers, sorted(recovered))

    def _send_later(self, event: LeaderAndIsrResponseReceived) -> None:
        """Send the states of a request again after a pause, because the broker applied none of them."""
        failed = self._failed_requests.get(event.broker_id, 0)
        code = ErrorCode(event.response.error_code).name
        if failed >= len(RESEND_PAUSES_SECONDS):
            logger.error(
                "broker %d failed %d LeaderAndIsr requests in a row, the last with %s: it does not serve their "
                "partitions until it restarts or their leaders change",
                event.broker_id,
                failed + 1,
                code,
            )
            return
        pause = RESEND_PAUSES_SECONDS[failed]
        logger.warning(
            "broker %d failed a LeaderAndIsr with %s: sending it again in %g s", event.broker_id, code, pause
        )
        self._failed_requests[event.broker_id] = failed + 1
        self._term.put_later(pause, LeaderAndIsrDue(event.broker_id, event.request))

    async def leader_and_isr_due(self, event: LeaderAndIsrDue) -> None:
        """Send the present states of the partitions of a request that failed."""
        is_current = event.request.controller_epoch == self._context.epoch
        broker = self._context.live_brokers.get(event.broker_id)
        if is_current and broker is not None:
            await self._term.transitions.send_states(event.broker_id, _sent_in(event.request, broker.epoch))


def _sent_in(request: LeaderAndIsrRequest, broker_epoch: int) -> Iterator[tuple[TopicPartition, bool]]:
    """Yield the partitions of a request, each with whether the replica is new.

    To a broker that has restarted since, none is: it may have applied a later request, and lost the directory with the
    log. An empty log must not take its place.
    """
    is_same = broker_epoch == request.broker_epoch
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield (topic.topic_name, state.partition_index), state.is_new and is_same
