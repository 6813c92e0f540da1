"""How idle the event loop is: the share of time in which its thread does not compute.

Owns: the averages. Must not know: how time is read. Pure: times are arguments, in seconds.

Kafka has threads for the network and others for requests. Here one event loop does both, so both have its idle share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from broker.metrics.metric import Kind, Metric, Shown, alone

AVERAGED_S: Final = 60.0
"""A share of a minute ago counts 1/e of the present one, as in Kafka's one-minute rates."""
NS_PER_S: Final = 1_000_000_000
NETWORK_PROCESSOR: Final = "0"


class LoopIdle:
    """The idle share of one thread."""

    def __init__(self) -> None:
        self.share = 1.0
        """From 0 (always busy) to 1 (always idle), averaged over the last minute."""
        self.idle_s = 0.0
        """All idle time together."""
        self._last: tuple[float, float] | None = None

    def update(self, now_s: float, busy_s: float) -> None:
        """Add the time since the last call. `busy_s` is the processor time of the thread so far."""
        if self._last is not None:
            last_now_s, last_busy_s = self._last
            elapsed_s = now_s - last_now_s
            if elapsed_s <= 0:
                return
            idle_s = max(elapsed_s - (busy_s - last_busy_s), 0.0)
            self.idle_s += idle_s
            self.share += (1.0 - math.exp(-elapsed_s / AVERAGED_S)) * (idle_s / elapsed_s - self.share)
        self._last = now_s, busy_s


def idle_metrics(idle: LoopIdle) -> Iterator[Metric]:
    """Return the metrics of the idle share, under the names of Kafka's two kinds of threads."""
    handlers = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
    network = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
    text = "Share of time in which the event loop was idle, from 0 to 1."
    for bean, own_name, shown in (
        (handlers, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", Shown.PROMETHEUS),
        (network, "", Shown.EVERYWHERE),
        (network, "kafka_network_socketserver_networkprocessoravgidle_percent", Shown.PROMETHEUS),
    ):
        yield Metric(Kind.GAUGE, bean, text, alone(lambda: idle.share), own_name=own_name, shown=shown)
    for kind, own_name, shown in (
        (Kind.GAUGE, "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count", Shown.PROMETHEUS),
        (Kind.METER, "", Shown.JSON),
    ):
        yield Metric(
            kind,
            handlers,
            "Nanoseconds in which the event loop was idle; its rates are shares of time.",
            alone(lambda: int(idle.idle_s * NS_PER_S)),
            own_name=own_name,
            shown=shown,
            event_type="percent",
            rate_unit_s=1 / NS_PER_S,
        )
    yield Metric(
        Kind.GAUGE,
        "kafka.network:type=Processor,name=IdlePercent",
        text,
        lambda: [((NETWORK_PROCESSOR,), idle.share)],
        ("networkProcessor",),
    )
