"""A console in a browser, and clients of its broker: what the tests of pages share.

Owns how a page is opened, and the two kinds of brokers: a process, and one in the test's process whose console a test
puts into states that take hours, or thousands of topics, to come about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.console import assembly
from broker.console.console import Console
from tests.support.browser import Browser
from tests.support.in_process import LISTENER, InProcessBroker, running_broker
from tests.support.loop_thread import LoopThread, loop_thread

SETTINGS: Mapping[str, str] = {
    "metrics.http.listener": "127.0.0.1:0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}

FOLLOW_LINK = """
const [address, page] = arguments;
if (location.origin !== address || location.hash === page || document.querySelector("dialog")) return false;
delete document.body.dataset.ready;
location.hash = page;
return true;
"""


class Site:
    """A broker with a console, a browser that shows it, and clients that produce to it."""

    def __init__(self, browser: Browser, bootstrap: str, address: str) -> None:
        self.browser = browser
        self.address = address
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
            future.result()

    def produce(self, topic: str, *values: bytes | str, partition: int = 0, **settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for number, value in enumerate(values):
            producer.produce(topic, value, key=f"key-{number}", partition=partition, headers=[("source", b"test")])
        assert producer.flush(10) == 0

    def consumer(self, group: str, **settings: object) -> Consumer:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False, **settings})  # fmt: skip

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        consumer = self.consumer(group)
        consumer.commit(offsets=[TopicPartition(topic, *each) for each in offsets.items()], asynchronous=False)
        consumer.close()

    def open(self, page: str) -> Browser:
        """Show a page, as its link does if there is no obstacle, and wait until it is complete.

        To follow a link takes a fifth of the processor time that it takes to load the console.
        """
        if not self.browser.script(FOLLOW_LINK, self.address, f"#/{page}"):
            return self.load(page)
        return self._complete(page)

    def load(self, page: str) -> Browser:
        """Load the console with a page, and wait until it is complete."""
        self.browser.leave()
        self.browser.go(f"{self.address}/#/{page}")
        return self._complete(page)

    def _complete(self, page: str) -> Browser:
        browser = self.browser
        browser.wait(lambda: browser.script("return document.body?.dataset.ready ?? ''") == f"#/{page}", page)
        return browser


class Hosted(Site):
    """A site whose broker runs in the test's process: `run` executes coroutines in its event loop."""

    def __init__(self, browser: Browser, broker: InProcessBroker, console: Console, thread: LoopThread) -> None:
        super().__init__(
            browser, f"127.0.0.1:{console.sockets.ports[LISTENER]}", f"http://127.0.0.1:{broker.metrics_port}"
        )
        self.broker = broker
        self.console = console
        self.run = thread.run
        self.call = thread.call


@contextmanager
def built_consoles() -> Iterator[list[Console]]:
    """Yield the list of the consoles that brokers of this process build. They take no samples of their own."""
    built: list[Console] = []

    class Noted(Console):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            built.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "Console", Noted)
        patch.setattr(assembly, "sampling_jobs", lambda _: [])
        yield built


@contextmanager
def hosted(
    browser: Browser,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Iterator[Hosted]:
    """Run a broker with a console in an event loop of this process."""
    with (
        built_consoles() as built,
        loop_thread(new_loop) as thread,
        thread.entered(running_broker(folder, {**SETTINGS, **(settings or {})})) as broker,
    ):
        site = Hosted(browser, broker, built[0], thread)
        try:
            yield site
        finally:
            browser.leave()
            del site.admin  # ends its threads, although functions of the test still refer to the site
