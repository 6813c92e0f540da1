"""Partition states that a leader writes itself, for `inter.broker.protocol.version` below 2.7-IV2.

Owns what the controller owns in later protocols: the check of a reported ISR against the stored state, the write, and
when the controller is notified of it. Must not know why a leader wants another ISR.

A state is written only over the version that the leader knows, so a leader that was deposed changes nothing. The
controller epoch of the node stays: it says which controller has elected the leader.

Notifications name all partitions that have changed since the last ones. They are written when nothing has changed for
five seconds, or a minute after the last, so that many changes share a few notifications.
"""

import logging
from itertools import islice
from typing import Final

from base.clock import Clock
from base.topic_partition import TopicPartition
from controller.machine.isr_changes import reported_isr
from controller.machine.model import LeaderAndIsr
from controller.store.state_store import BadVersion, Node, NoNode, StateStore, StoreError, StoreUnavailable
from controller.tree import paths
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)

logger = logging.getLogger("kafka.server.ZkAlterPartitionManager")

QUIET_MS: Final = 5_000
"""How long no ISR must have changed before the controller is notified."""
NOTIFICATION_INTERVAL_MS_MAX: Final = 60_000
"""How long changes wait at most after the last notification, while others follow."""
PARTITIONS_MAX: Final = 2_000
"""Of one notification: with the longest names it has 600 KB, and the store's default limit of a node is 1 MB."""


class LeaderStates:
    """The states of the partitions that one broker leads."""

    def __init__(self, broker_id: int, store: StateStore, clock: Clock) -> None:
        self._broker_id = broker_id
        self._store = store
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        """Of which the controller was not notified, in the order of their changes."""
        self._changed_ms = self._notified_ms = clock.monotonic_ms()

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Write the ISRs of `request`, which names topics by name; return the response that a controller would send.

        Raises StoreUnavailable: Some of them may have been written. The same request may be repeated.
        """
        topics = []
        for topic in request.topics:
            keys = [(topic.topic_name, reported.partition_index) for reported in topic.partitions]
            nodes = await self._store.get_many([paths.partition_state_path(key) for key in keys])
            results = [
                await self._written(key, reported, node)
                for key, reported, node in zip(keys, topic.partitions, nodes, strict=True)
            ]
            topics.append(TopicResult(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=results))
        return AlterPartitionResponse(topics=topics)

    async def notify(self) -> None:
        """Notify the controller of changes if that is due. To be called every few seconds."""
        now_ms = self._clock.monotonic_ms()
        is_quiet = now_ms - self._changed_ms > QUIET_MS
        if not self._changed or not (is_quiet or now_ms - self._notified_ms > NOTIFICATION_INTERVAL_MS_MAX):
            return
        changed, self._changed = self._changed, {}
        while changed:
            named = list(islice(changed, PARTITIONS_MAX))
            try:
                await self._store.create(paths.ISR_CHANGE_PREFIX, paths.encode_isr_change(named), sequential=True)
            except (StoreError, StoreUnavailable) as error:
                logger.warning("the controller cannot be notified of %d changed ISRs: %s", len(changed), error)
                self._changed = changed | self._changed
                return
            for key in named:
                del changed[key]
        self._notified_ms = now_ms

    async def _written(self, key: TopicPartition, reported: PartitionData, node: Node | None) -> PartitionResult:
        """Write the state of one partition unless the leader is out of date, and return what the leader is told."""
        if node is None:
            return _refused(reported, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            found = paths.decode_partition_state(key, node.data, node.stat.version)
        except paths.Undecodable as error:
            logger.error("the state of %s-%d stays as it is: %s", *key, error)
            return _refused(reported, ErrorCode.UNKNOWN_SERVER_ERROR)
        wanted = LeaderAndIsr(self._broker_id, reported.leader_epoch, reported_isr(reported))
        if found.state.leader_epoch > wanted.leader_epoch:
            return _refused(reported, ErrorCode.FENCED_LEADER_EPOCH)
        if found.partition_epoch < reported.partition_epoch:
            # A server of the store may lag behind the controller's: the leader has to ask again.
            return _refused(reported, ErrorCode.REQUEST_TIMED_OUT)
        if found.state == wanted:  # by an earlier attempt, whose result was lost
            return self._accepted(key, reported, wanted, found.partition_epoch)
        if found.state.leader != self._broker_id or found.partition_epoch != reported.partition_epoch:
            return _refused(reported, ErrorCode.INVALID_UPDATE_VERSION)
        data, path = paths.encode_partition_state(wanted, found.controller_epoch), paths.partition_state_path(key)
        try:
            stat = await self._store.set(path, data, found.partition_epoch)
        except BadVersion:
            # By an earlier attempt of this broker, perhaps, which the node that was read did not show yet.
            return await self._written(key, reported, (await self._store.get_many([path]))[0])
        except NoNode:
            return _refused(reported, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._accepted(key, reported, wanted, stat.version)

    def _accepted(
        self, key: TopicPartition, reported: PartitionData, state: LeaderAndIsr, partition_epoch: int
    ) -> PartitionResult:
        self._changed[key] = None
        self._changed_ms = self._clock.monotonic_ms()
        return PartitionResult(
            partition_index=reported.partition_index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=partition_epoch,
        )


def _refused(reported: PartitionData, code: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_index=reported.partition_index, error_code=code)
