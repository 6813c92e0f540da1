"""No bulk request is worked on in a step of the event loop that grows with the number of its elements."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType, SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

import pytest

from bench.attacks import has_distinct, list_paths, stuffed
from broker.cluster.metadata_cache import LEADER_OF_DELETED_TOPIC
from broker.handlers import (
    alter_configs,
    find_coordinator,
    guard,
    incremental_alter_configs,
    offset_commit,
    offset_fetch,
    write_txn_markers,
)
from broker.handlers.declaration import Elements
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SLICE_MS
from broker.requests import dispatch
from broker.requests.routes import TABLE
from broker.security.acls import Acl, Operation, Pattern, PatternType, Permission, ResourceType
from broker.security.authorizer import Authorizer
from config.broker_properties import AUTHORIZERS
from protocol.api import APIS
from protocol.errors import ErrorCode, Malformed
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_fetch import OffsetFetchRequestTopic
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.schema import Field
from tests.storage.builders import pause, steps_of
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import SteppingClock

ELEMENTS = 500
"""More than any step takes of what does not grow with a request, with the patches below."""
STEP_SIZES = (
    (alter_configs, "STATED_CHANGES_MAX"),
    (find_coordinator, "STEP_SIZE"),
    (guard, "DECIDED_IN_A_SLICE_STEP"),
    (guard, "NAMES_IN_A_STEP"),
    (incremental_alter_configs, "STATED_CHANGES_MAX"),
    (offset_commit, "COMMIT_STEP_SIZE"),
    (offset_fetch, "STEP_SIZE"),
    (write_txn_markers, "STEP_SIZE"),
)
"""How many elements a step takes: few, so that a request with fewer elements shows a step that takes all."""
TOPICS = 5_000
"""Metadata is read by a thousand topics at a time."""
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
WITH_ACLS = MappingProxyType(
    {
        "authorizer.class.name": AUTHORIZERS[0],
        "allow.everyone.if.no.acl.found": "true",
        "log.cleaner.enable": "false",  # it would list all logs in one step of the same event loop
    }
)
ROOT = Path(__file__).parents[3]
COUNTED = tuple(f"{ROOT / package}{os.sep}" for package in ("base", "broker", "controller", "storage"))
"""Where code counts: not in the client, which is in this thread as well."""
NOT_COUNTED = f"{ROOT / 'broker' / 'loop'}{os.sep}"
"""It takes turns: its lines are the same for any work, and most of all lines."""


class Steps:
    """Counts the lines of Python that this thread runs in one turn of the event loop."""

    def __init__(self) -> None:
        self.longest: Counter[str] = Counter()
        """Lines of the longest turn, by function."""
        self._longest_count = 0
        self._count = 0
        self._lines: defaultdict[CodeType, int] = defaultdict(int)
        self._is_counted: dict[str, bool] = {}
        """By file."""
        self._is_over = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace_call)
        asyncio.get_running_loop().call_soon(self._turn_ended)
        try:
            yield
        finally:
            sys.settrace(before)
            self._is_over = True

    def _trace_call(self, frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        is_counted = self._is_counted.get(file)
        if is_counted is None:
            is_counted = self._is_counted[file] = file.startswith(COUNTED) and not file.startswith(NOT_COUNTED)
        return self._trace_line if is_counted else None

    def _trace_line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._count += 1
            self._lines[frame.f_code] += 1
        return self._trace_line

    def _turn_ended(self) -> None:
        if self._count > self._longest_count:
            self._longest_count = self._count
            self.longest = Counter()
            for code, count in self._lines.items():
                self.longest[code.co_qualname] += count
        self._count = 0
        self._lines.clear()
        if not self._is_over:
            asyncio.get_running_loop().call_soon(self._turn_ended)


@asynccontextmanager
async def broker_in_single_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str] = NO_SETTINGS
) -> AsyncIterator[InProcessBroker]:
    """A broker with topic t, whose long work ends its slice after every step."""
    async with running_broker(folder, {"auto.create.topics.enable": "false", **settings}) as broker:
        await broker.create_topic("t", 2)
        await broker.services.groups.partitions.ensure_topic()
        monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 100)
        for module, size in STEP_SIZES:
            monkeypatch.setattr(module, size, 4)
        sliced_work = broker.services.sliced_work
        monkeypatch.setattr(sliced_work, "_monotonic_ms", SteppingClock(SLICE_MS).monotonic_ms)
        monkeypatch.setattr(sliced_work, "_steps_min", 1)
        yield broker


BULK = [key for key in sorted(TABLE) if TABLE[key].API.elements is Elements.BULK]


Place = tuple[int, tuple[Field, ...], bool]
"""An API, the path of a list of its request, and whether the elements of the list differ."""


def places() -> Iterator[Place]:
    """Yield every list of every bulk request."""
    for key in (key for key in sorted(TABLE) if TABLE[key].API.elements is Elements.BULK):
        version = APIS[key].versions[-1]
        for path in list_paths(APIS[key].request, version):
            for is_distinct in [False, True] if has_distinct(path[-1], version) else [False]:
                yield key, path, is_distinct


def name_of(place: Place) -> str:
    key, path, is_distinct = place
    return f"{APIS[key].name}-{'.'.join(field.name for field in path)}-{'distinct' if is_distinct else 'same'}"


async def longest_step(broker: InProcessBroker, place: Place) -> Counter[str]:
    """Send a request with many elements at this place, and count the lines of the longest turn."""
    key, path, is_distinct = place
    version = APIS[key].versions[-1]
    steps = Steps()
    with steps.counted(), suppress(Malformed):  # acks=0 asks for a closed connection
        await broker.ask(stuffed(APIS[key].request, version, path, ELEMENTS, is_distinct=is_distinct), version)
    return steps.longest


@pytest.mark.parametrize("place", [pytest.param(place, id=name_of(place)) for place in places()])
async def test_no_step_iterates_over_all_elements_of_a_bulk_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    async with broker_in_single_steps(tmp_path / "data", monkeypatch, WITH_ACLS) as broker:
        longest = await longest_step(broker, place)
    assert 0 < longest.total() < ELEMENTS, longest.most_common(5)


async def test_no_step_iterates_over_all_elements_of_a_denied_bulk_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such requests change nothing, so that all go to the same broker."""
    async with broker_in_single_steps(tmp_path / "data", monkeypatch, WITH_ACLS) as broker:
        deny_all(broker.services.authorizer)
        for place in places():
            longest = await longest_step(broker, place)
            assert 0 < longest.total() < ELEMENTS, (name_of(place), longest.most_common(5))


def deny_all(authorizer: Authorizer) -> None:
    """Deny every topic, group and transaction."""
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        acl = Acl("User:*", "*", Operation.ALL, Permission.DENY)
        authorizer.put(Pattern(kind, "*", PatternType.LITERAL), [acl])


async def test_no_step_iterates_over_all_partitions_of_a_fetch_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(session_id: int, session_epoch: int, topics: list[Any], forgotten: list[Any]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=topics,
            session_id=session_id,
            session_epoch=session_epoch,
            forgotten_topics_data=forgotten,
        )

    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(ELEMENTS)]
    topics = [FetchTopic(topic="t", partitions=partitions)]
    forgotten = [ForgottenTopic(topic="t", partitions=list(range(1, ELEMENTS)))]
    steps = Steps()
    async with broker_in_single_steps(tmp_path / "data", monkeypatch) as broker:
        with steps.counted():
            session_id = (await broker.ask(fetch(0, 0, topics, []), 12)).session_id
            changed = await broker.ask(fetch(session_id, 1, topics, []), 12)
            forgetting = await broker.ask(fetch(session_id, 2, [], forgotten), 12)
    assert {session_id, changed.session_id, forgetting.session_id} == {session_id} != {0}
    assert 0 < steps.longest.total() < ELEMENTS, steps.longest.most_common(5)


async def test_topics_of_many_partitions_are_created_grown_and_deleted_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left in one step lists or assigns partitions: some twenty lines for each, where all takes hundreds."""
    count = 200
    created = CreatableTopic(name="wide", num_partitions=count, replication_factor=1, assignments=[], configs=[])
    grown = CreatePartitionsTopic(name="wide", count=2 * count, assignments=None)
    requests = (
        (CreateTopicsRequest(topics=[created], timeout_ms=60_000), 5, count),
        (CreatePartitionsRequest(topics=[grown], timeout_ms=60_000, validate_only=False), 3, 2 * count),
        (DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000), 5, 2 * count),
    )
    async with broker_in_single_steps(tmp_path / "data", monkeypatch) as broker:
        for request, version, partitions in requests:
            steps = Steps()
            with steps.counted():
                await broker.ask(request, version)
            assert 0 < steps.longest.total() < 30 * partitions + 1_000, (type(request), steps.longest.most_common(8))


async def test_no_step_of_an_update_of_metadata_iterates_over_all_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(leader: int, broker_count: int) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=7,
            controller_epoch=1 << 20,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=f"many{number}",
                    topic_id=UUID(int=number + 1),
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=0,
                            controller_epoch=1,
                            leader=leader,
                            leader_epoch=0,
                            isr=[1],
                            zk_version=0,
                            replicas=[1],
                        )
                    ],
                )
                for number in range(TOPICS)
            ],
            live_brokers=[UpdateMetadataBroker(id=each) for each in range(broker_count)],
        )

    async with broker_in_single_steps(tmp_path / "data", monkeypatch) as broker:
        for each in (request(1, 2), request(1, 3), request(LEADER_OF_DELETED_TOPIC, 3)):
            steps = Steps()
            with steps.counted():
                response = await broker.services.control_door.submit(each)
            assert response.error_code == ErrorCode.NONE
            assert 0 < steps.longest.total() < TOPICS, steps.longest.most_common(5)


class CountedName(str):
    """Counts how many names were hashed."""

    __slots__ = ()

    hashed: ClassVar[set[str]] = set()

    def __hash__(self) -> int:
        self.hashed.add(str(self))
        return super().__hash__()


async def test_long_names_are_hashed_in_several_steps(tmp_path: Path) -> None:
    names = [CountedName(f"{number}" * 32_000) for number in range(10)]
    async with running_broker(tmp_path) as broker:
        await broker.services.groups.partitions.ensure_topic()
        context = RequestContext(10, 6, 1, "c", broker.channel)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=names)
        services = SimpleNamespace(
            metadata_cache=broker.services.metadata_cache,
            groups=broker.services.groups,
            sliced_work=SimpleNamespace(pause=pause),
        )
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
        works: tuple[Coroutine[Any, Any, object], ...] = (
            find_coordinator.handle(services, request, context),  # type: ignore[arg-type]
            offset_fetch._named(topics, pause),
        )
        for work in works:
            steps = steps_of(work)
            CountedName.hashed.clear()
            next(steps)
            assert len(CountedName.hashed) == 1
