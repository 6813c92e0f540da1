"""Send control requests through the channels, and queue their responses as events.

Owns the sends of one term that are in flight, and which channels are open in it. Must not know the content of requests,
except which responses matter: those of UpdateMetadata do not.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from controller.active.broker_channels import BrokerChannels, ControlRequest, ControlResponse
from controller.machine.events import Event, LeaderAndIsrResponseReceived, StopReplicaResponseReceived
from controller.machine.model import Broker
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

logger = logging.getLogger("kafka.controller.RequestSendThread")
state_log = logging.getLogger("state.change.logger")
STATES_LOGGED_MAX = 50
"""Partitions of one request that are listed: this happens in one step, and the receiver lists all."""


class Sender:
    def __init__(self, channels: BrokerChannels, enqueue: Callable[[Event], None]) -> None:
        self._channels = channels
        self._enqueue = enqueue
        self._in_flight: dict[asyncio.Future[ControlResponse], int] = {}
        self._open: set[int] = set()

    def open_to(self, broker: Broker) -> None:
        """Open the channel to a registered broker, or change its addresses."""
        self._open.add(broker.broker_id)
        self._channels.open_to(broker)

    def close_to(self, broker_id: int) -> None:
        """Close the channel to a broker whose registration is gone."""
        self._open.discard(broker_id)
        self._channels.close_to(broker_id)

    def send(self, broker_id: int, request: ControlRequest) -> None:
        """Send without waiting; the channels keep the order."""
        state_log.info(
            "[Controller id=%d epoch=%d] Sending %s request to broker %d",
            request.controller_id,
            request.controller_epoch,
            type(request).__name__.removesuffix("Request"),
            broker_id,
        )
        if isinstance(request, LeaderAndIsrRequest) and state_log.isEnabledFor(logging.INFO):
            _log_states(broker_id, request)
        future = asyncio.ensure_future(self._channels.send(broker_id, request))
        self._in_flight[future] = broker_id
        future.add_done_callback(lambda future: self._complete(broker_id, request, future))

    async def settle(self, broker_id: int) -> None:
        """Wait until the broker has responded to every request sent so far."""
        futures = [future for future, receiver in self._in_flight.items() if receiver == broker_id]
        if futures:
            await asyncio.wait(futures)

    def close(self) -> None:
        """Cancel the requests in flight and close all channels."""
        for future in self._in_flight:
            future.cancel()
        for broker_id in self._open:
            self._channels.close_to(broker_id)

    def _complete(self, broker_id: int, request: ControlRequest, future: asyncio.Future[ControlResponse]) -> None:
        del self._in_flight[future]
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            # The channel gives up when the broker's registration is gone, which is an event of its own.
            logger.warning("broker %d did not respond to a %s: %s", broker_id, type(request).__name__, error)
            if not isinstance(request, LeaderAndIsrRequest) or broker_id not in self._open:
                return
            # This broker, whose channel is a direct call, could not apply it.
            response: ControlResponse = LeaderAndIsrResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            response = future.result()
        if isinstance(response, LeaderAndIsrResponse) and isinstance(request, LeaderAndIsrRequest):
            self._enqueue(LeaderAndIsrResponseReceived(broker_id, response, request))
        elif isinstance(response, StopReplicaResponse) and isinstance(request, StopReplicaRequest):
            deleted = frozenset(
                (topic.topic_name, state.partition_index)
                for topic in request.topic_states
                for state in topic.partition_states
                if state.delete_partition
            )
            if deleted:
                self._enqueue(StopReplicaResponseReceived(broker_id, deleted, response, request))


def shown_state(topic: str, state: LeaderAndIsrPartitionState) -> str:
    """Return the leadership of a partition, as a control request has it, in the words of Kafka's state-change log."""
    return (
        f"partition {topic}-{state.partition_index}: leader={state.leader}, leaderEpoch={state.leader_epoch}, "
        f"isr={state.isr}, replicas={state.replicas}, partitionEpoch={state.partition_epoch}"
    )


def _log_states(broker_id: int, request: LeaderAndIsrRequest) -> None:
    states = ((topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states)
    for topic, state in islice(states, STATES_LOGGED_MAX):
        state_log.info(
            "[Controller id=%d epoch=%d] Sending LeaderAndIsr to broker %d for %s",
            request.controller_id,
            request.controller_epoch,
            broker_id,
            shown_state(topic, state),
        )
    left = sum(1 for _ in states)
    if left:
        state_log.info(
            "[Controller id=%d epoch=%d] Sending LeaderAndIsr to broker %d for %d more partitions, which its log lists",
            request.controller_id,
            request.controller_epoch,
            broker_id,
            left,
        )
