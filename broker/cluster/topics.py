"""Creates, grows and deletes topics for clients, and waits until this broker's metadata shows the result.

Topics that this broker itself needs, internal ones and those that clients name, are created by any broker.

Owns: the purgatory of requests that wait for topics (Kafka's `Topic` kind), automatic and internal creation, the report
of internal topics that cannot be created. Must not know: how the controller decides, or response layouts.

The controller returns when the change is durable. The client gets its response when this broker's metadata shows the
change. After the request's timeout the response is REQUEST_TIMED_OUT, although the change continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice

from base.clock import Clock
from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import MetadataCache
from broker.loop.purgatory import DelayedOperation, Purgatory, nothing
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.controller import Controller
from controller.machine.events import ElectionType
from controller.machine.model import ApiError
from controller.machine.topic_creation import TopicResult, topic_name_problem
from controller.tree.topic_nodes import TopicNodes
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

logger = logging.getLogger("kafka.server.AutoTopicCreationManager")

FROM_DEFAULTS = -1
AUTOMATIC_CREATION_TIMEOUT_MS = 5_000
AUTOMATIC_CREATION_WAIT_MS = 6_000
"""Longer than a creation takes while the metadata store responds."""
AUTOMATIC_CREATIONS_MAX = 100
"""How many topics of one request are created at the same time. Each is an event of the controller and a task here."""
_MAY_PASS = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)
"""After these a client may ask again for a topic."""
# Clients retry every 100 ms while an internal topic is missing.
FAILURE_REPORT_INTERVAL_MS = 60_000

REPLICATION_FACTORS = {
    GROUP_METADATA_TOPIC: properties.OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_TOPIC: properties.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    SHARE_GROUP_STATE_TOPIC: properties.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
}


class _AwaitedTopic(DelayedOperation):
    """Waits for a condition on this broker's metadata of a topic."""

    __slots__ = ("_condition", "_on_done")

    def __init__(self, condition: Callable[[], bool], on_done: Callable[[], None]) -> None:
        super().__init__()
        self._condition = condition
        self._on_done = on_done

    def is_satisfied(self) -> bool:
        return self._condition()

    def on_complete(self) -> None:
        self._on_done()

    def release(self) -> None:
        self._condition = bool
        self._on_done = nothing


@dataclass(slots=True)
class _Failures:
    """Failed creations of one internal topic: the time of the last report, and how many failed since then."""

    reported_ms: int
    unreported_count: int = 0


class TopicAdministration:
    """Topic administration of one broker."""

    def __init__(
        self,
        controller: Controller,
        nodes: TopicNodes,
        metadata: MetadataCache,
        config: BrokerConfig,
        timer: Timer,
        clock: Clock,
        sliced_work: SlicedWork,
    ) -> None:
        self._controller = controller
        self._nodes = nodes
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._sliced_work = sliced_work
        self._creating: dict[str, asyncio.Task[ErrorCode]] = {}
        self._overdue: set[str] = set()
        """Topics whose creation has taken longer than a request waits."""
        self._failures: dict[str, _Failures] = {}
        self.purgatory = Purgatory("topic", timer)

    def metadata_changed(self, topics: Collection[str]) -> None:
        """Try the requests that wait for `topics`, whose metadata was updated, in the order in which they came."""
        for topic in [it for it in self.purgatory.watched if it in topics]:
            self.purgatory.check_and_complete(topic)

    async def create(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicResult]:
        """Create what can be created; one result a topic, in order."""
        results = await self._controller.create_topics(topics, validate_only=validate_only)
        if not validate_only:
            await self._confirm(
                results, lambda result: self._metadata.has_leaders(result.name, result.partition_count), timeout_ms
            )
        return results

    async def add_partitions(
        self, topics: Sequence[CreatePartitionsTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicResult]:
        """Grow topics to a partition count; one result a name, in order."""
        results = await self._controller.create_partitions(topics, validate_only=validate_only)
        if not validate_only:
            await self._confirm(
                results, lambda result: self._metadata.has_leaders(result.name, result.partition_count), timeout_ms
            )
        return results

    async def delete(self, names: Sequence[str], *, timeout_ms: int) -> list[TopicResult]:
        """Delete topics; one result a name, in order. As in Kafka, a timeout of 0 gets REQUEST_TIMED_OUT."""
        results = await self._controller.delete_topics(names)
        await self._confirm(
            results, lambda result: timeout_ms > 0 and result.name not in self._metadata.topics, timeout_ms
        )
        return results

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None, *, timeout_ms: int
    ) -> dict[TopicPartition, ApiError]:
        """Elect leaders of `partitions`, with None of all that need an election; one result a partition."""
        results = await self._controller.elect_leaders(election_type, partitions)

        def is_led(partition: TopicPartition) -> bool:
            preferred = self._metadata.preferred_leader_of(*partition)
            leader = self._metadata.leader_of(*partition)
            return leader in self._metadata.brokers and (
                election_type is not ElectionType.PREFERRED or leader == preferred
            )

        deadline_ms = self._deadline_ms(timeout_ms)
        pause = self._sliced_work.pause
        for partition, error in results.items():
            await pause()
            if error.error_code or await self._holds_in_time(partition[0], partial(is_led, partition), deadline_ms):
                continue
            results[partition] = ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return results

    async def create_automatically(self, names: Collection[str]) -> dict[str, ErrorCode]:
        """Create the named topics with this broker's defaults; return the error code of each for the response.

        A created topic has LEADER_NOT_AVAILABLE, so that the client retries. Kafka returns the same, since it does not
        wait for the leaders, and clients conclude from it that the topic was missing. Concurrent callers share one
        creation of a topic.
        """
        codes: dict[str, ErrorCode] = {}
        remaining = iter(names)
        while chunk := list(islice(remaining, AUTOMATIC_CREATIONS_MAX)):
            created = await self._created(chunk)
            codes.update({name: code or ErrorCode.LEADER_NOT_AVAILABLE for name, code in created.items()})
        return codes

    async def ensure_internal(self, name: str) -> None:
        """Create an internal topic unless it exists. Raises KafkaError(COORDINATOR_NOT_AVAILABLE) when it cannot be."""
        if name in self._metadata.topics:
            return
        code = (await self._created([name]))[name]
        if code:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"internal topic {name} could not be created")

    def why_unknown(self, name: str) -> ErrorCode:
        """Return the error code for a topic that is not in the metadata and was not created."""
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _created(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create topics, or wait for their creation; a topic whose creation takes long has LEADER_NOT_AVAILABLE.

        The creation continues, and the client sends the request again. While the metadata store is away it does not
        end, and the connection of the client would serve nothing else.
        """
        tasks = {name: self._creation_of(name) for name in names}
        if awaited := [task for name, task in tasks.items() if name not in self._overdue]:
            await asyncio.wait(awaited, timeout=AUTOMATIC_CREATION_WAIT_MS / 1000)
        self._overdue.update(name for name, task in tasks.items() if not task.done())
        return {name: task.result() if task.done() else ErrorCode.LEADER_NOT_AVAILABLE for name, task in tasks.items()}

    def _creation_ended(self, name: str, task: asyncio.Task[ErrorCode]) -> None:
        self._creating.pop(name, None)
        self._overdue.discard(name)
        if not task.cancelled():
            task.exception()  # `_report` reports it, whether or not a request waits

    def _creation_of(self, name: str) -> asyncio.Task[ErrorCode]:
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.ensure_future(self._create_one(name))
            task.add_done_callback(partial(self._creation_ended, name))
        return task

    async def _create_one(self, name: str) -> ErrorCode:
        try:
            result = await self._create_here(self._defaults_of(name))
        except KafkaError as error:
            self._report(name, error.code, error.message)
            # The client asks again. Other topics have their own results.
            return ErrorCode.LEADER_NOT_AVAILABLE if error.code in _MAY_PASS else error.code
        code = result.error_code
        if code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            # A topic may exist but be missing from the metadata while none of its partitions has a leader.
            code = ErrorCode.NONE if name in self._metadata.topics else ErrorCode.LEADER_NOT_AVAILABLE
        self._report(name, code, result.message)
        return code

    async def _create_here(self, topic: CreatableTopic) -> TopicResult:
        """Create a topic that this broker needs: through its own controller if that is elected, else by its nodes."""
        if self._controller.is_active:
            (result,) = await self.create([topic], validate_only=False, timeout_ms=AUTOMATIC_CREATION_TIMEOUT_MS)
            return result
        result = await self._nodes.create(topic)
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            # Another broker has just created it.
            await self._holds_in_time(
                topic.name,
                lambda: topic.name in self._metadata.topics,
                self._deadline_ms(AUTOMATIC_CREATION_TIMEOUT_MS),
            )
            return result
        await self._confirm(
            [result],
            lambda result: self._metadata.has_leaders(result.name, result.partition_count),
            AUTOMATIC_CREATION_TIMEOUT_MS,
        )
        return result

    def _report(self, name: str, code: ErrorCode, message: str | None) -> None:
        """Log that an internal topic could not be created, and what to set: the first time, then once a minute."""
        if not code:
            self._failures.pop(name, None)
        if not code or name not in REPLICATION_FACTORS:
            return
        now_ms = self._clock.monotonic_ms()
        failures = self._failures.get(name)
        if failures is not None and now_ms - failures.reported_ms < FAILURE_REPORT_INTERVAL_MS:
            failures.unreported_count += 1
            return
        unreported = failures.unreported_count if failures is not None else 0
        repeated = f" ({unreported} more attempts failed since the last report)" if unreported else ""
        self._failures[name] = _Failures(now_ms)
        reason = f"{code.name}: {message.rstrip('.')}" if message else code.name
        logger.error("internal topic %s cannot be created%s: %s%s", name, repeated, reason, self._remedy(name, code))

    def _remedy(self, name: str, code: ErrorCode) -> str:
        if code != ErrorCode.INVALID_REPLICATION_FACTOR:
            return ""
        row = REPLICATION_FACTORS[name]
        brokers = len(self._metadata.brokers)
        return f"; set {row.name}={brokers} (it is {self._config[row]}) or start more brokers"

    def _defaults_of(self, name: str) -> CreatableTopic:
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            return _internal_topic(
                name,
                config[properties.OFFSETS_TOPIC_NUM_PARTITIONS],
                config[properties.OFFSETS_TOPIC_REPLICATION_FACTOR],
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config[properties.OFFSETS_TOPIC_SEGMENT_BYTES]),
                },
            )
        if name == TRANSACTION_STATE_TOPIC:
            return _internal_topic(
                name,
                config[properties.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
                config[properties.TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "segment.bytes": str(config[properties.TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
                    "min.insync.replicas": str(config[properties.TRANSACTION_STATE_LOG_MIN_ISR]),
                    "unclean.leader.election.enable": "false",
                },
            )
        if name == SHARE_GROUP_STATE_TOPIC:
            is_alone = config.has_own_metadata_store
            return _internal_topic(
                name,
                config[properties.SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS],
                1 if is_alone else config[properties.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR],
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config[properties.SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES]),
                    "min.insync.replicas": "1"
                    if is_alone
                    else str(config[properties.SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR]),
                },
            )
        return CreatableTopic(
            name=name, num_partitions=FROM_DEFAULTS, replication_factor=FROM_DEFAULTS, assignments=[], configs=[]
        )

    async def _confirm(
        self, results: Iterable[TopicResult], is_visible: Callable[[TopicResult], bool], timeout_ms: int
    ) -> None:
        """Wait until the metadata shows the successful results. Those not shown in time get REQUEST_TIMED_OUT."""
        deadline_ms = self._deadline_ms(timeout_ms)
        pause = self._sliced_work.pause
        for result in results:
            await pause()
            if result.error_code or await self._holds_in_time(result.name, partial(is_visible, result), deadline_ms):
                continue
            result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def _deadline_ms(self, timeout_ms: int) -> int:
        return self._clock.monotonic_ms() + max(timeout_ms, 0)

    async def _holds_in_time(self, topic: str, condition: Callable[[], bool], deadline_ms: int) -> bool:
        """Wait until `deadline_ms` (monotonic) for a condition on the metadata of `topic`; return whether it holds."""
        if not condition() and self._clock.monotonic_ms() < deadline_ms:
            done = asyncio.get_running_loop().create_future()
            operation = _AwaitedTopic(condition, lambda: None if done.done() else done.set_result(None))
            self.purgatory.try_complete_else_watch(operation, [topic], deadline_ms)
            try:
                await done
            except asyncio.CancelledError:
                self.purgatory.abandon(operation)
                raise
        return condition()


def _internal_topic(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
