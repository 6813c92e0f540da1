"""What tests change beneath a broker: its disk, its responses, and when it removes records.

Owns the arguments of these commands. Must not know processes: `_control` sends a command to each one that hosts
brokers, and each performs it by itself (`tools.launch.fixture`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from milena_broker.testing import arguments
from milena_broker.testing.steps import Change, Steps, blocking

__tracebackhide__ = True

_fault_numbers: Final = count(1)


class Fault(Change):
    """A fault of requests to come. As a context manager it ends at the end of the block."""

    def __init__(self, number: int, undo: Callable[[], object]) -> None:
        super().__init__(undo)
        self.number: Final = number
        """Names the fault to the broker."""


class Controls(ABC):
    """Controls of brokers. Methods raise BrokerError, and TypeError and ValueError for wrong arguments."""

    @abstractmethod
    def _control(self, command: str, **arguments: object) -> list[Any]:
        """Run a command in each process that hosts brokers, and return its results. Raises BrokerError."""

    def slow_disk(self, delay_ms: float = 20.0) -> Change:
        """Let each write and sync take longer, until it is called with 0, or the end of a `with` block."""
        self._control("slow_disk", delay_ms=arguments.number("delay_ms", delay_ms, "milliseconds"))
        return Change(lambda: self._control("slow_disk", delay_ms=0))

    # -- faults of requests --------------------------------------------------------------------------------------------

    def fail_next(
        self, api: str, error: str, *, times: int | None = 1, client_id: str | None = None, topic: str | None = None
    ) -> Fault:
        """Let the next requests of an API fail, without effect.

        Args:
            api: its name in Kafka's protocol, for example "Produce".
            error: the name of the error code, for example "NOT_LEADER_OR_FOLLOWER".
            times: how many requests; None for all until the end of a `with` block, or `clear_faults`.
            client_id: only requests of clients with this `client.id`.
            topic: only requests that name this topic. Their other topics do not fail. The API has to be one with a
                result for each topic, such as Produce, ListOffsets or OffsetCommit.
        """
        return self._add_fault(
            api, "fail", times, client_id, topic, error=arguments.text("error", error, "the name of an error code")
        )

    def delay(
        self,
        api: str,
        delay_ms: float,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Let responses to requests of an API leave later; the request has its effect at once. See `fail_next`."""
        return self._add_fault(
            api, "delay", times, client_id, topic, delay_ms=arguments.number("delay_ms", delay_ms, "milliseconds")
        )

    def drop_connection(
        self,
        api: str,
        *,
        is_served: bool = False,
        times: int | None = 1,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Let the next requests of an API end their connections. See `fail_next`.

        With `is_served` the request has its effect first, and only its response is lost.
        """
        action = "drop_response" if arguments.flag("is_served", is_served) else "drop"
        return self._add_fault(api, action, times, client_id, topic)

    @blocking
    def fault_count(self, fault: Fault) -> Steps[int]:
        """Return how many requests a fault has met."""
        if not isinstance(fault, Fault):
            raise TypeError(
                f"fault is {arguments.shown(fault)}: expected what fail_next, delay or drop_connection returns"
            )
        counts = yield partial(self._control, "fault_count", number=fault.number)
        return sum(counts)

    @blocking
    def clear_faults(self) -> Steps[None]:
        """End all faults of requests."""
        yield partial(self._control, "clear_faults")

    def _add_fault(
        self, api: str, action: str, times: int | None, client_id: str | None, topic: str | None, **options: object
    ) -> Fault:
        number = next(_fault_numbers)
        self._control(
            "add_fault",
            number=number,
            api=arguments.text("api", api, "the name of an API, for example 'Produce'"),
            action=action,
            times=arguments.optional_integer("times", times, 1),
            client_id=None if client_id is None else arguments.text("client_id", client_id),
            topic=None if topic is None else arguments.text("topic", topic),
            **options,
        )
        return Fault(number, lambda: self._control("remove_fault", number=number))

    # -- removal of records --------------------------------------------------------------------------------------------

    @blocking
    def run_retention(self) -> Steps[int]:
        """Apply the retention of all topics now, and not after `log.retention.check.interval.ms`.

        Returns how many segments were removed. A segment is removed as a whole, as in Kafka.
        """
        removed = yield partial(self._control, "run_retention")
        return sum(removed)

    @blocking
    def run_compaction(self, topic: str) -> Steps[int]:
        """Compact all partitions of a topic now, however few of their records are new; return how many partitions were.

        The active segments are closed first, so that the newest records are compacted too. `min.compaction.lag.ms`
        still protects records.
        """
        compacted = yield partial(self._control, "run_compaction", topic=arguments.text("topic", topic))
        return sum(compacted)
