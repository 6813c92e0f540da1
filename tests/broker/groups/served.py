"""Handlers as a client uses them: every request and response goes through the codec of its version."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from base.pause import Awaited
from broker.cluster.metadata_cache import BrokerNode, MetadataCache, TopicState
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.settings import CoordinatorSettings
from broker.handlers.request_context import RequestContext
from broker.loop.promise import Promise
from broker.loop.slices import SLICE_MS, SlicedWork
from broker.network.channel import Channel
from broker.requests.dispatch import request_decoder
from broker.security.authorizer import Authorizer
from protocol.api import APIS, Api
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.update_metadata import UpdateMetadataPartitionState
from protocol.row_writer import RowResponse
from tests.broker.groups.fakes import FakeLegacyOffsets, Surroundings
from tests.support.manual_clock import ManualClock, SteppingClock

CLIENT_ID = "client"


@dataclass
class ServicesOfGroups:
    """The parts of a broker that these handlers touch."""

    groups: GroupCoordinator
    legacy_offsets: FakeLegacyOffsets
    metadata_cache: MetadataCache
    clock: ManualClock
    sliced_work: SlicedWork
    random: Random
    authorizer: Authorizer


class Served:
    """A broker with the topics `t` (2 partitions) and `u` (1), that leads all of `__consumer_offsets` (1)."""

    def __init__(self, *, initial_delay_ms: int = 0, max_size: int = 100, has_offsets_topic: bool = True) -> None:
        settings = CoordinatorSettings(
            group=GroupSettings(max_size=max_size, initial_rebalance_delay_ms=initial_delay_ms)
        )
        self.here = Surroundings(settings, partition_count=1 if has_offsets_topic else None)
        self.metadata = MetadataCache("cluster")
        self.random = Random(1)
        self.metadata.brokers[1] = BrokerNode(1, None, {"PLAINTEXT": ("broker", 9092)})
        self.add_topic("t", 2)
        self.add_topic("u", 1)
        if has_offsets_topic:
            self.add_topic("__consumer_offsets", 1)

    @classmethod
    async def up(cls, **details: Any) -> Served:
        served = cls(**details)
        await served.here.lead()
        return served

    sliced_work = SlicedWork(SteppingClock(SLICE_MS).monotonic_ms, steps_min=1)
    """Work of handlers, every step of which takes a whole slice."""

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.here.coordinator

    def add_topic(self, name: str, partition_count: int, leader: int = 1) -> None:
        self.metadata.topics[name] = TopicState(
            name,
            UUID(int=1),
            {
                index: UpdateMetadataPartitionState(
                    partition_index=index, controller_epoch=1, leader=leader, leader_epoch=0, isr=[1], zk_version=0,
                    replicas=[1],
                )
                for index in range(partition_count)
            },
        )  # fmt: skip

    def services(self) -> ServicesOfGroups:
        """What the handlers work with."""
        return ServicesOfGroups(
            self.coordinator,
            self.here.legacy,
            self.metadata,
            self.here.clock,
            self.sliced_work,
            self.random,
            Authorizer(is_active=False),
        )

    def send(self, handler: ModuleType, request: object, version: int) -> Any:
        """Return the response if the handler responds synchronously, otherwise a task that ends with it."""
        api = APIS[_key_of(request)]
        assert version in api.versions
        received = received_by(handler, request, version)
        channel = Channel("192.0.2.1", 50_000, "PLAINTEXT")
        context = RequestContext(api.key, version, 1, CLIENT_ID, channel)
        try:
            response = handler.handle(self.services(), received, context)
            if isinstance(response, Coroutine):
                response = self.sliced_work.start(response)
        except KafkaError as error:
            response = handler.failed(received, context, error.code)
        if isinstance(response, api.response | RowResponse):
            return as_received(response, api, version)
        return asyncio.ensure_future(self._later(handler, received, context, response))

    async def ask(self, handler: ModuleType, request: object, version: int) -> Any:
        """Return the response, and wait for it if needed."""
        response = self.send(handler, request, version)
        return await response if isinstance(response, asyncio.Future) else response

    async def _later(
        self, handler: ModuleType, received: object, context: RequestContext, awaited: Promise[Any]
    ) -> Any:
        try:
            response = await awaited
        except KafkaError as error:
            response = handler.failed(received, context, error.code)
        return as_received(response, APIS[context.api_key], context.api_version)


def counted_pauses(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets an element whenever a handler asks whether other work may run."""
    pauses: list[None] = []
    pause = SlicedWork.pause

    def counted(work: SlicedWork) -> Awaited:
        pauses.append(None)
        return pause(work)

    monkeypatch.setattr(SlicedWork, "pause", counted)
    return pauses


def versions_of(request: type) -> range:
    return next(api.versions for api in APIS.values() if api.request is request)


def _key_of(request: object) -> int:
    return next(key for key, api in APIS.items() if api.request is type(request))


def received_by(handler: ModuleType, request: object, version: int) -> Any:
    """The request as the handler gets it."""
    frame = bytearray(b"".join(encode(request, version)))
    return request_decoder(handler, APIS[_key_of(request)], version)(memoryview(frame))


def as_received(response: object, api: Api, version: int) -> Any:
    """The response as the client gets it; None if there is none."""
    if response is None:
        return None
    buffers = response.write() if isinstance(response, RowResponse) else encode(response, version)
    return decode(api.response, version, b"".join(buffers))


def codes(topics: Any) -> Mapping[tuple[str, int], ErrorCode]:
    """Error codes by (topic, partition) of a commit's or deletion's response."""
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in topics
        for partition in topic.partitions
    }
