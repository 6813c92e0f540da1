"""The entry point for requests of the controller to this broker, from this process or over the network.

Owns: the order in which they are applied, the parts that each changes, and the rejection of requests from an old
controller or for an old registration of this broker. Must not know: how the controller decided, how a request came, or
the leader epochs of partitions.

Requests are in the form of the newest version, whatever their sender used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from copy import copy
from functools import partial
from typing import Any, TypeVar

from base.clock import Clock
from base.pause import Pause
from broker.cluster.metadata_cache import LEADER_OF_DELETED_TOPIC, NONE_DECLARED, MetadataCache
from broker.cluster.topic_configs import TopicConfigs
from broker.loop.in_order import InOrder
from broker.loop.slices import SlicedWork
from broker.loop.subscribers import Subscribers
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.manager import ReplicaManager
from controller.active.broker_channels import ControlRequest, ControlResponse
from controller.active.sender import shown_state
from controller.machine.topic_creation import NAME_LENGTH_MAX, topic_name_problem
from protocol.errors import ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

logger = logging.getLogger("kafka.server.KafkaApis")
state_log = logging.getLogger("state.change.logger")

UNKNOWN_BROKER_EPOCH = -1
NEGATIVE = "it has a partition with a negative number"
TOO_LONG = f"its name is longer than the max allowed length {NAME_LENGTH_MAX}"
UNUSABLE_LINES_MAX = 20

R = TypeVar("R", LeaderAndIsrRequest, StopReplicaRequest)


class ControlFence:
    """Rejects control requests of replaced controllers and of KRaft, and those for an earlier start of this broker.

    All three kinds of requests share the highest controller epoch seen. A broker epoch above this broker's is accepted:
    the controller may learn of a new registration before this broker does (KIP-380).
    """

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self._broker_epoch = broker_epoch
        self._controller_epoch = -1

    def admit(self, request: ControlRequest) -> ErrorCode:
        """Return NONE if `request` may be applied, and reject older controllers from then on; else return its error."""
        if request.is_kraft_controller:
            # Its epochs are of another kind, and its registrations are not those in ZooKeeper.
            logger.error(
                "refusing a %s of controller %d, which is of KRaft: this broker has its metadata in ZooKeeper alone",
                type(request).__name__,
                request.controller_id,
            )
            return ErrorCode.INVALID_REQUEST
        if request.broker_epoch != UNKNOWN_BROKER_EPOCH and request.broker_epoch < self._broker_epoch():
            error = ErrorCode.STALE_BROKER_EPOCH
        elif request.controller_epoch < self._controller_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            self._controller_epoch = request.controller_epoch
            return ErrorCode.NONE
        logger.warning(
            "ignoring a %s of controller %d: %s (controller epoch %d, present %d; broker epoch %d, present %d)",
            type(request).__name__,
            request.controller_id,
            error.name,
            request.controller_epoch,
            self._controller_epoch,
            request.broker_epoch,
            self._broker_epoch(),
        )
        return error


class ControlDoor:
    """Applies LeaderAndIsr, UpdateMetadata and StopReplica, one at a time and in slices."""

    def __init__(
        self,
        clock: Clock,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        assigned_replicas: AssignedReplicas,
        topic_configs: TopicConfigs,
        read_partition_counts: Callable[[Sequence[str]], Awaitable[Mapping[str, int]]],
        sliced_work: SlicedWork,
        blocking: Executor,
        broker_epoch: Callable[[], int],
        changes: Subscribers[[set[str]]],
    ) -> None:
        """`read_partition_counts(topics)` returns those that the metadata store declares, as far as it can be read.

        `blocking` runs work that waits for a disk. `changes` is notified of the topics that an UpdateMetadata changed,
        after it is applied.

        `broker_epoch()` is the epoch of this broker's registration, -1 before it is registered.
        """
        self._fence = ControlFence(broker_epoch)
        self._clock = clock
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._assigned_replicas = assigned_replicas
        self._topic_configs = topic_configs
        self._read_partition_counts = read_partition_counts
        self._sliced_work = sliced_work
        self._blocking = blocking
        self._changes = changes
        self._in_order = InOrder()

    async def submit(self, request: ControlRequest, correlation_id: int | None = None) -> ControlResponse:
        """Apply a request after all earlier ones, and return the response.

        `correlation_id` is None if the controller is this broker.

        It is applied as a whole also if the caller is cancelled, for example because its connection is lost.
        """
        state_log.info(
            "Handling %s request%s from controller %d epoch %d",
            type(request).__name__.removesuffix("Request"),
            "" if correlation_id is None else f" correlationId {correlation_id}",
            request.controller_id,
            request.controller_epoch,
        )
        applying = asyncio.ensure_future(self._apply(request))
        applying.add_done_callback(_log_failure)
        return await asyncio.shield(applying)

    async def _apply(self, request: ControlRequest) -> ControlResponse:
        # Requests are applied in the order of the calls, even if one has to read the store.
        async with self._in_order:
            error = self._fence.admit(request)
            if error:
                return refused(request, error)
            if isinstance(request, UpdateMetadataRequest):
                return await self._update_metadata(request)
            async with self._replica_manager.truncations.kept_out(partial(_partitions_of, request)):
                if isinstance(request, StopReplicaRequest):
                    return await self._stop_replicas(request)
                return await self._lead_and_follow(request)

    async def _stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        pause = self._sliced_work.pause
        request, unusable = await _without_unusable(request, pause)
        response = await self._assigned_replicas.stop_replicas(request, self._clock.now_ms(), pause)
        response.partition_errors += [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
            for topic in unusable
            for state in topic.partition_states
        ]
        return response

    async def _lead_and_follow(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        pause = self._sliced_work.pause
        request, unusable = await _without_unusable(request, pause)
        await self._load_configs(request)
        # A log is registered only after the last step.
        await self._assigned_replicas.create_logs(request, self._clock.now_ms(), pause, self._in_thread)
        if state_log.isEnabledFor(logging.INFO):
            await _log_states(request, pause)
        response = await self._assigned_replicas.become_leader_or_follower(request, pause)
        response.topics += [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in unusable
        ]
        return response

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._blocking, work)

    async def _load_configs(self, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> None:
        """Load the overrides of the topics that are new to this broker."""
        names = (topic.topic_name for topic in request.topic_states)
        pause = self._sliced_work.pause
        await self._topic_configs.load(await self._topic_configs.unknown(names, pause), pause)

    async def _read_counts_of_coordinators(self, request: UpdateMetadataRequest) -> Mapping[str, int]:
        """Return the partition counts of the coordinators' topics, if these are new to this broker or have grown.

        The count selects the coordinator of a group, so it must be complete from the first request on. The request
        names only partitions that have had a leader.
        """
        changed = await self._grown_internal_topics(request)
        return await self._read_partition_counts(changed) if changed else NONE_DECLARED

    async def _grown_internal_topics(self, request: UpdateMetadataRequest) -> list[str]:
        pause = self._sliced_work.pause
        grown = []
        for topic in request.topic_states:
            if topic.topic_name in INTERNAL_TOPICS and self._has_more_partitions(topic):
                grown.append(topic.topic_name)
            await pause()
        return grown

    def _has_more_partitions(self, topic: UpdateMetadataTopicState) -> bool:
        known = self._metadata.topics.get(topic.topic_name)
        present = [it.partition_index for it in topic.partition_states if it.leader != LEADER_OF_DELETED_TOPIC]
        return bool(present) and (
            known is None or known.topic_id != topic.topic_id or max(present) >= known.declared_count
        )

    async def _forget_deleted(self, topics: Iterable[str]) -> None:
        pause = self._sliced_work.pause
        for topic in topics:
            if topic not in self._metadata.topics:
                self._topic_configs.forget(topic)
            await pause()

    async def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        pause = self._sliced_work.pause
        await self._load_configs(request)  # also of topics without a replica here, which clients may describe
        brokers_before = self._metadata.brokers
        declared_counts = await self._read_counts_of_coordinators(request)
        changed = await self._metadata.update(request, pause, declared_counts)
        if brokers_before.keys() - self._metadata.brokers.keys():
            await self._replica_manager.brokers_left(pause)
        await self._assigned_replicas.stop_dropped_replicas(request, pause)
        await self._forget_deleted(changed)
        self._changes.notify(changed)
        return UpdateMetadataResponse()


async def _log_states(request: LeaderAndIsrRequest, pause: Pause) -> None:
    """Log the state of each partition."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            state_log.info(
                "Received LeaderAndIsr from controller %d epoch %d for %s",
                request.controller_id,
                request.controller_epoch,
                shown_state(topic.topic_name, state),
            )
            await pause()


def _partitions_of(request: LeaderAndIsrRequest | StopReplicaRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state.partition_index


async def _without_unusable(request: R, pause: Pause) -> tuple[R, list[Any]]:
    """Return the request without topics that cannot be stored, and these topics.

    A name becomes a part of a path. One that was written into the metadata store by hand must not lead out of the log
    directories, and must not keep the other topics of the request from being served.
    """
    usable, unusable = [], []
    for topic in request.topic_states:
        problem = topic_name_problem(topic.topic_name)
        if problem is None and all(state.partition_index >= 0 for state in topic.partition_states):
            usable.append(topic)
        else:
            unusable.append(topic)
            if len(unusable) <= UNUSABLE_LINES_MAX:
                name = repr(topic.topic_name)
                if len(topic.topic_name) > NAME_LENGTH_MAX:
                    name, problem = f"{topic.topic_name[:NAME_LENGTH_MAX]!r}...", TOO_LONG
                logger.error("ignoring topic %s of a %s: %s", name, type(request).__name__, problem or NEGATIVE)
        await pause()
    if (others := len(unusable) - UNUSABLE_LINES_MAX) > 0:
        logger.error("ignoring %d more topics of a %s", others, type(request).__name__)
    if unusable:
        request = copy(request)
        request.topic_states = usable
    return request, unusable


def _log_failure(applying: asyncio.Future[ControlResponse]) -> None:
    """Log why a request was not applied: its caller may have been cancelled, and then learns nothing."""
    error = None if applying.cancelled() else applying.exception()
    if error is not None:
        logger.warning("a request of the controller was not applied as a whole: %r", error)


def refused(request: ControlRequest, error: ErrorCode) -> ControlResponse:
    """Return the response to a request that failed as a whole."""
    if isinstance(request, UpdateMetadataRequest):
        return UpdateMetadataResponse(error_code=error)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=error)
    return LeaderAndIsrResponse(error_code=error)
