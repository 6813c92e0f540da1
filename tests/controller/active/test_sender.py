"""The control requests of one term that are in flight."""

import asyncio
from collections.abc import Awaitable

from controller.active.broker_channels import ControlRequest, ControlResponse
from controller.active.sender import Sender
from controller.machine.events import Event
from controller.machine.model import Broker
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

REQUEST = UpdateMetadataRequest(controller_id=0, controller_epoch=1, live_brokers=[], topic_states=[])


class Channels:
    """Channels whose responses the test gives."""

    def __init__(self) -> None:
        self.responses: list[asyncio.Future[ControlResponse]] = []

    def open_to(self, broker: Broker) -> None:
        """Nothing to open."""

    def close_to(self, broker_id: int) -> None:
        """Nothing to close."""

    def send(self, broker_id: int, request: ControlRequest) -> Awaitable[ControlResponse]:
        self.responses.append(asyncio.get_running_loop().create_future())
        return self.responses[-1]


async def test_settle_waits_for_every_response_of_the_broker_and_no_other() -> None:
    events: list[Event] = []
    channels = Channels()
    sender = Sender(channels, events.append)
    for broker_id in (1, 2, 1):
        sender.send(broker_id, REQUEST)
    first, other, second = channels.responses
    one = asyncio.ensure_future(sender.settle(1))
    await asyncio.sleep(0)
    first.set_result(UpdateMetadataResponse())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not one.done()
    second.set_result(UpdateMetadataResponse())
    await one
    assert not other.done()
    assert events == []  # nothing depends on the responses to UpdateMetadata


async def test_settle_returns_if_nothing_is_in_flight() -> None:
    await Sender(Channels(), lambda _: None).settle(1)
