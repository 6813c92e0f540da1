"""The one event queue of a controller, and the one task that processes its events.

Owns the order and the waiting callers. Must not know what events mean. Invariant: events are processed one at a time,
each to completion, in the order in which they were put; a caller always gets a result or an error. The event of a
caller that has left before its turn is dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from base.clock import Clock
from base.dataclass import dataclass
from controller.machine.events import Event
from controller.machine.settings import ControllerStatistics, EventTimes, RecentEvent
from protocol.errors import ErrorCode, KafkaError, without_frames

STOP_TIMEOUT_SECONDS = 5.0


@dataclass(slots=True)
class _Queued:
    event: Event | None
    """None once its caller has left."""
    enqueued_ms: int
    result: asyncio.Future[object] | None = None

    def fail(self, error: KafkaError) -> None:
        if self.result is not None and not self.result.done():
            self.result.set_exception(without_frames(error))


class EventQueue:
    def __init__(
        self, process: Callable[[Event], Awaitable[object]], clock: Clock, statistics: ControllerStatistics
    ) -> None:
        """`process` raises KafkaError, which is passed to the caller, and nothing else."""
        self._process = process
        self._clock = clock
        self._statistics = statistics
        self._waiting: asyncio.Queue[_Queued | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return self._waiting.qsize()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="controller-events")

    async def stop(self) -> None:
        """Finish the event that is being processed and drop the others.

        An event that takes longer than STOP_TIMEOUT_SECONDS, as while the store is away, is interrupted. This is no
        worse than the end of the process: the next controller completes it.
        """
        self.drop_all()
        if self._task is not None:
            task, self._task = self._task, None
            self._waiting.put_nowait(None)
            await asyncio.wait([task], timeout=STOP_TIMEOUT_SECONDS)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.drop_all()

    def put(self, event: Event) -> None:
        self._waiting.put_nowait(_Queued(event, self._clock.now_ms()))

    async def ask(self, event: Event) -> object:
        """Put the event, wait, and return its result.

        Raises:
            KafkaError: the error of the event; NOT_CONTROLLER if the event was dropped.
        """
        if self._task is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        queued = _Queued(event, self._clock.now_ms(), result)
        self._waiting.put_nowait(queued)
        try:
            return await result
        finally:
            queued.event = None  # large perhaps, and the queue stands still while the store is away
            del result  # else its exception and this frame would refer to each other

    def drop_all(self) -> None:
        """Drop all waiting events; their callers get NOT_CONTROLLER."""
        while not self._waiting.empty():
            queued = self._waiting.get_nowait()
            if queued is not None:
                queued.fail(KafkaError(ErrorCode.NOT_CONTROLLER))

    async def _run(self) -> None:
        while (queued := await self._waiting.get()) is not None:
            event = queued.event
            if event is None:
                continue
            started_ms = self._clock.now_ms()
            failure = ""
            self._statistics.present = event.statistic
            self._statistics.queue_time.add(started_ms - queued.enqueued_ms)
            try:
                result = await self._process(event)
            except KafkaError as error:
                failure = error.code.name
                queued.fail(error)
            except asyncio.CancelledError:
                queued.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
                raise
            else:
                if queued.result is not None and not queued.result.done():
                    queued.result.set_result(result)
            self._statistics.present = ""
            duration_ms = self._clock.now_ms() - started_ms
            if event.is_recorded:
                recent = RecentEvent(type(event).__name__, started_ms, duration_ms, failure)
                self._statistics.recent.append(recent)
            if name := event.statistic:
                times = self._statistics.by_event.setdefault(name, EventTimes())
                times.add(duration_ms)
