"""Order, results and errors of the queue."""

import asyncio
from weakref import ref

import pytest

from controller.event_queue import EventQueue
from controller.machine.events import BrokersChanged, ControllerChanged, Event, TopicModified, TopicsChanged
from controller.machine.settings import ControllerStatistics
from protocol.errors import ErrorCode, KafkaError
from tests.support.manual_clock import ManualClock


async def test_events_are_processed_one_at_a_time_in_order() -> None:
    running: list[Event] = []
    done: list[Event] = []

    async def process(event: Event) -> object:
        assert not running
        running.append(event)
        await asyncio.sleep(0)
        running.remove(event)
        done.append(event)
        return len(done)

    statistics = ControllerStatistics()
    queue = EventQueue(process, ManualClock(), statistics)
    queue.start()
    queue.put(BrokersChanged())
    results = await asyncio.gather(queue.ask(TopicsChanged()), queue.ask(TopicModified("t")))
    assert list(results) == [2, 3]
    assert done == [BrokersChanged(), TopicsChanged(), TopicModified("t")]
    assert statistics.by_event["TopicChange"].count == 2
    await queue.stop()


async def test_error_reaches_the_caller_and_the_queue_continues() -> None:
    async def process(event: Event) -> object:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    queue = EventQueue(process, ManualClock(), ControllerStatistics())
    queue.start()
    queue.put(BrokersChanged())
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            await queue.ask(TopicsChanged())
        assert caught.value.code == ErrorCode.INVALID_REQUEST
    await queue.stop()


async def test_what_a_caller_that_has_left_wanted_is_freed_and_not_done() -> None:
    """Callers ask again and again while the store is away, and an event may create thousands of topics."""
    go_on = asyncio.Event()
    done: list[Event] = []

    async def process(event: Event) -> object:
        done.append(event)
        await go_on.wait()
        return None

    class Name(str):
        __slots__ = ("__weakref__",)

    statistics = ControllerStatistics()
    queue = EventQueue(process, ManualClock(), statistics)
    queue.start()
    first = asyncio.ensure_future(queue.ask(TopicsChanged()))
    name = Name("t")
    kept, leaving = ref(name), asyncio.ensure_future(queue.ask(TopicModified(name)))
    del name
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    del leaving
    assert kept() is None
    go_on.set()
    await first
    await queue.ask(ControllerChanged())
    assert done == [TopicsChanged(), ControllerChanged()]
    assert len(statistics.recent) == len(done)
    await queue.stop()


async def test_stopping_interrupts_an_event_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.event_queue.STOP_TIMEOUT_SECONDS", 0)

    async def process(event: Event) -> object:
        return await asyncio.Event().wait()

    queue = EventQueue(process, ManualClock(), ControllerStatistics())
    queue.start()
    asked = asyncio.ensure_future(queue.ask(TopicsChanged()))
    await asyncio.sleep(0)
    await queue.stop()
    with pytest.raises(KafkaError) as caught:
        await asked
    assert caught.value.code == ErrorCode.NOT_CONTROLLER


async def test_stopping_finishes_the_event_and_drops_the_rest() -> None:
    go_on = asyncio.Event()
    done: list[Event] = []

    async def process(event: Event) -> object:
        await go_on.wait()
        done.append(event)
        return None

    queue = EventQueue(process, ManualClock(), ControllerStatistics())
    queue.start()
    first = asyncio.ensure_future(queue.ask(ControllerChanged()))
    second = asyncio.ensure_future(queue.ask(TopicsChanged()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(queue.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert await first is None
    assert done == [ControllerChanged()]
    for dropped in (second, queue.ask(TopicsChanged())):
        with pytest.raises(KafkaError) as caught:
            await dropped
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
