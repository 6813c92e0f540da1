"""The controller's channels to the brokers: a direct call for this broker, a connection for each other one.

Owns: the queue of each broker, and when its requests are sent again. Must not know: what the requests say, in which
version (`broker.cluster.control_versions`), or which brokers are registered: the controller opens and closes channels.

A channel belongs to one registration of a broker. After a restart the broker has another epoch, and requests for the
earlier one must not reach it: its channel is closed, and they fail.

A request may arrive twice, if its response was lost. Brokers ignore what is not newer than what they know.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterator
from typing import Final

from base.clock import Clock
from base.pause import Pause
from broker.cluster.control_requests import ControlDoor
from broker.cluster.control_versions import VersionedRequest, for_own_broker, in_newest_form, versioned
from broker.cluster.peers import CONTROLLER_CHANNEL, BrokerPeers, Link
from broker.loop.in_order import InOrder
from broker.network.outgoing import Pauses, Peer, PeerUnavailable
from config.addresses import HostAndPort
from config.inter_broker import InterBrokerProtocol
from controller.active.broker_channels import ControlRequest, ControlResponse
from controller.machine.model import Broker
from controller.machine.settings import EventTimes

logger = logging.getLogger("kafka.controller.RequestSendThread")

PAUSES: Final = Pauses(first_ms=100, longest_ms=100)


class ControlChannels:
    """`BrokerChannels` of one broker."""

    def __init__(
        self,
        broker_id: int,
        door: ControlDoor,
        peers: BrokerPeers,
        clock: Clock,
        pause: Pause,
        *,
        protocol: InterBrokerProtocol,
        listener: str,
        timeout_ms: int,
    ) -> None:
        """`listener` is the one on which brokers serve control requests. `timeout_ms` limits one attempt."""
        self._broker_id = broker_id
        self._door = door
        self._peers = peers
        self._clock = clock
        self._pause = pause
        self._protocol = protocol
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._channels: dict[int, _Channel] = {}
        self._own_in_order = InOrder()

    def open_to(self, broker: Broker) -> None:
        """See `BrokerChannels`."""
        if broker.broker_id == self._broker_id:
            return
        channel = self._channels.get(broker.broker_id)
        if channel is not None and channel.broker.epoch == broker.epoch:
            channel.broker = broker
            return
        self.close_to(broker.broker_id)
        self._channels[broker.broker_id] = _Channel(
            broker,
            self._listener,
            self._peers,
            self._clock,
            self._pause,
            protocol=self._protocol,
            client_id=str(self._broker_id),
            timeout_ms=self._timeout_ms,
        )

    def queues(self) -> Iterator[tuple[int, int, EventTimes]]:
        """Return of each other broker: its id, how many requests wait for it or its response, and how long they did."""
        for broker_id, channel in self._channels.items():
            yield broker_id, channel.size, channel.queue_times

    def close_to(self, broker_id: int) -> None:
        """See `BrokerChannels`."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(self, broker_id: int, request: ControlRequest) -> Awaitable[ControlResponse]:
        """See `BrokerChannels`."""
        if broker_id == self._broker_id:
            return self._submit(request)
        channel = self._channels.get(broker_id)
        if channel is None:
            failed: asyncio.Future[ControlResponse] = asyncio.get_running_loop().create_future()
            failed.set_exception(PeerUnavailable(f"broker {broker_id} is not registered"))
            return failed
        return channel.put(request)

    async def _submit(self, request: ControlRequest) -> ControlResponse:
        async with self._own_in_order:
            own = await for_own_broker(request, self._protocol, self._pause)
            return in_newest_form(request, [await self._door.submit(own)])


class _Channel:
    """The requests to one registration of a broker, in order."""

    def __init__(
        self,
        broker: Broker,
        listener: str,
        peers: BrokerPeers,
        clock: Clock,
        pause: Pause,
        *,
        protocol: InterBrokerProtocol,
        client_id: str,
        timeout_ms: int,
    ) -> None:
        self.broker = broker
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._name = f"broker {broker.broker_id} (epoch {broker.epoch})"
        self._connection: Peer = peers.connect_to(
            Link(CONTROLLER_CHANNEL, broker.broker_id), self._name, self._address, client_id, pauses=PAUSES
        )
        self._queue: deque[tuple[ControlRequest, asyncio.Future[ControlResponse], int]] = deque()
        self._clock = clock
        self._pause = pause
        self._protocol = protocol
        self.queue_times = EventTimes()
        """How long requests have waited before they were sent first."""
        self._sending: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return len(self._queue)

    def put(self, request: ControlRequest) -> asyncio.Future[ControlResponse]:
        future: asyncio.Future[ControlResponse] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future, self._clock.monotonic_ms()))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name=f"requests to {self._name}")
        return future

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._connection.close()
        while self._queue:
            _, future, _ = self._queue.popleft()
            if not future.done():
                future.set_exception(PeerUnavailable(f"{self._name} is no longer registered"))

    async def _send_all(self) -> None:
        while self._queue:
            request, future, queued_ms = self._queue[0]
            if not future.done():
                self.queue_times.add(self._clock.monotonic_ms() - queued_ms)
                await self._send(request, future)
            self._queue.popleft()
        self._sending = None

    async def _send(self, request: ControlRequest, future: asyncio.Future[ControlResponse]) -> None:
        """Send one request until there is a response, or `future` is cancelled."""
        try:
            responses = []
            for part in await versioned(request, self._protocol, self._pause):
                response = await self._response(part, future)
                if response is None:
                    return
                responses.append(response)
            if not future.done():
                future.set_result(in_newest_form(request, responses))
        except Exception as error:
            # A bug of ours. The requests behind this one must still be sent.
            logger.exception("a %s to %s cannot be sent", type(request).__name__, self._name)
            if not future.done():
                future.set_exception(error)

    async def _response(
        self, part: VersionedRequest, future: asyncio.Future[ControlResponse]
    ) -> ControlResponse | None:
        """Return the response to a request; None if nobody waits for it. The connection pauses between attempts."""
        attempts = 0
        while not future.done():
            attempts += 1
            try:
                response: ControlResponse = await self._connection.ask(
                    part.request, part.version, timeout_ms=self._timeout_ms
                )
                return response
            except PeerUnavailable as error:
                log = logger.warning if attempts == 1 else logger.debug
                log("sending a %s again: %s", type(part.request).__name__, error)
        return None

    def _address(self) -> HostAndPort | None:
        endpoint = self.broker.endpoint(self._listener)
        return None if endpoint is None else HostAndPort(endpoint.host, endpoint.port)
