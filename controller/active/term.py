"""One term of office: what the subjects of `controller.active` share from an election to the resignation.

Owns nothing but the references. Everything in it is thrown away on resigning, so that no belief of one term reaches the
next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from controller.context import ControllerContext
from controller.events import BrokerModified, Event, TopicModified
from controller.fenced_store import FencedStore
from controller.settings import ControllerSettings
from controller.state_store import Watch, WatchEvent
from controller.transitions import Transitions


@dataclass(slots=True)
class Term:
    context: ControllerContext
    store: FencedStore
    transitions: Transitions
    settings: ControllerSettings
    enqueue: Callable[[Event], None]
    random: Random

    def on_change(self, event: Event) -> Watch:
        """A watch that puts `event` into the queue."""
        return lambda _: self.enqueue(event)

    def on_topic_change(self, change: WatchEvent) -> None:
        """The watch on the nodes of topics."""
        self.enqueue(TopicModified(change.path.rpartition("/")[2]))

    def on_broker_change(self, change: WatchEvent) -> None:
        """The watch on the registrations of brokers."""
        self.enqueue(BrokerModified(int(change.path.rpartition("/")[2])))
