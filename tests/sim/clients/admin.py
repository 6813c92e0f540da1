"""An administrator: creates and deletes topics, deletes records, moves replicas, elects preferred leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.clients.base import Failed, Retry, SimulatedClient, Surroundings
from tests.sim.history import Deletion, Partition

POLLS: Final = 10
"""How often each broker is asked for a topic that is created or grows."""
POLL_PAUSE_S: Final = 0.003
LATEST_TIMESTAMP: Final = -1
KEPT_RATE: Final = 3_000
"""The lowest rate of a throttle that may stay until the end of a run: all replicas are complete in time with it."""
SEGMENT_BYTES: Final = "segment.bytes"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
TOPIC: Final = 2
BROKER: Final = 4
OF_GROUP: Final = 32
SET: Final = 0
DELETE: Final = 1
ENDS_MAX: Final = 100
"""How often it is looked whether the run ends."""
RATES: Final = (1, 300, KEPT_RATE, 100_000)
"""Bytes a second of throttles, of which the first two would not let a run end in time."""
THROTTLES: Final = ("leader.replication.throttled", "follower.replication.throttled")


_OF_DIRECTORIES: Final = (
    ErrorCode.NONE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.LOG_DIR_NOT_FOUND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""What a broker may respond that has no such replica or directory, or not yet."""


class Admin(SimulatedClient):
    """Performs `count` operations, one after the other."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        partitions: Sequence[Partition],
        *,
        count: int,
        replication_factor: int,
        polls_metadata: bool = False,
        folders: Sequence[str] = (),
        moved: Sequence[Partition] = (),
    ) -> None:
        """`folders` are the log directories of each broker, `moved` the partitions that are moved between brokers."""
        super().__init__(name, around)
        self._folders = folders
        self._polls_metadata = polls_metadata
        self._partitions = partitions
        self._moved = moved or partitions
        self._rate = 0
        """Of the present throttle, 0 without one."""
        self._throttled: dict[str, None] = {}
        """The topics of which replicas are throttled."""
        self._are_throttles_certain = True
        """Whether no request that sets a rate may arrive late."""
        self._count = count
        self._replication_factor = replication_factor
        self._extra: list[str] = []
        self._created = 0

    async def run(self) -> None:
        for number in range(self._count):
            await self.think(4.0)
            operations = [
                self._create,
                self._grow,
                self._delete,
                self._delete,
                self._reassign,
                self._throttle,
                self._throttle,
                self._race,
                self._elect,
                self._delete_records,
                self._delete_records,
                self._change_setting,
                self._move_directories if len(self._folders) > 1 else self._elect,
            ]
            await self.random.choice(operations if number else [self._create])()
        await self._leave_throttles()
        self.doing = "finished"

    async def create(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create a topic, unless it exists."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=self._replication_factor,
                    assignments=[],
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
                )
            ],
            timeout_ms=5000,
        )

        async def attempt() -> None:
            response = await self.ask(await self.controller(), request, 4)
            self.expect(response.topics[0].error_code, ErrorCode.TOPIC_ALREADY_EXISTS)

        creation = self._perform(f"CreateTopics {topic}", attempt, ErrorCode.INVALID_REPLICATION_FACTOR)
        if await self._while_polled(topic, creation):
            self.history.created_topics.setdefault(topic, partitions)

    async def _while_polled(self, topic: str, work: Coroutine[Any, Any, bool]) -> bool:
        """Perform an operation. Meanwhile each broker may be asked again and again how many partitions a topic has."""
        brokers = sorted(self.around.brokers()) if self._polls_metadata else []
        polls = [self.loop.create_task(self._poll_metadata(broker, topic)) for broker in brokers]
        done = await work
        await asyncio.gather(*polls)
        return done

    async def _poll_metadata(self, broker: int, topic: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        for _ in range(POLLS):
            try:
                response = await self.ask(broker, request, 9, timeout_s=1.0)
            except Retry:
                return
            self.check_counts(response)
            self.history.counts["polls of metadata"] += 1
            await asyncio.sleep(POLL_PAUSE_S * self.random.random())

    async def _perform(self, what: str, attempt: Any, *allowed: ErrorCode) -> bool:
        """Perform an operation; an error that is not retriable ends it. Return whether it succeeded."""
        kind = what.partition(" ")[0]
        try:
            await self.until_done(what, attempt)
        except Failed as error:
            self.history.counts[f"{kind}: {error.code.name}"] += 1
            if error.code in allowed:
                return False
            self.note_anomaly("unexpected error", f"{what}: {error.code.name}")
            return False
        self.history.counts[kind] += 1
        return True

    async def _create(self) -> None:
        self._created += 1
        topic = f"extra-{self._created}"
        await self.create(topic, 2)
        self._extra.append(topic)

    async def _grow(self) -> None:
        """Add a partition or two to a topic."""
        # The deletion of an earlier topic of the same name may still wait for a broker.
        certain = self.history.created_topics.keys() - self.history.deleted_topics.keys()
        topic = next((topic for topic in self._extra if topic in certain), None)
        if topic is not None:
            await self._add_partitions(topic)

    async def _add_partitions(self, topic: str) -> None:
        count = self.history.created_topics[topic] + self.random.randint(1, 2)
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
            timeout_ms=5000,
            validate_only=False,
        )

        async def attempt() -> None:
            response = await self.ask(await self.controller(), request, 2)
            # It has so many already if the response to an earlier attempt was lost.
            self.expect(response.results[0].error_code, ErrorCode.INVALID_PARTITIONS)

        growth = self._perform(
            f"CreatePartitions {topic}",
            attempt,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
        )
        if await self._while_polled(topic, growth):
            self.history.created_topics[topic] = count

    async def _delete(self) -> None:
        if not self._extra:
            return
        topic = self._extra.pop()
        was_created = topic in self.history.created_topics  # else the new topic would count as the one that is deleted
        # A second request may have been sent that is late, and would delete the new topic.
        requests = await self.delete(topic)
        has_ids = not self.history.leaders_write_states
        if requests == 1 and was_created and has_ids and self.random.random() < 0.7:
            await self.think(2.0)
            await self.create(topic, 2)
            self._extra.append(topic)

    async def delete(self, topic: str) -> int:
        """Delete a topic, perhaps later, when a broker that is away returns. Return how many requests that took."""
        for incarnation in self.history.incarnations(topic):
            self.history.deleted_topics.setdefault(incarnation, self.now_us())
        requests = 0

        async def attempt() -> None:
            nonlocal requests
            requests += 1
            request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=3000)
            response = await self.ask(await self.controller(), request, 4)
            self.expect(
                response.responses[0].error_code,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.REQUEST_TIMED_OUT,  # a replica is down: it is deleted later
            )

        await self._perform(f"DeleteTopics {topic}", attempt)
        return requests

    async def _delete_records(self) -> None:
        """Delete a part of the records of one partition."""
        share = self.random.choice([0.3, 0.7, 1.0, None])
        await self.delete_records(self.random.choice(self._partitions), share)

    async def delete_records(self, partition: Partition, share: float | None) -> Deletion | None:
        """Delete this share of the offsets below the high watermark of a partition; None: leave it to the leader."""
        deletion: Deletion | None = None

        async def attempt() -> None:
            nonlocal deletion
            leader, epoch = await self.leader_of(partition)
            if deletion is None:
                offset = None if share is None else int(share * await self._end_offset(leader, partition, epoch))
                deletion = Deletion(partition, offset, self.now_us())
                self.history.deletions.append(deletion)
            wanted = DeleteRecordsPartition(
                partition_index=partition.index, offset=-1 if deletion.offset is None else deletion.offset
            )
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])], timeout_ms=3000
            )
            response = await self.ask(leader, request, 2)
            found = response.topics[0].partitions[0]
            # A new leader may not know yet that the records are committed, and a replica may be separated from it.
            others = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REQUEST_TIMED_OUT)
            if self.expect(found.error_code, *others) is ErrorCode.NONE:
                deletion.broker, deletion.low_watermark = leader, found.low_watermark
                deletion.acked_us = self.now_us()
                self.history.counts["acknowledged deletions of records"] += 1

        await self._perform(f"DeleteRecords {partition}", attempt)
        return deletion

    async def _end_offset(self, leader: int, partition: Partition, epoch: int) -> int:
        """Return the high watermark of a partition. Raises Retry."""
        wanted = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=epoch, timestamp=LATEST_TIMESTAMP
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])]
        )
        found = (await self.ask(leader, request, 6)).topics[0].partitions[0]
        self.expect(found.error_code)
        return int(found.offset)

    async def _change_setting(self) -> None:
        """Change a setting of a topic. All replicas together always reach min.insync.replicas."""
        topic = self.random.choice(self._partitions).topic
        key, values = self.random.choice(
            [
                (SEGMENT_BYTES, [300, 700, 2000]),
                (MIN_INSYNC_REPLICAS, [self.history.min_isr, self._replication_factor]),
            ]
        )
        await self.change_setting(topic, key, str(self.random.choice(values)))

    async def change_setting(self, topic: str, key: str, value: str) -> None:
        change = AlterableConfig(name=key, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        requests = 0

        async def attempt() -> None:
            nonlocal requests
            requests += 1
            response = await self.ask(self.any_broker(), request, 1)
            self.expect(response.responses[0].error_code)

        # The session of the broker that is asked may expire.
        done = await self._perform(
            f"IncrementalAlterConfigs {topic} {key}={value}", attempt, ErrorCode.UNKNOWN_SERVER_ERROR
        )
        # A request without a response may be late, and undo a later change.
        is_certain = done and requests == 1 and self.history.settings.get((topic, key), value) is not None
        self.history.settings[topic, key] = value if is_certain else None

    async def change_group(self, group: str, key: str, value: str) -> None:
        """Change a setting of a group."""
        change = AlterableConfig(name=key, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=OF_GROUP, resource_name=group, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        async def attempt() -> None:
            response = await self.ask(self.any_broker(), request, 1)
            self.expect(response.responses[0].error_code)

        await self._perform(f"IncrementalAlterConfigs of group {group} {key}={value}", attempt)

    async def _reassign(self) -> None:
        """Reorder, remove, add or move the replicas of one partition; or cancel."""
        await self._reassign_one(self.random.choice(self._moved))

    async def _reassign_one(self, partition: Partition) -> None:
        await self._move(partition, None if self.random.random() < 0.2 else self._drawn_replicas())

    def _drawn_replicas(self) -> list[int]:
        """Return some brokers, often one less than the replication factor, so that there is one to add again."""
        brokers, factor = sorted(self.around.brokers()), self._replication_factor
        count = self.random.choice([max(factor - 1, 1), max(factor - 1, 1), factor, factor, len(brokers)])
        return self.random.sample(brokers, count)

    async def _race(self) -> None:
        """Move a partition of a topic that comes and goes, and delete the topic or add partitions at the same time."""
        certain = self.history.created_topics.keys() - self.history.deleted_topics.keys()
        topic = self._extra[-1] if self._extra else ""
        if topic not in certain:
            return
        partition = Partition(topic, self.random.randrange(self.history.created_topics[topic]))
        move = self.loop.create_task(self._move(partition, self._drawn_replicas()))
        await self.think(0.05)
        await (self._delete() if self.random.random() < 0.5 else self._add_partitions(topic))
        await move
        self.history.counts["moves of topics that are deleted or grow"] += 1

    # Throttles

    async def _throttle(self) -> None:
        """Throttle the replicas of one topic and move them; or, if there is a throttle, remove it."""
        if self._rate:
            await self._remove_throttles()
            return
        moved = self.random.choice(self._moved)
        self._rate = self.random.choice(RATES)
        brokers = sorted(self.around.brokers())
        indexes = [it.index for it in self._moved if it.topic == moved.topic]
        listed = ",".join(f"{index}:{broker}" for index in indexes for broker in brokers)
        value = self.random.choice(["*", listed])
        self._throttled[moved.topic] = None
        await self._alter_throttles(TOPIC, moved.topic, ".replicas", value, self.any_broker())
        for broker in brokers:
            try:
                await self._alter_once(BROKER, str(broker), ".rate", str(self._rate), broker)
            except (Retry, Failed):
                self._are_throttles_certain = False  # the request may arrive late
        self.history.counts["throttles"] += 1
        for _ in range(2):
            await self._reassign_one(moved)  # the second one mostly adds what the first one has removed

    async def _leave_throttles(self) -> None:
        """In the end remove a throttle that may not stay, and perhaps others; do so when no request may be late."""
        if self._are_throttles_certain:
            if self._rate and (self._rate < KEPT_RATE or self.random.random() < 0.5):
                await self._remove_throttles()
            return
        for _ in range(ENDS_MAX):  # faults may delay requests until then
            if self.around.is_ending:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)
        await self._remove_throttles()

    async def _remove_throttles(self) -> None:
        self._rate = 0
        for broker in sorted(self.around.brokers()):
            await self._alter_throttles(BROKER, str(broker), ".rate", None, broker)
        for topic in self._throttled:
            await self._alter_throttles(TOPIC, topic, ".replicas", None, self.any_broker())

    async def _alter_throttles(self, kind: int, name: str, what: str, value: str | None, broker: int) -> None:
        await self._perform(
            f"IncrementalAlterConfigs of throttles {name} {value}",
            lambda: self._alter_once(kind, name, what, value, broker),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )

    async def _alter_once(self, kind: int, name: str, what: str, value: str | None, broker: int) -> None:
        """Set or, with None, remove the settings of a throttle of both directions."""
        operation = DELETE if value is None else SET
        changes = [
            AlterableConfig(name=f"{throttle}{what}", config_operation=operation, value=value) for throttle in THROTTLES
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await self.ask(broker, request, 1)
        self.expect(response.responses[0].error_code)

    async def _move(self, partition: Partition, replicas: list[int] | None) -> None:
        """Start to move a partition, or with None cancel the move."""
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5000,
            topics=[
                ReassignableTopic(
                    name=partition.topic,
                    partitions=[ReassignablePartition(partition_index=partition.index, replicas=replicas)],
                )
            ],
        )

        async def attempt() -> None:
            response = await self.ask(await self.controller(), request, 0)
            self.expect(response.error_code)
            # No client may have needed an internal topic yet.
            self.expect(response.responses[0].partitions[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        await self._perform(
            f"AlterPartitionReassignments {partition} to {replicas}",
            attempt,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )

    async def _move_directories(self) -> None:
        """Move some replicas of one broker to another log directory, if they are there."""
        partitions = self.random.sample(list(self._partitions), k=3)
        topics = [AlterReplicaLogDirTopic(name=it.topic, partitions=[it.index]) for it in partitions]
        wanted = AlterReplicaLogDir(path=self.random.choice(self._folders), topics=topics)
        self.doing = f"AlterReplicaLogDirs {partitions} to {wanted.path}"
        try:
            response = await self.ask(self.any_broker(), AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
        except Retry:
            return
        for topic in response.results:
            for found in topic.partitions:
                code = ErrorCode(found.error_code)
                self.history.counts[f"AlterReplicaLogDirs: {code.name}"] += 1
                if code not in _OF_DIRECTORIES:
                    self.note_anomaly("unexpected error", f"{self.doing}: {code.name}")

    async def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000)

        async def attempt() -> None:
            response = await self.ask(await self.controller(), request, 2)
            self.expect(response.error_code)

        await self._perform("ElectLeaders", attempt)


class Mover(Admin):
    """Moves partitions to other brokers, and cancels or replaces most moves while they are in progress."""

    async def run(self) -> None:
        for _ in range(self._count):
            await self.think(3.0 if len(self.around.brokers()) == self._replication_factor else 1.0)
            partition = self.random.choice(self._partitions)
            await self._move(partition, self._replicas())
            for _ in range(self.random.randrange(4)):
                # Mostly before the added replicas have caught up; or so late that a fault has changed the ISR.
                await self.think(self.random.choice([0.02, 0.1, 0.5, 8.0]))
                if self.random.random() < 0.3:
                    await self._elect()  # an added replica leads, if it is in sync
                await self._move(partition, self._replicas() if self.random.random() < 0.5 else None)
        self.doing = "finished"

    def _replicas(self) -> list[int]:
        brokers = sorted(self.around.brokers())
        if len(brokers) == self._replication_factor:
            return self._drawn_replicas()
        return self.random.sample(brokers, self._replication_factor)
