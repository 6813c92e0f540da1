"""Counts and times of requests, for each request name (`RequestMetrics` of Kafka).

Owns: what is counted of a request, and how its time splits. Must not know: how metrics are shown.

The time of a request, from the moment its frame is complete until its response was handed to the socket::

    dispatched     decoded, handled, encoded      complete              write            handed over
    |--- queue ---|--- local ---|--- remote ---|--- response queue ---|--- send --------|

`remote` is what the request waited for others (`broker.loop.waits`): replicas, records to come, group members, the
controller. `local` is the rest, with waits for a disk or for a thread. A throttled client is muted after its response
(KIP-219); that time is `throttle`, and is part of the total.

Each request adds to counts and sums. Quantiles come from a sample of whole requests (`broker.loop.reservoir`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from broker.handlers.request_context import RequestContext
from broker.loop.reservoir import Reservoir
from broker.network.channel import Channel


class RequestParts(NamedTuple):
    """The parts of one request, or their sums: times in seconds, sizes in bytes."""

    total_s: float
    queue_s: float
    local_s: float
    remote_s: float
    throttle_s: float
    response_queue_s: float
    send_s: float
    size: int
    temporary_size: int
    conversion_s: float


class RequestMetrics:
    """All requests of one name."""

    __slots__ = (
        "_conversion_s",
        "_queue_s",
        "_remote_s",
        "_response_queue_s",
        "_sample",
        "_send_s",
        "_size",
        "_temporary_size",
        "_throttle_s",
        "_total_s",
        "counts",
        "errors",
    )

    def __init__(self, uniform: Callable[[], float]) -> None:
        """`uniform()` returns random numbers from 0 (included) to 1 (excluded)."""
        self.counts: Counter[int] = Counter()
        """Requests by API version."""
        self.errors: Counter[int] = Counter()
        """Error codes in responses, NONE included; a response has as many as it has fields for them."""
        self._sample: Reservoir[RequestParts] = Reservoir(uniform)
        self._total_s = self._queue_s = self._remote_s = self._throttle_s = self._response_queue_s = self._send_s = 0.0
        self._conversion_s = 0.0
        self._size = self._temporary_size = 0

    @property
    def count(self) -> int:
        return self.counts.total()

    @property
    def sums(self) -> RequestParts:
        """The sums over all requests."""
        others_s = self._queue_s + self._remote_s + self._throttle_s + self._response_queue_s + self._send_s
        return RequestParts(
            self._total_s,
            self._queue_s,
            self._total_s - others_s,
            self._remote_s,
            self._throttle_s,
            self._response_queue_s,
            self._send_s,
            self._size,
            self._temporary_size,
            self._conversion_s,
        )

    @property
    def sample(self) -> list[RequestParts]:
        """A sample of the requests, in which old ones fade."""
        return self._sample.values()

    def add(self, request: ServedRequest, now_s: float, sending_since_s: float) -> None:
        """Add a request whose response was handed to the socket; see `broker.network.channel.Answered`."""
        self.counts[request.api_version] += 1
        throttle_s = request.mute_ms / 1000
        total_s = now_s - request.received_s + throttle_s
        response_queue_s = sending_since_s - request.completed_s
        send_s = now_s - sending_since_s
        self._total_s += total_s
        self._response_queue_s += response_queue_s
        self._send_s += send_s
        self._size += request.size
        if request.waited_s or request.queue_s or throttle_s or request.temporary_size or request.conversion_s:
            self._queue_s += request.queue_s
            self._remote_s += request.waited_s
            self._throttle_s += throttle_s
            self._temporary_size += request.temporary_size
            self._conversion_s += request.conversion_s
        if self._sample.is_due(now_s):
            local_s = request.completed_s - request.received_s - request.queue_s - request.waited_s
            parts = RequestParts(
                total_s,
                request.queue_s,
                local_s,
                request.waited_s,
                throttle_s,
                response_queue_s,
                send_s,
                request.size,
                request.temporary_size,
                request.conversion_s,
            )
            self._sample.add(parts, now_s)


class ServedRequest(RequestContext):
    """A request with its times, in monotonic seconds."""

    queue_s = 0.0
    """How long it waited before it was decoded."""
    errors: Counter[int] | None = None
    """The error codes in its response; None stands for `success_count` times NONE."""
    success_count = 0
    completed_s = 0.0
    """When its response was encoded; for a request that expects none, when it was handled."""

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        channel: Channel,
        metrics: RequestMetrics,
        size: int,
        received_s: float,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.channel = channel
        self.metrics = metrics
        self.size = size
        """Bytes of its frame without the length."""
        self.received_s = received_s

    def sent(self, now_s: float, sending_since_s: float) -> None:
        """Part of `Answered`."""
        self.metrics.add(self, now_s, sending_since_s)
