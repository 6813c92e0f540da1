"""Create a topic by writing its nodes, as any broker may. The controller watches them and does the rest.

Owns the order of the two nodes, new topic ids, and partition counts as the nodes declare them. Must not know who wants
the topic, or when it has leaders.

Brokers create the topics that they need themselves in this way: internal ones, and those that clients name. Requests of
clients to create topics go to the controller.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from random import Random
from uuid import UUID

from controller.machine.model import Topic
from controller.machine.settings import ControllerSettings
from controller.machine.topic_creation import TopicNames, TopicResult, plan_topic
from controller.store.state_store import (
    Create,
    DataTooLarge,
    NodeExists,
    Operation,
    Result,
    SessionExpired,
    SetData,
    StateStore,
    StoreError,
    StoreUnavailable,
)
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import random_id
from protocol.messages.create_topics import CreatableTopic

logger = logging.getLogger("kafka.zk.AdminZkClient")


class TopicNodes:
    """Creates topics without the controller."""

    def __init__(
        self,
        store: StateStore,
        racks: Callable[[], dict[int, str | None]],
        settings: Callable[[], ControllerSettings],
        random_source: Random,
    ) -> None:
        """`racks()` maps the live brokers to their racks. `settings()` has the defaults of new topics."""
        self._store = store
        self._racks = racks
        self._settings = settings
        self._random = random_source

    async def create(self, request: CreatableTopic) -> TopicResult:
        """Write the nodes of a topic; return what was written, or the error."""
        try:
            return await self._create(request)
        except KafkaError as error:
            return TopicResult.failed(request.name, error)
        except (StoreError, StoreUnavailable) as error:
            logger.error("the nodes of topic %s could not be written: %s", request.name, error)
            # Clients try again.
            return TopicResult.failed(request.name, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)))

    async def _create(self, request: CreatableTopic) -> TopicResult:
        racks = self._racks()
        planned = plan_topic(
            request,
            TopicNames(await self._store.children(paths.TOPICS)),
            racks,
            self._settings(),
            start=self._random.randrange(max(len(racks), 1)),
            shift=self._random.randrange(max(len(racks), 1)),
        )
        topic = Topic(new_topic_id(self._random, ()), planned.partitions)
        await write_new_topic(self._store.multi, request.name, topic, planned.overrides)
        return TopicResult(
            request.name,
            topic_id=topic.topic_id,
            partition_count=len(planned.partitions),
            replication_factor=planned.replication_factor,
            configs=planned.overrides,
        )


async def read_partition_counts(store: StateStore, topics: Sequence[str]) -> dict[str, int]:
    """Return the partition count of each topic whose node can be read; log an error for the others.

    Raises:
        SessionExpired: the topics must be read again in the next session.
    """
    counts = {}
    for topic in topics:
        try:
            counts[topic] = len(paths.decode_topic(topic, (await store.get(paths.topic_path(topic))).data).partitions)
        except SessionExpired:
            raise
        except (StoreError, StoreUnavailable, paths.Undecodable) as error:
            logger.error("cannot read the partition count of topic %s: %s", topic, error)
    return counts


def new_topic_id(random_source: Random, taken: Container[UUID]) -> UUID:
    """Return an unused random id."""
    while (topic_id := random_id(random_source.getrandbits)) in taken:
        pass
    return topic_id


async def write_new_topic(
    multi: Callable[[Sequence[Operation]], Awaitable[list[Result]]],
    name: str,
    topic: Topic,
    overrides: dict[str, str],
) -> None:
    """Write the overrides, then the topic, in one transaction.

    Raises:
        KafkaError: TOPIC_ALREADY_EXISTS, or INVALID_REQUEST if a node would be too large.
    """
    config = paths.config_path(paths.topic_entity(name))
    data = paths.encode_config(overrides)
    create = Create(paths.topic_path(name), paths.encode_topic(topic))
    try:
        try:
            await multi([Create(config, data), create])
        except NodeExists as error:
            if error.index != 0:
                raise
            # The overrides were left by an interrupted deletion of a topic with this name, or written ahead by a tool.
            await multi([SetData(config, data), create])
    except NodeExists as error:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from error
    except DataTooLarge as error:
        raise too_large(name, error, ErrorCode.INVALID_REQUEST) from error


def too_large(topic: str, error: DataTooLarge, code: ErrorCode) -> KafkaError:
    """Return the error of a change after which a node of the topic would exceed what the store accepts."""
    return KafkaError(code, f"Topic '{topic}' is too large: {error.path} would exceed 1 MB.")
