"""The store as the active controller uses it: typed, batched, and fenced by the controller epoch.

Owns the translation of changes into operations. Must not know why they are made.

Invariant: every write is a `multi` whose first operation checks the version that `/controller_epoch` got at this
controller's election. If another controller was elected since, nothing is written and `ControllerMoved` is raised.

Changes to many partitions share a `multi`, which costs one disk sync instead of one for each. If one change of a batch
fails, it is removed and the others are retried in two parts, so that changes stay independent of each other.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import TypeVar

from base.dataclass import dataclass
from base.pause import Pause, through
from base.topic_partition import TopicPartition
from controller.machine.effects import ChangeLeadership
from controller.machine.model import Broker, Leadership, Topic
from controller.store.state_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    StateStore,
    StoreError,
    Watch,
)
from controller.tree import paths
from controller.tree.entity_configs import overrides_of_topics
from controller.tree.topic_nodes import write_new_topic
from protocol.errors import without_frames

logger = logging.getLogger("kafka.zk.KafkaZkClient")

K = TypeVar("K")
V = TypeVar("V")

# Far below ZooKeeper's limit of 1 MB a request, whatever the size of the nodes written here.
OPERATIONS_PER_MULTI_MAX = 500


class ControllerMoved(Exception):  # noqa: N818 - it names the event
    """Another controller was elected: all state of this one is void."""


@dataclass(slots=True)
class Written:
    """The result of changes: the leaderships now stored, and the partitions whose stored version was another."""

    leaderships: dict[TopicPartition, Leadership] = field(default_factory=dict)
    conflicts: list[TopicPartition] = field(default_factory=list)


class FencedStore:
    def __init__(self, store: StateStore, epoch: int, epoch_version: int, pause: Pause) -> None:
        self.store = store
        self.has_undecodable = False
        """Whether a node that was read in this term could not be decoded."""
        self._pause = pause
        self._epoch = epoch
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch_version)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def children(self, path: str, watch: Watch) -> Sequence[str]:
        """Return the children of one of `PERSISTENT_PATHS`. Those that another writer has removed are created again."""
        try:
            return await self.store.children(path, watch)
        except NoNode:
            logger.warning("creating %s, which another writer has removed", path)
        _expect(NodeExists, await self._each([[Create(each)] for each in paths.PERSISTENT_PATHS]))
        return await self.store.children(path, watch)

    async def read_topics(self, names: Sequence[str], watch: Watch | None = None) -> dict[str, Topic]:
        """Return the topics that exist and can be decoded. The watch is armed on those that exist."""
        nodes = await self.store.get_many([paths.topic_path(name) for name in names], watch)
        return await self._decoded(names, nodes, lambda name, node: paths.decode_topic(name, node.data))

    async def read_leaderships(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Leadership]:
        """Return the states of the partitions that have one that can be decoded."""
        wanted = [paths.partition_state_path(partition) async for partition in through(partitions, self._pause)]
        return await self._decoded(
            partitions,
            await self.store.get_many(wanted),
            lambda partition, node: paths.decode_partition_state(
                partition, node.data, node.stat.version, node.stat.mzxid
            ),
        )

    async def read_brokers(self, broker_ids: Sequence[int], watch: Watch | None = None) -> dict[int, Broker]:
        """Return the registered brokers that can be decoded. The watch is armed on all registered ones."""
        nodes = await self.store.get_many([paths.broker_path(broker_id) for broker_id in broker_ids], watch)
        return await self._decoded(
            broker_ids,
            nodes,
            lambda broker_id, node: paths.decode_broker(broker_id, node.data, node.stat.czxid),
        )

    async def read_topic_overrides(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configuration overrides of each topic, without topics whose node the store refuses to read."""
        return await overrides_of_topics(self.store, list(topics))

    async def read_isr_changes(self, notes: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions named in ISR change notifications."""
        nodes = await self.store.get_many(notes)
        found = await self._decoded(notes, nodes, lambda _, node: paths.decode_partition_list(node.data))
        return [partition for note in notes for partition in found.get(note, ())]

    async def read_log_dir_events(self, notes: Sequence[str]) -> set[int]:
        """Return the brokers named in log directory events."""
        nodes = await self.store.get_many(notes)
        found = await self._decoded(notes, nodes, lambda _, node: paths.decode_log_dir_event(node.data))
        return set(found.values())

    async def read_request(self, path: str, decode: Callable[[bytes | None], V], watch: Watch) -> V | None:
        """Return what an old tool requests by a node; None without a request. Delete a node that cannot be decoded.

        The watch is armed in each case.
        """
        if await self.store.exists(path, watch) is None:
            return None
        try:
            return decode((await self.store.get(path)).data)
        except NoNode:
            return None
        except paths.Undecodable as error:
            logger.error("deleting the request %s, which cannot be decoded: %s", path, error)
            await self.remove_request(path)
            return None

    async def _decoded(
        self, keys: Iterable[K], nodes: Sequence[Node | None], decode: Callable[[K, Node], V]
    ) -> dict[K, V]:
        """Decode the nodes. One that cannot be decoded is logged and left out: it must not stop the controller."""
        found = {}
        async for key, node in through(zip(keys, nodes, strict=True), self._pause):
            if node is not None:
                try:
                    found[key] = decode(key, node)
                except paths.Undecodable as error:
                    self.has_undecodable = True
                    logger.error("ignoring a node that cannot be decoded: %s", error)
        return found

    # -- writing ---------------------------------------------------------------------------------------------------

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Perform all operations atomically, under the fence. `StoreError.index` does not count the fence.

        Raises:
            ControllerMoved: another controller was elected.
            StoreError: an operation failed; nothing was written.
        """
        try:
            return (await self.store.multi([self._fence, *operations]))[1:]
        except StoreError as error:
            if error.index == 0:
                raise ControllerMoved(f"the controller epoch {self._epoch} was replaced by a newer one") from error
            error.index -= 1
            raise

    async def change_leadership(self, changes: Sequence[ChangeLeadership]) -> Written:
        """Write partition states, each on condition that it still has the version that the plan is based on."""
        written = Written()
        new_topics = dict.fromkeys(change.partition[0] for change in changes if change.expected_version is None)
        parents = [[Create(paths.partitions_path(topic))] for topic in new_topics]
        operations = [self._operations(change) async for change in through(changes, self._pause)]
        outcomes = await self._each([*parents, *operations])
        async for change, outcome in through(zip(changes, outcomes[len(parents) :], strict=True), self._pause):
            if isinstance(outcome, StoreError):
                written.conflicts.append(change.partition)
            else:
                version = outcome.version if isinstance(outcome, Stat) else 0
                written.leaderships[change.partition] = Leadership(change.state, self._epoch, version)
        return written

    def _operations(self, change: ChangeLeadership) -> list[Operation]:
        partition = change.partition
        path, data = paths.partition_state_path(partition), paths.encode_partition_state(change.state, self._epoch)
        if change.expected_version is not None:
            return [SetData(path, data, change.expected_version)]
        return [Create(paths.partition_path(partition)), Create(path, data)]

    async def create_topic(self, name: str, topic: Topic, overrides: dict[str, str]) -> None:
        """Write the topic with its overrides.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, or INVALID_REQUEST if a node would be too large.
        """
        await write_new_topic(self.multi, name, topic, overrides)

    async def write_topic(self, name: str, topic: Topic) -> None:
        """Raises DataTooLarge: nothing is written."""
        await self.multi([SetData(paths.topic_path(name), paths.encode_topic(topic))])

    async def request_deletion(self, topics: Sequence[str]) -> None:
        """Create the nodes that record the topics to be deleted; each stays until its deletion is complete."""
        _expect(NodeExists, await self._each([[Create(paths.delete_topic_path(topic))] for topic in topics]))

    async def remove(self, node_paths: Sequence[str]) -> list[str]:
        """Delete nodes in order; those that do not exist are skipped. Return those that have foreign nodes below."""
        outcomes = await self._each([[Delete(path)] for path in node_paths])
        kept = []
        for path, outcome in zip(node_paths, outcomes, strict=True):
            if isinstance(outcome, NotEmpty):
                logger.error("keeping %s, which has nodes of another writer below it", path)
                kept.append(path)
            else:
                _expect(NoNode, [outcome])
        return kept

    async def remove_request(self, path: str) -> None:
        """Delete the node of a request; one with foreign nodes below it is emptied, or it would be performed again."""
        if path not in await self.remove([path]):
            return
        (node,) = await self.store.get_many([path])
        if node is not None and node.data:
            _expect(BadVersion, await self._each([[SetData(path, b"", node.stat.version)]]))

    async def remove_topics(self, topics: Sequence[str]) -> dict[str, NotEmpty]:
        """Delete the nodes of topics; those that do not exist are skipped.

        Of each topic: its states, then together its own node, its overrides and the request to delete it. So the
        request stays as long as the topic does.

        Returns:
            The errors of topics with unexpected children, which stay.
        """
        children = [await self._partition_nodes(topic) for topic in topics]
        below = [path for topic, nodes in zip(topics, children, strict=True) for path in _below(topic, nodes)]
        own = {topic: _own_nodes(topic) for topic in topics}
        kept: dict[str, NotEmpty] = {}
        while own:
            groups = [*([path] for path in below), *own.values()]
            outcomes = await self._each([[Delete(path) for path in group] for group in groups])
            for outcome in outcomes[: len(below)]:
                if not isinstance(outcome, NotEmpty):  # then the topic's own node is not empty either
                    _expect(NoNode, [outcome])
            existing: dict[str, list[str]] = {}
            for (topic, group), outcome in zip(own.items(), outcomes[len(below) :], strict=True):
                if isinstance(outcome, NotEmpty):
                    kept[topic] = outcome
                elif isinstance(outcome, NoNode) and len(group) > 1:
                    existing[topic] = [path for path in group if path != outcome.path]
                else:
                    _expect(NoNode, [outcome])
            own, below = existing, []
        return kept

    async def _partition_nodes(self, topic: str) -> list[str]:
        partitions = paths.partitions_path(topic)
        try:
            return [f"{partitions}/{name}" for name in await self.store.children(partitions)]
        except NoNode:
            return []

    async def _each(self, groups: Sequence[Sequence[Operation]]) -> list[Result | StoreError]:
        """Perform each group of operations independently; return the result of its last operation, or its error."""
        outcomes: dict[int, Result | StoreError] = {}
        remaining = [list(group) for group in groups]
        waiting = deque(_chunks(groups))
        while waiting:
            chunk = waiting.popleft()
            try:
                results = iter(await self.multi([operation for index in chunk for operation in remaining[index]]))
            except StoreError as error:
                waiting.extendleft(reversed(_split(error, chunk, remaining, outcomes)))
                continue
            for index in chunk:
                outcomes[index] = [next(results) for _ in remaining[index]][-1]
        return [outcomes[index] for index in range(len(groups))]


def _split(
    error: StoreError,
    chunk: Sequence[int],
    remaining: Sequence[list[Operation]],
    outcomes: dict[int, Result | StoreError],
) -> list[list[int]]:
    """Return the groups to perform after a chunk failed, as new chunks in their order.

    The failed operation is removed: only itself if it creates an existing parent, else its group, which gets the error.
    The groups before it have succeeded but for it. Those after it may fail as well, so they are halved: when many fail,
    a group is repeated a logarithmic number of times.
    """
    position, at = error.index, 0
    while position >= len(remaining[chunk[at]]):
        position -= len(remaining[chunk[at]])
        at += 1
    failed = chunk[at]
    if isinstance(error, NodeExists) and position < len(remaining[failed]) - 1:
        del remaining[failed][position]
        after = list(chunk[at:])
    else:
        outcomes[failed] = without_frames(error)
        after = list(chunk[at + 1 :])
    middle = (len(after) + 1) // 2
    return [part for part in ([*chunk[:at], *after[:middle]], after[middle:]) if part]


def _below(topic: str, partitions: Sequence[str]) -> list[str]:
    """Return the nodes below that of a topic, children before their parents."""
    return [*(f"{path}/state" for path in partitions), *partitions, paths.partitions_path(topic)]


def _own_nodes(topic: str) -> list[str]:
    return [paths.topic_path(topic), paths.config_path(paths.topic_entity(topic)), paths.delete_topic_path(topic)]


def _expect(harmless: type[StoreError], outcomes: Iterable[Result | StoreError]) -> None:
    """Raise the first error that is not an instance of `harmless`."""
    for outcome in outcomes:
        if isinstance(outcome, StoreError) and not isinstance(outcome, harmless):
            raise outcome


def _chunks(groups: Sequence[Sequence[Operation]]) -> Iterator[list[int]]:
    """Yield the indexes of groups that fit into one multi each, at least one a chunk."""
    chunk: list[int] = []
    count = 0
    for index, group in enumerate(groups):
        if chunk and count + len(group) > OPERATIONS_PER_MULTI_MAX:
            yield chunk
            chunk, count = [], 0
        chunk.append(index)
        count += len(group)
    if chunk:
        yield chunk
