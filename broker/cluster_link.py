"""The controller's way to this broker: the same requests as over the wire, applied by a direct call.

Owns: the order in which the controller's requests are applied here, and what each of them touches. Must not know: how
the controller decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.clock import Clock
from broker.metadata_cache import MetadataCache
from broker.replica.manager import ReplicaManager
from broker.topic_configs import TopicConfigs
from controller.broker_channels import ControlRequest, ControlResponse
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class LocalChannels:
    """`BrokerChannels` of a cluster that is this broker alone."""

    def __init__(
        self,
        clock: Clock,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        topic_configs: TopicConfigs,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._topic_configs = topic_configs
        self.on_metadata: Callable[[set[str]], None] = lambda topics: None
        """Told which topics an UpdateMetadata touched, once it is in force."""
        self._in_order = asyncio.Lock()

    async def send(self, broker_id: int, request: ControlRequest) -> ControlResponse:
        # An asyncio lock is fair: requests are applied in the order of the calls, also where one reads the store.
        async with self._in_order:
            if isinstance(request, UpdateMetadataRequest):
                return self._update_metadata(request)
            if isinstance(request, StopReplicaRequest):
                return self._replica_manager.stop_replicas(request, self._clock.now_ms())
            await self._load_configs(request)
            return self._replica_manager.become_leader_or_follower(request, self._clock.now_ms())

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
