"""One term: the objects that the handlers in `controller.active` share from election to resignation.

Owns the references, and the watches that queue events for changes in the store. Everything here is dropped on
resignation, so that no state of one term reaches the next. Only watches stay; they mean the same in every term.
"""

from collections.abc import Callable
from random import Random

from base.dataclass import dataclass
from base.pause import Pause
from controller.active.fenced_store import FencedStore
from controller.active.sender import Sender
from controller.active.transitions import Transitions
from controller.machine.context import ControllerContext
from controller.machine.events import BrokerModified, Event, TopicModified
from controller.machine.settings import ControllerSettings
from controller.store.state_store import Watch, WatchEvent


@dataclass(frozen=True, slots=True)
class _Queue:
    """A watch that queues an event. Watches for the same event are equal, so a store arms only one of them."""

    put: Callable[[Event], None]
    event: Event

    def __call__(self, _: WatchEvent) -> None:
        self.put(self.event)


@dataclass(frozen=True, slots=True)
class _QueueForNode:
    """A watch whose event depends on which of many nodes changed."""

    put: Callable[[Event], None]
    event_of: Callable[[str], Event]

    def __call__(self, change: WatchEvent) -> None:
        self.put(self.event_of(change.path.rpartition("/")[2]))


@dataclass(slots=True)
class Term:
    """The objects of one term. `put` is the same in every term of a controller."""

    context: ControllerContext
    store: FencedStore
    transitions: Transitions
    sender: Sender
    settings: ControllerSettings
    put: Callable[[Event], None]
    put_later: Callable[[float, Event], None]
    """Queues an event after some seconds, also if this term has ended by then."""
    random: Random
    pause: Pause

    def reconfigure(self, settings: ControllerSettings) -> None:
        """Apply changed settings from now on."""
        self.settings = settings
        self.transitions.reconfigure(settings)

    def on_change(self, event: Event) -> Watch:
        """Return a watch that queues `event`."""
        return _Queue(self.put, event)

    def on_topic_change(self) -> Watch:
        """Return a watch for topic nodes."""
        return _QueueForNode(self.put, TopicModified)

    def on_broker_change(self) -> Watch:
        """Return a watch for broker registrations."""
        return _QueueForNode(self.put, _broker_modified)


def _broker_modified(name: str) -> BrokerModified:
    return BrokerModified(int(name))
