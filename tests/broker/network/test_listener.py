"""One listener without a network: connections that it turns away, and a hold in the middle of a release."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.descriptors import DescriptorBudget
from broker.network.listener import Listener, ListenerSettings
from broker.network.unsent_responses import UnsentResponses
from tests.support.manual_clock import ManualClock

LIMIT = 1024


class Arrivals:
    """A client that connects again and again, as network, port and connection."""

    host, port = "10.0.0.9", 1

    def __init__(self) -> None:
        self.open_count = self.most = 0
        self.waiting = 0

    def listen(self, *_arguments: object) -> tuple[Arrivals]:
        return (self,)

    def watch(self, on_arrival: Any) -> None: ...

    def accept(self) -> Arrivals | None:
        if not self.waiting:
            return None
        self.waiting -= 1
        self.open_count += 1
        self.most = max(self.most, self.open_count)
        return self

    async def serve(self, *_arguments: object) -> asyncio.Transport:
        raise ConnectionResetError

    def close(self) -> None:
        self.open_count -= 1


def listener_of(arrivals: Arrivals, budget: DescriptorBudget) -> tuple[Listener, ConnectionQuotas]:
    quotas = ConnectionQuotas(ConnectionLimits(), lambda host: 1.0)
    unsent = UnsentResponses(lambda delay, call: None)  # type: ignore[arg-type, return-value]
    listener = Listener(
        "A",
        arrivals,  # type: ignore[arg-type]
        ListenerSettings(1 << 20),
        quotas,
        unsent,
        budget,
        ManualClock(),
        on_exceeded=lambda: None,
    )
    listener.bind("", 9092)
    listener.start(SimpleNamespace(dispatch=None))  # type: ignore[arg-type]
    return listener, quotas


async def test_connections_above_the_rate_of_their_address_leave_descriptors_to_files() -> None:
    arrivals = Arrivals()
    budget = DescriptorBudget(LIMIT, count=lambda: arrivals.open_count + 100)
    listener, quotas = listener_of(arrivals, budget)
    for _ in range(40):
        arrivals.waiting = 100
        while arrivals.waiting:
            listener._accept(listener._ports[0])
        await asyncio.sleep(0)
    assert arrivals.most <= LIMIT - budget.reserve
    assert quotas.open_count - quotas.count == arrivals.open_count > LIMIT // 2
    assert budget.excess(quotas.open_count, asyncio.get_running_loop().time()) == 0


async def test_a_hold_in_the_middle_of_a_release_counts() -> None:
    """A request that is read at once may fill the queue again."""
    listener, _ = listener_of(Arrivals(), DescriptorBudget(LIMIT))
    held: dict[str, bool] = {}

    class Connection:
        def __init__(self, name: str) -> None:
            self.name = name

        def hold(self, _why: object) -> None:
            held[self.name] = True

        def release(self, _why: object) -> None:
            held[self.name] = False
            listener.hold()

    for name in ("first", "second"):
        listener._connections[Connection(name)] = None  # type: ignore[index]
    listener.hold()
    listener.release()
    assert held == {"first": True, "second": True}
