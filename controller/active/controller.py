"""The elected controller: initializes its state at the start of a term, then dispatches each event to its handler.

Owns the order of the initialization and the table of handlers. Must not know how it was elected or how it resigns: it
is dropped as a whole. `ControllerMoved` from any handler means that the term is over.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress

from base.pause import through
from base.topic_partition import TopicPartition
from controller.active.brokers import Brokers
from controller.active.deletions import Deletions
from controller.active.elections import Elections
from controller.active.features import Features
from controller.active.isr import IsrChanges
from controller.active.producer_ids import ProducerIdBlocks
from controller.active.reassignments import Reassignments
from controller.active.term import Term
from controller.active.topics import Topics
from controller.machine import events
from controller.machine.events import Event
from controller.machine.model import PartitionReplica
from controller.machine.partition_states import PartitionState
from controller.machine.replica_states import ReplicaState
from controller.machine.settings import ControllerSettings
from controller.store.state_store import Create, NodeExists, NoNode, SetData
from controller.tree import paths

logger = logging.getLogger("kafka.controller.KafkaController")

# Each handler accepts only the event type of its entry, which the type of a mapping cannot express.
Handler = Callable[..., Awaitable[object]]


class ActiveController:
    def __init__(self, term: Term) -> None:
        self._term = term
        self.context = term.context
        self.deletions = Deletions(term)
        self._topics = Topics(term)
        self._reassignments = Reassignments(term, self.deletions)
        self.elections = Elections(term, self._reassignments)
        self._brokers = Brokers(term, self.deletions, self._reassignments, self.elections)
        self._isr = IsrChanges(term, self._reassignments)
        self._producer_ids = ProducerIdBlocks(term)
        self._features = Features(term)
        self._handlers: Mapping[type[Event], Handler] = {
            events.BrokersChanged: self._brokers.brokers_changed,
            events.BrokerModified: self._brokers.broker_modified,
            events.ControlledShutdown: self._brokers.controlled_shutdown,
            events.LogDirEventsNotified: self._brokers.log_dir_events_notified,
            events.LeaderAndIsrResponseReceived: self._brokers.leader_and_isr_response_received,
            events.LeaderAndIsrDue: self._brokers.leader_and_isr_due,
            events.TopicsChanged: self._topics.topics_changed,
            events.TopicModified: self._topics.topic_modified,
            events.CreateTopics: self._topics.create_topics,
            events.CreatePartitions: self._topics.create_partitions,
            events.DeleteTopics: self.deletions.delete_topics,
            events.DeletionsChanged: self.deletions.deletions_changed,
            events.StopReplicaResponseReceived: self.deletions.stop_replica_response_received,
            events.ElectLeaders: self.elections.elect_leaders,
            events.PreferredElectionNodeChanged: self.elections.node_changed,
            events.RebalanceDue: self.elections.rebalance,
            events.UncleanElectionEnabled: self.elections.unclean_election_enabled,
            events.TopicUncleanElectionEnabled: self.elections.topic_unclean_election_enabled,
            events.AlterReassignments: self._reassignments.alter_reassignments,
            events.ListReassignments: self._reassignments.list_reassignments,
            events.ReassignmentNodeChanged: self._reassignments.node_changed,
            events.AlterPartition: self._isr.alter_partition,
            events.IsrChangesNotified: self._isr.changes_notified,
            events.AllocateProducerIds: self._producer_ids.allocate,
            events.UpdateFeatures: self._features.update,
        }

    async def handle(self, event: Event) -> object:
        """Process one event to completion and return its result.

        Raises:
            KafkaError: the result is an error.
        """
        return await self._handlers[type(event)](event)

    def reconfigure(self, settings: ControllerSettings) -> None:
        """Apply changed configuration values."""
        self._term.reconfigure(settings)

    def gauges(self) -> dict[str, Callable[[], int]]:
        """Return Kafka's gauges by name. Each is computed when its function is called."""
        context = self.context
        return {
            "ActiveBrokerCount": lambda: len(context.live_brokers),
            "GlobalTopicCount": lambda: len(context.topic_ids),
            "GlobalPartitionCount": lambda: sum(map(len, context.assignments.values())),
            "TopicsToDeleteCount": lambda: len(context.topics_to_delete),
            "ReplicasToDeleteCount": lambda: len(self._replicas_to_delete()),
            "TopicsIneligibleToDeleteCount": lambda: len(context.topics_ineligible_for_deletion),
            "ReplicasIneligibleToDeleteCount": self._ineligible_count,
        }

    def sums(self) -> dict[str, Callable[[], Iterator[int]]]:
        """Return the gauges that visit all partitions: each yields what one partition adds.

        The caller may do other work in between, and the state may change.
        """
        return {"OfflinePartitionsCount": self._offline, "PreferredReplicaImbalanceCount": self.elections.imbalances}

    def _offline(self) -> Iterator[int]:
        context = self.context
        for topic in list(context.assignments):
            for partition in context.partitions_of(topic):
                yield int(not context.has_leader(partition) and not context.is_to_be_deleted(topic))

    def _replicas_to_delete(self) -> list[PartitionReplica]:
        context = self.context
        return [
            replica
            for topic in context.topics_to_delete
            for replica in context.replicas_of(context.partitions_of(topic))
        ]

    def _ineligible_count(self) -> int:
        states = map(self.context.replica_state, self._replicas_to_delete())
        return sum(state is ReplicaState.DELETION_INELIGIBLE for state in states)

    async def initialize(self) -> None:
        """Load the state of the cluster, send it to the brokers, and resume unfinished work.

        The live brokers are sent before the leaders, so that a new leader knows the addresses of its followers. All
        partitions are sent with them: what follows names first those with a replica on a live broker, and a coordinator
        that began to lead in between would take the others for deleted, and send them no markers.
        """
        await self._ensure_feature_node()
        await self._features.ensure_node()
        await self._drop_old_notifications()
        await self._load()
        await self._term.transitions.send_all_metadata(self.context.live_brokers)
        restarted = await self._restarted_replicas()
        for replica in restarted:
            self.context.offline_directory_replicas.setdefault(replica.broker_id, set()).add(replica.partition)
        # Before the replicas start: a leader must not append in its old epoch.
        await self._term.transitions.renew_epochs(await self._led_by_restarted(set(restarted)))
        await self._start_replicas()
        await self._start_partitions()
        self.context.offline_directory_replicas.clear()
        if restarted:
            await self._term.transitions.move_replicas(restarted, ReplicaState.ONLINE)
            # The replicas have been stopped in the present epoch, and start only in a newer one.
            await self._term.transitions.renew_epochs(dict.fromkeys(it.partition for it in restarted))
        await self._reassignments.resume(list(self.context.reassigning))
        await self._reassignments.node_changed(events.ReassignmentNodeChanged())
        await self.deletions.resume()
        await self.elections.node_changed(events.PreferredElectionNodeChanged())

    async def _ensure_feature_node(self) -> None:
        """Write the finalized features in the form of this protocol. Those of an earlier controller stay finalized."""
        store, protocol = self._term.store, self._term.settings.protocol
        wanted = paths.FinalizedFeatures(protocol.feature_node, protocol.has_features, {})
        try:
            node = await store.store.get(paths.FEATURE)
            found = paths.decode_features(node.data)
            if protocol.has_features and found.is_enabled:
                wanted = wanted._replace(levels=found.levels)
            if wanted != found:
                await store.multi([SetData(paths.FEATURE, paths.encode_features(wanted), node.stat.version)])
        except NoNode:
            with suppress(NodeExists):
                await store.multi([Create(paths.FEATURE, paths.encode_features(wanted))])
        except paths.Undecodable as error:
            logger.error("the finalized features stay as they are: %s", error)

    async def _drop_old_notifications(self) -> None:
        """Delete old notifications: everything they could report is read next. Later ones fire the watch."""
        for event, folder in (
            (events.IsrChangesNotified(), paths.ISR_CHANGE_NOTIFICATIONS),
            (events.LogDirEventsNotified(), paths.LOG_DIR_EVENT_NOTIFICATIONS),
        ):
            names = await self._term.store.children(folder, self._term.on_change(event))
            if names:
                await self._term.store.remove([f"{folder}/{name}" for name in names])

    async def _load(self) -> None:
        self.context.live_brokers = await self._brokers.read()
        for broker in self.context.live_brokers.values():
            self._term.sender.open_to(broker)
        names = await self._term.store.children(paths.TOPICS, self._term.on_change(events.TopicsChanged()))
        for name, topic in (await self._topics.load(names)).items():
            self.context.put_topic(name, topic)
        partitions = list(self.context.all_partitions())
        self.context.leaderships = await self._term.store.read_leaderships(partitions)
        self._reassignments.load()
        await self.deletions.load()

    async def _restarted_replicas(self) -> list[PartitionReplica]:
        """Return the in-sync replicas whose broker has restarted while no controller saw it.

        Their broker has registered after the state of the partition was written. It may have lost records: what its
        machine had not synced, or its whole disk. As after a restart that a controller sees, such a replica leaves the
        ISR and follows, if there is an in-sync replica whose broker has not restarted. Otherwise nothing is gained.
        """
        live = self.context.live_brokers
        found: list[PartitionReplica] = []
        async for partition, leadership in through(self.context.leaderships.items(), self._term.pause):
            if self.context.is_partition_to_be_deleted(partition):
                continue
            in_sync = [it for it in leadership.state.isr if it in live]
            restarted = [it for it in in_sync if live[it].epoch > leadership.written_zxid]
            if len(restarted) < len(in_sync):
                found += [PartitionReplica(partition, it) for it in restarted]
        return found

    async def _led_by_restarted(self, out_of_sync: set[PartitionReplica]) -> list[TopicPartition]:
        """Return the partitions whose leader has restarted unseen, and leads on because no replica is more complete.

        The leader may have lost records of its epoch which a follower still has. If it wrote other records at their
        offsets in the same epoch, the follower could not detect that the logs diverge. `out_of_sync` are the replicas
        that leave the ISR.
        """
        live = self.context.live_brokers
        found: list[TopicPartition] = []
        async for partition, leadership in through(self.context.leaderships.items(), self._term.pause):
            leader = leadership.state.leader
            if (
                leader in live
                and live[leader].epoch > leadership.written_zxid
                and len(self.context.assignment(partition).replicas) > 1
                and PartitionReplica(partition, leader) not in out_of_sync
                and not self.context.is_partition_to_be_deleted(partition)
            ):
                found.append(partition)
        return found

    async def _start_replicas(self) -> None:
        """Send its state to each replica; brokers ignore what they know already."""
        online: list[PartitionReplica] = []
        offline: list[PartitionReplica] = []
        async for replica in through(self.context.all_replicas(), self._term.pause):
            is_online = self.context.is_replica_online(replica.broker_id, replica.partition)
            # A broker that failed while there was no controller may also have failed to delete the replica.
            state = ReplicaState.ONLINE if is_online else ReplicaState.DELETION_INELIGIBLE
            self.context.replica_states[replica] = state
            (online if is_online else offline).append(replica)
        await self._term.transitions.move_replicas(online, ReplicaState.ONLINE)
        await self._term.transitions.move_replicas(offline, ReplicaState.OFFLINE)

    async def _start_partitions(self) -> None:
        async for partition in through(self.context.all_partitions(), self._term.pause):
            leadership = self.context.leaderships.get(partition)
            if leadership is None:
                state = PartitionState.NEW
            elif self.context.is_replica_online(leadership.state.leader, partition):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            self.context.partition_states[partition] = state
        await self.elections.elect_missing()
