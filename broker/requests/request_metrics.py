"""Counts and times of requests, for each request name (`RequestMetrics` of Kafka).

Owns: what is counted of a request, and how its time splits. Must not know: how metrics are shown.

The time of a request, from the moment its frame is complete until its response was handed to the socket::

    dispatched     decoded, handled, encoded      complete              write            handed over
    |--- queue ---|--- local ---|--- remote ---|--- response queue ---|--- send --------|

`remote` is the time that the request waited for others (`broker.loop.waits`): for replicas, new records, group members
or the controller. `local` is the rest, and includes waits for a disk or a thread. A throttled client is muted after its
response (KIP-219); that time is `throttle` and is part of the total.

Quantiles come from a sample of whole requests (`broker.loop.reservoir`). A served request only leaves its figures. They
are added to counts, sums and sample together with those of other requests: when `SERVED_MAX` requests have been served,
or when somebody reads the metrics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from operator import add, sub
from typing import Final, NamedTuple

from broker.handlers.request_context import Extras, RequestContext
from broker.loop.reservoir import Reservoir
from broker.network.channel import Channel
from broker.requests.error_counts import NONE
from broker.requests.request_log import DEBUG, log_request, request_logger

SOFTWARE_MAX: Final = 100
"""How many clients are told apart in the counts of one API: clients choose their names."""
OTHER_SOFTWARE: Final = ("other", "other")
MS_PER_S: Final = 1000
NO_EXTRAS: Final = Extras()
SERVED_MAX: Final = 128
"""How many requests of one name are served before they are added up."""

_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class


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


class Served(NamedTuple):
    """The figures of one request whose response was handed to the socket."""

    api_version: int
    success_count: int
    """How many times its response has the error code NONE."""
    size: int
    received_s: float
    completed_s: float
    sending_s: float
    """When its response began to be written."""
    sent_s: float
    extras: Extras | None

    @property
    def parts(self) -> RequestParts:
        extras = self.extras or NO_EXTRAS
        throttle_s = extras.mute_ms / MS_PER_S
        return RequestParts(
            self.sent_s - self.received_s + throttle_s,
            extras.queue_s,
            self.completed_s - self.received_s - extras.queue_s - extras.waited_s,
            extras.waited_s,
            throttle_s,
            self.sending_s - self.completed_s,
            self.sent_s - self.sending_s,
            self.size,
            extras.temporary_size,
            extras.conversion_s,
        )


class RequestMetrics:
    """All requests of one name."""

    __slots__ = ("_counts", "_errors", "_sample", "_served", "_sums", "deprecated")

    def __init__(self, uniform: Callable[[], float]) -> None:
        """`uniform()` returns random numbers from 0 (included) to 1 (excluded)."""
        self.deprecated: defaultdict[tuple[int, str, str], int] = defaultdict(int)
        """Requests of deprecated versions, by version and by name and version of the client's library."""
        self._served: list[Served] = []  # requests that are not added up yet
        self._counts: Counter[int] = Counter()
        self._errors: Counter[int] = Counter()
        self._sample: Reservoir[RequestParts] = Reservoir(uniform)
        self._sums = RequestParts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0)

    @property
    def counts(self) -> Mapping[int, int]:
        """Requests by API version."""
        self._add_up()
        return self._counts

    @property
    def count(self) -> int:
        self._add_up()
        return self._counts.total()

    @property
    def errors(self) -> Mapping[int, int]:
        """Error codes in responses, NONE included; a response has as many as it has fields for them."""
        self._add_up()
        return self._errors

    @property
    def sample(self) -> Reservoir[RequestParts]:
        """A sample of the requests, in which old ones fade."""
        self._add_up()
        return self._sample

    @property
    def sums(self) -> RequestParts:
        """The sums over all requests."""
        self._add_up()
        return self._sums

    def count_deprecated(self, context: RequestContext) -> None:
        """Count a request of a deprecated version."""
        key = (context.api_version, *context.channel.software)
        if len(self.deprecated) >= SOFTWARE_MAX and key not in self.deprecated:
            key = (context.api_version, *OTHER_SOFTWARE)
        self.deprecated[key] += 1

    def add(self, served: Served) -> None:
        """Add one request."""
        waiting = self._served
        waiting.append(served)
        if len(waiting) == SERVED_MAX:
            self._add_up()

    def _add_up(self) -> None:
        if not self._served:
            return
        served, self._served = self._served, []
        # By columns, no step of the interpreter is spent on a usual request.
        versions, success_counts, sizes, received, completed, sending, sent, each_extras = zip(*served, strict=True)
        self._counts.update(versions)
        self._errors[NONE] += sum(success_counts)
        queue_s = remote_s = throttle_s = conversion_s = 0.0
        temporary_size = 0
        for extras in filter(None, each_extras):
            self._errors.update(extras.other_codes or {})
            queue_s += extras.queue_s
            remote_s += extras.waited_s
            throttle_s += extras.mute_ms / MS_PER_S
            conversion_s += extras.conversion_s
            temporary_size += extras.temporary_size
        served_s = sum(map(sub, completed, received))
        response_queue_s = sum(map(sub, sending, completed))
        send_s = sum(map(sub, sent, sending))
        parts = RequestParts(
            served_s + response_queue_s + send_s + throttle_s,
            queue_s,
            served_s - queue_s - remote_s,
            remote_s,
            throttle_s,
            response_queue_s,
            send_s,
            sum(sizes),
            temporary_size,
            conversion_s,
        )
        self._sums = RequestParts(*map(add, self._sums, parts))
        now_s = sent[-1]
        for position in self._sample.due_among(len(served), now_s):
            self._sample.add(served[position].parts, now_s)


class ServedRequest(RequestContext):
    """A request with its times, in monotonic seconds."""

    is_recorded = False
    """Whether it counts towards the quotas of its client."""
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
        self.extras = None
        self.metrics = metrics
        self.size = size
        """Bytes of its frame without the length."""
        self.received_s = received_s
        self.success_count = 0
        """How many times its response has the error code NONE."""
        if request_logger.isEnabledFor(DEBUG):
            self.with_extras().is_logged = True

    def sent(self, now_s: float, sending_since_s: float | None) -> None:
        """Part of `CompletedRequest`: add the request to its metrics."""
        self.channel.request_count += 1
        completed_s = self.completed_s
        served = _new_tuple(
            Served,
            (
                self.api_version,
                self.success_count,
                self.size,
                self.received_s,
                completed_s,
                completed_s if sending_since_s is None else sending_since_s,
                now_s,
                self.extras,
            ),
        )
        self.metrics.add(served)
        extras = self.extras
        if extras is not None and extras.is_logged:
            log_request(self, _times_ms(served.parts), extras.details, extras.response_details)
            extras.details = extras.response_details = None  # the metrics keep `extras` for a while


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
