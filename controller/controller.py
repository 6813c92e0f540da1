"""The controller of one broker: takes part in elections, and while it is elected decides for the cluster.

Owns the terms of office, and the public calls, which put an event into the one queue and wait. Must not know how events
are handled (`controller.active`) nor how brokers are reached (`BrokerChannels`).

Invariants: everything that an elected controller believes lives in its term and is thrown away with it. A term ends
when another broker is elected, the session expires, or a handler fails unexpectedly: then what is in memory may differ
from the store, and the next term reads everything afresh.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from controller.active.controller import ActiveController
from controller.active.term import Term
from controller.broker_channels import BrokerChannels
from controller.clock import Clock
from controller.context import ControllerContext
from controller.election_node import NO_CONTROLLER, ControllerNode, Won
from controller.event_queue import EventQueue
from controller.events import (
    AllocateProducerIds,
    AlterPartition,
    AlterReassignments,
    ControlledShutdown,
    ControllerChanged,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    Event,
    ListReassignments,
    RebalanceDue,
    SessionExpired,
    UncleanElectionEnabled,
)
from controller.fenced_store import ControllerMoved, FencedStore
from controller.model import ApiError, ReplicaAssignment, TopicPartition
from controller.sender import Sender
from controller.settings import ControllerSettings, ControllerStatistics
from controller.state_store import SessionExpired as StoreSessionExpired
from controller.state_store import StateStore, StoreUnavailable, WatchEvent
from controller.topic_creation import TopicResult
from controller.transitions import Transitions
from controller.turns import Pace, Turns
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic

logger = logging.getLogger("kafka.controller.KafkaController")

NO_EPOCH = -1

# A term that ends in an unexpected failure is followed by another try, after a pause that doubles up to the maximum.
RETRY_PAUSE_SECONDS_MIN = 0.1
RETRY_PAUSE_SECONDS_MAX = 10.0

FIRST_REBALANCE_SECONDS = 5

# Deleting is mostly a matter of milliseconds, and a client that creates the topic again at once should succeed.
DELETION_WAIT_SECONDS_MAX = 1.0


@dataclass(slots=True)
class _Office:
    """What this broker holds while it is controller."""

    won: Won
    context: ControllerContext
    active: ActiveController
    sender: Sender
    rebalance_timer: asyncio.TimerHandle | None = None


class Controller:
    """One broker's part in controlling the cluster. Every call is safe from any task of the event loop."""

    def __init__(
        self,
        broker_id: int,
        store: StateStore,
        channels: BrokerChannels,
        settings: ControllerSettings,
        clock: Clock,
        random_source: Random,
        new_pace: Callable[[], Pace],
    ) -> None:
        """`store` is open, and the broker is registered in it before `start`.

        `new_pace()` is the pace of one event, which gives way to other work on the event loop when its slice is over.
        """
        self.broker_id = broker_id
        self.statistics = ControllerStatistics()
        self._store = store
        self._channels = channels
        self._settings = settings
        self._random = random_source
        self._turns = Turns(new_pace)
        self._node = ControllerNode(broker_id, store, clock)
        self._queue = EventQueue(self._process, clock, self.statistics)
        self._controller_id = NO_CONTROLLER
        self._office: _Office | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_pause_seconds = RETRY_PAUSE_SECONDS_MIN
        self._deletions_awaited: dict[asyncio.Future[None], frozenset[str]] = {}

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take part in elections. Returns when there is a controller; if it is this one, this broker has been told all.

        Raises KafkaError when the store cannot be used; `stop` is still to be called.
        """
        self._store.on_session_expired(self._session_expired)
        self._queue.start()
        await self.rejoin()
        if self._office is not None:
            await self._office.sender.settle(self.broker_id)

    async def rejoin(self) -> None:
        """Take part again, after the store was opened anew and the broker registered for the new session."""
        await self._queue.ask(ControllerChanged())

    async def stop(self) -> None:
        """Resign and take no part any more. The nodes go with the store's session."""
        await self._queue.stop()
        if self._retry is not None:
            self._retry.cancel()
        self._resign()

    def reconfigure(self, settings: ControllerSettings) -> None:
        """Take over changed configuration values, from the next event on."""
        self._settings = settings
        if self._office is not None:
            self._office.active.reconfigure(settings)

    # -- what is known of the controller ---------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._office is not None

    @property
    def controller_id(self) -> int:
        """The broker that is controller as far as this one knows, or -1."""
        return self._controller_id

    @property
    def epoch(self) -> int:
        """The controller epoch while this broker is controller, else -1."""
        return NO_EPOCH if self._office is None else self._office.won.epoch

    def gauges(self) -> dict[str, Callable[[], int]]:
        """Kafka's controller gauges by name; where another broker is controller only the event queue's and its own.

        Each is computed when it is asked.
        """
        active = {} if self._office is None else self._office.active.gauges()
        return {
            "EventQueueSize": lambda: self._queue.size,
            "ActiveControllerCount": lambda: int(self.is_active),
            **active,
        }

    # -- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Create topics; one result an entry, in order. What succeeded is durable and has been sent to the brokers.

        This and all calls below raise KafkaError(NOT_CONTROLLER) where this broker is not.
        """
        return cast(list[TopicResult], await self._queue.ask(CreateTopics(topics, validate_only)))

    async def create_partitions(
        self, topics: Sequence[CreatePartitionsTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Grow topics; one result a name, in order."""
        return cast(list[TopicResult], await self._queue.ask(CreatePartitions(topics, validate_only)))

    async def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """Delete topics; one result a name, in order. Success means that they go for good, even after a crash.

        They are gone already when this returns, unless a broker that holds them is down or slow.
        """
        results = cast(list[TopicResult], await self._queue.ask(DeleteTopics(names)))
        await self._await_deletion(frozenset(result.name for result in results if not result.error_code))
        return results

    # -- partitions ------------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, ApiError]:
        """Elect leaders of `partitions`, or with None wherever one is needed; one result a partition."""
        event = ElectLeaders(election_type, partitions)
        return cast(dict[TopicPartition, ApiError], await self._queue.ask(event))

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """A leader reports in-sync replicas; `version` is the request's. Errors of the whole request are raised."""
        return cast(AlterPartitionResponse, await self._queue.ask(AlterPartition(request, version)))

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, ApiError]:
        """Begin to move partitions to other brokers, or with None cancel the move; one result a partition."""
        return cast(dict[TopicPartition, ApiError], await self._queue.ask(AlterReassignments(targets)))

    async def list_partition_reassignments(
        self, partitions: set[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Moves that are under way, of `partitions` or with None of all."""
        return cast(dict[TopicPartition, ReplicaAssignment], await self._queue.ask(ListReassignments(partitions)))

    def enable_unclean_election(self, topic: str | None) -> None:
        """unclean.leader.election.enable was switched on, for a topic or with None for all: retry the leaderless."""
        self._queue.put(UncleanElectionEnabled(topic))

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """A block of producer ids that nobody was given before."""
        return cast(range, await self._queue.ask(AllocateProducerIds(broker_id, broker_epoch)))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership off a broker that wants to stop; return what it still leads. Epoch -1 is not checked."""
        event = ControlledShutdown(broker_id, broker_epoch)
        return cast(list[TopicPartition], await self._queue.ask(event))

    # -- processing ------------------------------------------------------------------------------------------------

    async def _process(self, event: Event) -> object:
        """Process one event. Raises KafkaError and nothing else, whatever happens."""
        try:
            return await self._dispatch(event)
        except KafkaError:
            raise
        except ControllerMoved as error:
            logger.warning("resigning: %s", error)
            self._resign()
            self._queue.put(ControllerChanged())
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from error
        except StoreSessionExpired as error:
            # Nothing can be tried before `rejoin`.
            self._lose_session()
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from error
        except StoreUnavailable as error:
            logger.error("resigning because %s could not be processed: %s", type(event).__name__, error)
            await self._give_up()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        except Exception as error:
            logger.exception("resigning because %s could not be processed", type(event).__name__)
            await self._give_up()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        finally:
            self._settle_deletions()

    async def _dispatch(self, event: Event) -> object:
        self._turns.begin()
        if isinstance(event, ControllerChanged):
            await self._follow_or_elect()
        elif isinstance(event, SessionExpired):
            self._lose_session()
        elif self._office is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        else:
            return await self._office.active.handle(event)
        return None

    # -- elections -------------------------------------------------------------------------------------------------

    async def _follow_or_elect(self) -> None:
        """See who is controller, and run for it when nobody is."""
        self._controller_id = await self._node.current(self._controller_changed)
        if self._office is not None and self._controller_id != self.broker_id:
            logger.info("resigning: the controller is %d now", self._controller_id)
            self._resign()
        if self._office is None and self._retry is None and await self._is_vacant():
            won = await self._node.elect()
            if won is not None:
                await self._take_office(won)
            self._controller_id = await self._node.current(self._controller_changed)

    async def _is_vacant(self) -> bool:
        if self._controller_id == self.broker_id:
            # Resigning could not take the node away, or it is that of an earlier session, which will end.
            return await self._node.remove_leftover()
        return self._controller_id == NO_CONTROLLER

    def _controller_changed(self, _: WatchEvent) -> None:
        self._queue.put(ControllerChanged())

    def _session_expired(self) -> None:
        self._queue.drop_all()
        self._queue.put(SessionExpired())

    def _lose_session(self) -> None:
        logger.warning("the session with the metadata store has expired")
        self._resign()
        self._controller_id = NO_CONTROLLER

    async def _take_office(self, won: Won) -> None:
        logger.info("broker %d is controller of epoch %d", self.broker_id, won.epoch)
        office = self._office = self._equip(won)
        self._schedule_rebalance(office, FIRST_REBALANCE_SECONDS)
        await office.active.take_over()
        self._retry_pause_seconds = RETRY_PAUSE_SECONDS_MIN

    def _equip(self, won: Won) -> _Office:
        context = ControllerContext(won.epoch)

        def answered(event: Event) -> None:
            # The answer to what an earlier term sent means nothing in this one.
            if self._office is office:
                self._queue.put(event)

        store = FencedStore(self._store, won.epoch, won.epoch_version, self._turns)
        sender = Sender(self._channels, answered)
        transitions = Transitions(
            self.broker_id, context, store, sender.send, self._settings, self.statistics, self._turns
        )
        term = Term(context, store, transitions, self._settings, self._queue.put, self._random, self._turns)
        office = _Office(won, context, ActiveController(term), sender)
        return office

    def _resign(self) -> None:
        """Forget everything about being controller."""
        if self._office is not None:
            office, self._office = self._office, None
            office.sender.close()
            if office.rebalance_timer is not None:
                office.rebalance_timer.cancel()

    async def _give_up(self) -> None:
        """Resign for good reason: let another be elected, and try again in a while."""
        office = self._office
        self._resign()
        if self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(self._retry_pause_seconds, self._try_again)
            self._retry_pause_seconds = min(self._retry_pause_seconds * 2, RETRY_PAUSE_SECONDS_MAX)
        if office is not None:
            try:
                await self._node.resign(office.won)
            except StoreUnavailable as error:
                logger.error("cannot remove the controller's node, which goes with the session: %s", error)
            except Exception:
                logger.exception("cannot remove the controller's node; it goes with the session")

    def _try_again(self) -> None:
        self._retry = None
        self._queue.put(ControllerChanged())

    def _schedule_rebalance(self, office: _Office, seconds: float) -> None:
        if self._settings.auto_leader_rebalance_enable:
            office.rebalance_timer = asyncio.get_running_loop().call_later(seconds, self._rebalance, office)

    def _rebalance(self, office: _Office) -> None:
        self._queue.put(RebalanceDue())
        self._schedule_rebalance(office, self._settings.leader_imbalance_check_interval_seconds)

    # -- deletions -------------------------------------------------------------------------------------------------

    async def _await_deletion(self, topics: frozenset[str]) -> None:
        """Wait until `topics` are gone or known to take longer."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions_awaited[done] = topics
        self._settle_deletions()
        await asyncio.wait([done], timeout=DELETION_WAIT_SECONDS_MAX)
        self._deletions_awaited.pop(done, None)

    def _settle_deletions(self) -> None:
        under_way: set[str] = set()
        if self._office is not None:
            context = self._office.context
            under_way = context.topics_to_delete - context.topics_ineligible_for_deletion
        for done, topics in self._deletions_awaited.items():
            if not done.done() and not topics & under_way:
                done.set_result(None)
