"""Hands control requests to the channels and brings the answers back as events.

Owns the sends of one term that are under way. Must not know what requests say, except which answers matter: of
UpdateMetadata none does.
"""

import asyncio
import logging
from collections.abc import Callable

from controller.broker_channels import BrokerChannels, ControlRequest, ControlResponse
from controller.events import Event, LeaderAndIsrAnswered, StopReplicaAnswered
from controller.model import TopicPartition
from protocol.messages.leader_and_isr import LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

logger = logging.getLogger("kafka.controller.RequestSendThread")


class Sender:
    def __init__(self, channels: BrokerChannels, enqueue: Callable[[Event], None]) -> None:
        self._channels = channels
        self._enqueue = enqueue
        self._under_way: dict[asyncio.Future[ControlResponse], int] = {}

    def send(self, broker_id: int, request: ControlRequest) -> None:
        """Send without waiting; the channels keep the order."""
        answer = asyncio.ensure_future(self._channels.send(broker_id, request))
        self._under_way[answer] = broker_id
        answer.add_done_callback(lambda answer: self._answered(broker_id, request, answer))

    async def settle(self, broker_id: int) -> None:
        """Wait until the broker has answered all that it was sent so far."""
        answers = [answer for answer, receiver in self._under_way.items() if receiver == broker_id]
        if answers:
            await asyncio.wait(answers)

    def close(self) -> None:
        """Give up what is under way."""
        for answer in self._under_way:
            answer.cancel()

    def _answered(self, broker_id: int, request: ControlRequest, answer: asyncio.Future[ControlResponse]) -> None:
        del self._under_way[answer]
        if answer.cancelled():
            return
        if (error := answer.exception()) is not None:
            # The channel gives up when the broker is gone, which is an event of its own.
            logger.warning("broker %d did not take a %s: %s", broker_id, type(request).__name__, error)
            return
        response = answer.result()
        if isinstance(response, LeaderAndIsrResponse):
            self._enqueue(LeaderAndIsrAnswered(broker_id, response))
        elif isinstance(response, StopReplicaResponse) and isinstance(request, StopReplicaRequest):
            deleted = frozenset(
                TopicPartition(topic.topic_name, state.partition_index)
                for topic in request.topic_states
                for state in topic.partition_states
                if state.delete_partition
            )
            if deleted:
                self._enqueue(StopReplicaAnswered(broker_id, deleted, response))
