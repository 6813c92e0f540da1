"""One term of office: what the subjects of `controller.active` share from an election to the resignation.

Owns nothing but the references, and the watches through which the store's changes get into the queue. Everything in it
is thrown away on resigning, so that no belief of one term reaches the next; only watches stay, and they mean the same
in every term.
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
from controller.turns import Turns


@dataclass(frozen=True, slots=True)
class _Queue:
    """A watch that queues an event. Those for the same event are equal, so a store arms only one of them."""

    put: Callable[[Event], None]
    event: Event

    def __call__(self, _: WatchEvent) -> None:
        self.put(self.event)


@dataclass(frozen=True, slots=True)
class _QueueForNode:
    """The same where the event depends on which of many nodes changed."""

    put: Callable[[Event], None]
    event_of: Callable[[str], Event]

    def __call__(self, change: WatchEvent) -> None:
        self.put(self.event_of(change.path.rpartition("/")[2]))


@dataclass(slots=True)
class Term:
    """`put` is the same for every term of a controller."""

    context: ControllerContext
    store: FencedStore
    transitions: Transitions
    settings: ControllerSettings
    put: Callable[[Event], None]
    random: Random
    turns: Turns

    def on_change(self, event: Event) -> Watch:
        """A watch that queues `event`."""
        return _Queue(self.put, event)

    def on_topic_change(self) -> Watch:
        """A watch for the nodes of topics."""
        return _QueueForNode(self.put, TopicModified)

    def on_broker_change(self) -> Watch:
        """A watch for the registrations of brokers."""
        return _QueueForNode(self.put, _broker_modified)


def _broker_modified(name: str) -> BrokerModified:
    return BrokerModified(int(name))
