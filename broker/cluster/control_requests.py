"""Control requests of the controller to this broker: the same requests as over the wire, applied by a direct call.

Owns: the order in which they are applied, the parts that each changes, and the rejection of requests from an old
controller or for an old registration of this broker. Must not know: how the controller decided, or the leader epochs of
partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_configs import TopicConfigs
from broker.loop.clock import Clock
from broker.loop.periodic_jobs import take_steps
from broker.loop.slices import SlicedWork
from broker.replica.manager import ReplicaManager
from controller.broker_channels import ControlRequest, ControlResponse
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger("kafka.server.KafkaApis")

UNKNOWN_BROKER_EPOCH = -1


class ControlFence:
    """Rejects control requests of replaced controllers, and those for an earlier registration of this broker.

    All three kinds of requests share the highest controller epoch seen. A broker epoch above the own one is accepted:
    the controller may learn of a new registration before this broker does (KIP-380).
    """

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self._broker_epoch = broker_epoch
        self._controller_epoch = -1

    def admit(self, request: ControlRequest) -> ErrorCode:
        """Return NONE if `request` may be applied, and reject older controllers from then on; else return its error."""
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


class LocalChannels:
    """`BrokerChannels` of a cluster that consists of this broker."""

    def __init__(
        self,
        clock: Clock,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        topic_configs: TopicConfigs,
        sliced_work: SlicedWork,
        blocking: Executor,
        broker_epoch: Callable[[], int],
    ) -> None:
        """`blocking` runs work that waits for a disk.

        `broker_epoch()` is the epoch of this broker's registration, -1 before it is registered.
        """
        self._fence = ControlFence(broker_epoch)
        self._clock = clock
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._topic_configs = topic_configs
        self._sliced_work = sliced_work
        self._blocking = blocking
        self.on_metadata: Callable[[set[str]], None] = lambda topics: None
        """Called with the topics that an UpdateMetadata changed, after it is applied."""
        self._in_order = asyncio.Lock()

    async def send(self, broker_id: int, request: ControlRequest) -> ControlResponse:
        # asyncio.Lock is fair: requests are applied in the order of the calls, even if one has to read the store.
        async with self._in_order:
            error = self._fence.admit(request)
            if error:
                return _refused(request, error)
            if isinstance(request, UpdateMetadataRequest):
                return self._update_metadata(request)
            if isinstance(request, StopReplicaRequest):
                return await self._sliced_work.finished(
                    self._replica_manager.stop_replicas(request, self._clock.now_ms())
                )
            await self._load_configs(request)
            # Shielded: a log is registered only after the last step.
            creating = take_steps(
                self._replica_manager.create_logs(request, self._clock.now_ms()), self._sliced_work, self._blocking
            )
            await asyncio.shield(asyncio.ensure_future(creating))
            return await self._sliced_work.finished(self._replica_manager.become_leader_or_follower(request))

    async def _load_configs(self, request: LeaderAndIsrRequest) -> None:
        for topic in request.topic_states:
            await self._topic_configs.load(topic.topic_name)

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        changed = self._metadata.update(request)
        for topic in changed:
            if topic not in self._metadata.topics:
                self._topic_configs.forget(topic)
        self.on_metadata(changed)
        return UpdateMetadataResponse()


def _refused(request: ControlRequest, error: ErrorCode) -> ControlResponse:
    if isinstance(request, UpdateMetadataRequest):
        return UpdateMetadataResponse(error_code=error)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=error)
    return LeaderAndIsrResponse(error_code=error)
