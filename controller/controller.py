"""The controller of one broker: takes part in elections, and makes the cluster's decisions while it is elected.

Owns the terms, and the public calls, which put an event into the one queue and wait. Must not know how events are
handled (`controller.active`) or how brokers are reached (`BrokerChannels`).

Invariants: all state of an elected controller belongs to its term and is dropped with it. A term ends when another
broker is elected, the session expires, or a handler fails unexpectedly. In the last case memory and store may differ,
so the next term reads everything again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import cast

from base.clock import Clock
from base.dataclass import dataclass
from base.pause import Pause
from base.topic_partition import TopicPartition
from controller.active.broker_channels import BrokerChannels
from controller.active.controller import ActiveController
from controller.active.fenced_store import ControllerMoved, FencedStore
from controller.active.sender import Sender
from controller.active.term import Term
from controller.active.transitions import Transitions
from controller.election_node import NO_CONTROLLER, ControllerNode, Won
from controller.event_queue import EventQueue
from controller.machine.context import ControllerContext
from controller.machine.events import (
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
    TopicUncleanElectionEnabled,
    UncleanElectionEnabled,
    UpdateFeatures,
)
from controller.machine.model import ApiError, FeatureChange, ReplicaAssignment
from controller.machine.settings import ControllerSettings, ControllerStatistics
from controller.machine.topic_creation import TopicResult
from controller.store.state_store import SessionExpired as StoreSessionExpired
from controller.store.state_store import StateStore, StoreUnavailable, WatchEvent
from controller.tree.paths import Undecodable
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic

logger = logging.getLogger("kafka.controller.KafkaController")

NO_EPOCH = -1

# After an unexpected failure this broker tries again, after a pause that doubles up to the maximum.
RETRY_PAUSE_SECONDS_MIN = 0.1
RETRY_PAUSE_SECONDS_MAX = 10.0

FIRST_REBALANCE_SECONDS = 5

# Most deletions take milliseconds, and a client that creates the topic again immediately should succeed.
DELETION_WAIT_SECONDS_MAX = 1.0


@dataclass(slots=True)
class _ActiveTerm:
    """The state of this broker while it is the controller."""

    won: Won
    context: ControllerContext
    active: ActiveController
    sender: Sender
    rebalance_timer: asyncio.TimerHandle | None = None


class Controller:
    """The controller of one broker. Every method may be called from any task of the event loop."""

    def __init__(
        self,
        broker_id: int,
        store: StateStore,
        channels: BrokerChannels,
        settings: ControllerSettings,
        clock: Clock,
        random_source: Random,
        pause: Pause,
    ) -> None:
        """Build the controller; `store` must be open and the broker registered before `start`.

        `pause` lets other work on the event loop run in the middle of an event. Events are still processed one after
        the other: in between only the event itself changes the controller's state.
        """
        self.broker_id = broker_id
        self.statistics = ControllerStatistics()
        self._store = store
        self._channels = channels
        self._settings = settings
        self._random = random_source
        self._pause = pause
        self._node = ControllerNode(broker_id, store, clock)
        self._queue = EventQueue(self._process, clock, self.statistics)
        self._controller_id = NO_CONTROLLER
        self._active_term: _ActiveTerm | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_pause_seconds = RETRY_PAUSE_SECONDS_MIN
        self._deletions_awaited: dict[asyncio.Future[None], frozenset[str]] = {}

    # -- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take part in elections and wait until the cluster has a controller.

        If it is this broker, also wait until this broker has responded to its own control requests.

        Raises:
            KafkaError: the store cannot be used; `stop` must still be called.
        """
        self._queue.start()
        await self.rejoin()
        if self._active_term is not None:
            await self._active_term.sender.settle(self.broker_id)

    async def session_expired(self) -> None:
        """Resign and drop all events: the session has expired. Elections follow after `rejoin`."""
        self._queue.drop_all()
        with suppress(KafkaError):  # not started, or stopping
            await self._queue.ask(SessionExpired())

    async def rejoin(self) -> None:
        """Take part in elections again, after the store was reopened and the broker registered in the new session."""
        await self._queue.ask(ControllerChanged())

    async def stop(self) -> None:
        """Resign and stop taking part in elections. The store deletes the nodes with its session."""
        await self._queue.stop()
        if self._retry is not None:
            self._retry.cancel()
        self._resign()

    def reconfigure(self, settings: ControllerSettings) -> None:
        """Apply changed configuration values from the next event on."""
        self._settings = settings
        if self._active_term is not None:
            self._active_term.active.reconfigure(settings)

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._active_term is not None

    @property
    def controller_id(self) -> int:
        """The id of the controller as far as this broker knows, or -1."""
        return self._controller_id

    @property
    def epoch(self) -> int:
        """The controller epoch while this broker is the controller, else -1."""
        return NO_EPOCH if self._active_term is None else self._active_term.won.epoch

    def gauges(self) -> dict[str, Callable[[], int]]:
        """Return Kafka's controller gauges by name; on other brokers only EventQueueSize and ActiveControllerCount.

        Each value is computed when its function is called.
        """
        active = {} if self._active_term is None else self._active_term.active.gauges()
        return {
            "EventQueueSize": lambda: self._queue.size,
            "ActiveControllerCount": lambda: int(self.is_active),
            **active,
        }

    def sums(self) -> dict[str, Callable[[], Iterator[int]]]:
        """Return Kafka's gauges over all partitions by name: each yields what one partition adds; empty elsewhere."""
        return {} if self._active_term is None else self._active_term.active.sums()

    # -- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Create topics; return one result per entry, in order.

        Topics that were created are durable, and their brokers were sent LeaderAndIsr.

        Raises:
            KafkaError: NOT_CONTROLLER if this broker is not the controller, here and in all calls below.
        """
        return cast(list[TopicResult], await self._queue.ask(CreateTopics(topics, validate_only)))

    async def create_partitions(
        self, topics: Sequence[CreatePartitionsTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Add partitions to topics; return one result per name, in order."""
        return cast(list[TopicResult], await self._queue.ask(CreatePartitions(topics, validate_only)))

    async def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """Delete topics; return one result per name, in order. Success means that the deletion survives a crash.

        When this returns, the topics are gone, unless a broker that holds them is down or slow.
        """
        results = cast(list[TopicResult], await self._queue.ask(DeleteTopics(names)))
        await self._await_deletion(frozenset(result.name for result in results if not result.error_code))
        return results

    # -- partitions ------------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, ApiError]:
        """Elect leaders of `partitions`, or with None of all that need one; return one result per partition."""
        event = ElectLeaders(election_type, partitions)
        return cast(dict[TopicPartition, ApiError], await self._queue.ask(event))

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Apply the in-sync replicas that a leader reports; `version` is the version of the request.

        Raises:
            KafkaError: the error of the whole request.
        """
        return cast(AlterPartitionResponse, await self._queue.ask(AlterPartition(request, version)))

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, ApiError]:
        """Start to move partitions to other brokers, or with None cancel the move; return one result per partition."""
        return cast(dict[TopicPartition, ApiError], await self._queue.ask(AlterReassignments(targets)))

    async def list_partition_reassignments(
        self, partitions: set[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress, of `partitions` or with None of all."""
        return cast(dict[TopicPartition, ReplicaAssignment], await self._queue.ask(ListReassignments(partitions)))

    def enable_unclean_election(self, topic: str | None) -> None:
        """Retry partitions without a leader after unclean.leader.election.enable was switched on.

        `topic` is the topic whose configuration changed, None for the cluster's default.
        """
        self._queue.put(UncleanElectionEnabled() if topic is None else TopicUncleanElectionEnabled(topic))

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """Return a block of producer ids that was never allocated before."""
        return cast(range, await self._queue.ask(AllocateProducerIds(broker_id, broker_epoch)))

    async def update_features(
        self, changes: Sequence[FeatureChange], *, validate_only: bool = False
    ) -> dict[str, ApiError]:
        """Finalize features at other levels; return one result per feature."""
        return cast(dict[str, ApiError], await self._queue.ask(UpdateFeatures(changes, validate_only)))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership off a broker that shuts down; return the partitions that it still leads.

        A `broker_epoch` of -1 is not checked.
        """
        event = ControlledShutdown(broker_id, broker_epoch)
        return cast(list[TopicPartition], await self._queue.ask(event))

    # -- processing ------------------------------------------------------------------------------------------------

    async def _process(self, event: Event) -> object:
        """Process one event. Raise KafkaError and nothing else, whatever happens."""
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
            # No election is possible before `rejoin`.
            self._lose_session()
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from error
        except (StoreUnavailable, Undecodable) as error:
            logger.error("resigning because %s could not be processed: %s", type(event).__name__, error)
            await self._resign_and_retry()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        except Exception as error:
            logger.exception("resigning because %s could not be processed", type(event).__name__)
            await self._resign_and_retry()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        finally:
            self._settle_deletions()

    async def _dispatch(self, event: Event) -> object:
        if isinstance(event, ControllerChanged):
            await self._follow_or_elect()
        elif isinstance(event, SessionExpired):
            self._lose_session()
        elif self._active_term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        else:
            return await self._active_term.active.handle(event)
        return None

    # -- elections -------------------------------------------------------------------------------------------------

    async def _follow_or_elect(self) -> None:
        """Read which broker is controller, and try to become controller if there is none."""
        self._controller_id = await self._node.current(self._controller_changed)
        if self._active_term is not None and self._controller_id != self.broker_id:
            logger.info("resigning: broker %d is the controller now", self._controller_id)
            self._resign()
        if self._active_term is None and self._retry is None and await self._can_elect():
            won = await self._node.elect()
            if won is not None:
                await self._become_controller(won)
            self._controller_id = await self._node.current(self._controller_changed)

    async def _can_elect(self) -> bool:
        if self._controller_id == self.broker_id:
            # The node was not deleted at resignation, or it belongs to an earlier session, which will expire.
            return await self._node.remove_leftover()
        return self._controller_id == NO_CONTROLLER

    def _controller_changed(self, _: WatchEvent) -> None:
        self._queue.put(ControllerChanged())

    def _lose_session(self) -> None:
        if self._active_term is not None:
            logger.warning("resigning: the session with the metadata store has expired")
        self._resign()
        self._controller_id = NO_CONTROLLER

    async def _become_controller(self, won: Won) -> None:
        logger.info("broker %d is controller of epoch %d", self.broker_id, won.epoch)
        term = self._active_term = self._build_term(won)
        self._schedule_rebalance(term, FIRST_REBALANCE_SECONDS)
        await term.active.initialize()
        self._retry_pause_seconds = RETRY_PAUSE_SECONDS_MIN

    def _build_term(self, won: Won) -> _ActiveTerm:
        context = ControllerContext(won.epoch, has_leader_recovery=self._settings.protocol.has_leader_recovery)

        def enqueue_if_current(event: Event) -> None:
            # A response to a request of an earlier term means nothing in this term.
            if self._active_term is term:
                self._queue.put(event)

        store = FencedStore(self._store, won.epoch, won.epoch_version, self._pause)
        sender = Sender(self._channels, enqueue_if_current)
        transitions = Transitions(
            self.broker_id, context, store, sender.send, self._settings, self.statistics, self._pause
        )
        shared = Term(
            context,
            store,
            transitions,
            sender,
            self._settings,
            self._queue.put,
            self._put_later,
            self._random,
            self._pause,
        )
        term = _ActiveTerm(won, context, ActiveController(shared), sender)
        return term

    def _resign(self) -> None:
        """Drop all state of the controller."""
        if self._active_term is not None:
            term, self._active_term = self._active_term, None
            term.sender.close()
            if term.rebalance_timer is not None:
                term.rebalance_timer.cancel()

    async def _resign_and_retry(self) -> None:
        """Resign after a failure, delete the node so that another broker can be elected, and schedule another try."""
        term = self._active_term
        self._resign()
        if self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(self._retry_pause_seconds, self._try_again)
            self._retry_pause_seconds = min(self._retry_pause_seconds * 2, RETRY_PAUSE_SECONDS_MAX)
        if term is not None:
            try:
                await self._node.resign(term.won)
            except StoreUnavailable as error:
                logger.error("cannot delete the controller's node; it is deleted when the session ends: %s", error)
            except Exception:
                logger.exception("cannot delete the controller's node; it is deleted when the session ends")

    def _try_again(self) -> None:
        self._retry = None
        self._queue.put(ControllerChanged())

    def _schedule_rebalance(self, term: _ActiveTerm, seconds: float) -> None:
        if self._settings.auto_leader_rebalance_enable:
            term.rebalance_timer = asyncio.get_running_loop().call_later(seconds, self._rebalance, term)

    def _rebalance(self, term: _ActiveTerm) -> None:
        self._queue.put(RebalanceDue())
        self._schedule_rebalance(term, self._settings.leader_imbalance_check_interval_seconds)

    def _put_later(self, seconds: float, event: Event) -> None:
        asyncio.get_running_loop().call_later(seconds, self._queue.put, event)

    # -- deletions -------------------------------------------------------------------------------------------------

    async def _await_deletion(self, topics: frozenset[str]) -> None:
        """Wait until `topics` are gone, or for at most DELETION_WAIT_SECONDS_MAX."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions_awaited[done] = topics
        self._settle_deletions()
        try:
            await asyncio.wait([done], timeout=DELETION_WAIT_SECONDS_MAX)
        finally:  # also if the client leaves
            del self._deletions_awaited[done]

    def _settle_deletions(self) -> None:
        under_way: set[str] = set()
        if self._active_term is not None:
            context = self._active_term.context
            under_way = context.topics_to_delete - context.topics_ineligible_for_deletion
        for done, topics in self._deletions_awaited.items():
            if not done.done() and not topics & under_way:
                done.set_result(None)
