"""Counts and times of requests, for each request name (`RequestMetrics` of Kafka).

Owns: what is counted of a request, and how its time splits. Must not know: how metrics are shown.

The time of a request, from the moment its frame is complete until its response was handed to the socket::

    dispatched     decoded, handled, encoded      complete              write            handed over
    |--- queue ---|--- local ---|--- remote ---|--- response queue ---|--- send --------|

`remote` is the time that the request waited for others (`broker.loop.waits`): for replicas, new records, group members
or the controller. `local` is the rest, and includes waits for a disk or a thread. A throttled client is muted after its
response (KIP-219); that time is `throttle` and is part of the total.

Each request adds to counts and sums. Quantiles come from a sample of whole requests (`broker.loop.reservoir`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.handlers.request_context import RequestContext
from broker.loop.reservoir import Reservoir
from broker.network.channel import Channel
from broker.requests.request_log import DEBUG, log_request, request_logger

SOFTWARE_MAX: Final = 100
"""How many clients are told apart in the counts of one API: clients choose their names."""
OTHER_SOFTWARE: Final = ("other", "other")


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
        "conversion_s",
        "counts",
        "deprecated",
        "errors",
        "queue_s",
        "remote_s",
        "response_queue_s",
        "sample",
        "send_s",
        "size",
        "temporary_size",
        "throttle_s",
        "total_s",
    )

    def __init__(self, uniform: Callable[[], float]) -> None:
        """`uniform()` returns random numbers from 0 (included) to 1 (excluded)."""
        self.counts: defaultdict[int, int] = defaultdict(int)
        """Requests by API version."""
        self.deprecated: defaultdict[tuple[int, str, str], int] = defaultdict(int)
        """Requests of deprecated versions, by version and by name and version of the client's library."""
        self.errors: defaultdict[int, int] = defaultdict(int)
        """Error codes in responses, NONE included; a response has as many as it has fields for them."""
        self.sample: Reservoir[RequestParts] = Reservoir(uniform)
        """A sample of the requests, in which old ones fade."""
        self.total_s = self.queue_s = self.remote_s = self.throttle_s = self.response_queue_s = self.send_s = 0.0
        self.conversion_s = 0.0
        self.size = self.temporary_size = 0

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def count_deprecated(self, context: RequestContext) -> None:
        """Count a request of a deprecated version."""
        key = (context.api_version, *context.channel.software)
        if len(self.deprecated) >= SOFTWARE_MAX and key not in self.deprecated:
            key = (context.api_version, *OTHER_SOFTWARE)
        self.deprecated[key] += 1

    @property
    def sums(self) -> RequestParts:
        """The sums over all requests."""
        others_s = self.queue_s + self.remote_s + self.throttle_s + self.response_queue_s + self.send_s
        return RequestParts(
            self.total_s,
            self.queue_s,
            self.total_s - others_s,
            self.remote_s,
            self.throttle_s,
            self.response_queue_s,
            self.send_s,
            self.size,
            self.temporary_size,
            self.conversion_s,
        )


class ServedRequest(RequestContext):
    """A request with its times, in monotonic seconds."""

    queue_s = 0.0
    """How long it waited before it was decoded."""
    errors: dict[int, int] | None = None
    """The error codes in its response; None stands for `success_count` times NONE."""
    success_count = 0
    is_recorded = False
    """Whether it counts towards the quotas of its client."""
    details: object = None
    """What it contains, for the request log."""
    response_details: object = None
    """What its response contains."""
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
        # Reading a default of the class through an instance costs several times as much as reading an attribute.
        self.waits_for = ""
        self.waited_s = self.queue_s = 0.0
        self.mute_ms = self.temporary_size = 0
        self.errors = None
        self.is_logged = request_logger.isEnabledFor(DEBUG)
        """Whether it gets a line in the request log; the level is read once per request."""

    def sent(self, now_s: float, sending_since_s: float | None) -> None:
        """Part of `CompletedRequest`: add the request to its metrics."""
        metrics = self.metrics
        metrics.counts[self.api_version] += 1
        self.channel.request_count += 1
        completed_s = self.completed_s
        total_s = now_s - self.received_s
        response_queue_s = throttle_s = 0.0
        send_s = now_s - completed_s
        metrics.size += self.size
        if sending_since_s is not None:
            response_queue_s = sending_since_s - completed_s
            send_s -= response_queue_s
            metrics.response_queue_s += response_queue_s
        metrics.send_s += send_s
        if self.mute_ms:
            throttle_s = self.mute_ms / 1000
            total_s += throttle_s
            metrics.throttle_s += throttle_s
        metrics.total_s += total_s
        if self.waited_s or self.queue_s or self.temporary_size:
            metrics.queue_s += self.queue_s
            metrics.remote_s += self.waited_s
            metrics.temporary_size += self.temporary_size
            metrics.conversion_s += self.conversion_s
        is_due = metrics.sample.is_due(now_s)
        if is_due or self.is_logged:
            parts = RequestParts(
                total_s,
                self.queue_s,
                completed_s - self.received_s - self.queue_s - self.waited_s,
                self.waited_s,
                throttle_s,
                response_queue_s,
                send_s,
                self.size,
                self.temporary_size,
                self.conversion_s,
            )
            if is_due:
                metrics.sample.add(parts, now_s)
            if self.is_logged:
                log_request(self, _times_ms(parts), self.details, self.response_details)


def _times_ms(parts: RequestParts) -> dict[str, float]:
    """Return the parts under the names that Kafka's request log gives them."""
    return {
        "totalTimeMs": 1000 * parts.total_s,
        "requestQueueTimeMs": 1000 * parts.queue_s,
        "localTimeMs": 1000 * parts.local_s,
        "remoteTimeMs": 1000 * parts.remote_s,
        "throttleTimeMs": 1000 * parts.throttle_s,
        "responseQueueTimeMs": 1000 * parts.response_queue_s,
        "sendTimeMs": 1000 * parts.send_s,
        "requestBytes": parts.size,
        "temporaryMemoryBytes": parts.temporary_size,
        "messageConversionsTime": 1000 * parts.conversion_s,
    }
