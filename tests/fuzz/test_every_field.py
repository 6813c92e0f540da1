"""Every field of every version of every served request, with wrong values one at a time, against one broker.

Expected: a response that decodes, with the codes of the table below or none; no internal error; nothing
stored but what was accepted, as it was sent; no waiter left behind; memory as before.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from broker.handlers.request_context import CloseConnection
from broker.loop.clock import SystemClock
from broker.replica.delayed_fetch import LATER_MS_MAX
from broker.requests.routes import TABLE
from protocol.api import APIS, Api
from protocol.errors import ErrorCode, Malformed
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.records.batch import batches, records
from protocol.schema import Struct
from tests.fuzz.documented_codes import ALWAYS, DOCUMENTED, REFUSED
from tests.fuzz.mutants import MANY, Mutant, changes, mutants
from tests.fuzz.valid_requests import READ_TOPIC, TOPIC, VALUE, Known, batch, build, valid_requests
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.members import join_alone

KEPT = "kept"
TIMEOUT_S = 10.0
GROWTH_MAX_BYTES = 150 << 20
COMBINATIONS = 2000
COMPARED_EVERY = 50
"""After how many combinations the records are compared that no request may change."""
SERVED = [APIS[key] for key in TABLE]
OF_BROKERS = {
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "AlterPartition",
    "AllocateProducerIds",
}
"""Brokers send these. They may change which partitions a broker leads, so each API has a broker of its own."""
OF_CLIENTS = [api for api in SERVED if api.name not in OF_BROKERS]

OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    # The records are old, and on a busy machine all requests take longer than it takes to the first look for such.
    "log.retention.ms": "-1",
}

MOVED = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})
"""Codes of groups and transactions after an earlier request has deleted their topic."""

WAITING = frozenset({"JoinGroup", "Fetch at the end"})
"""What may wait longer than a moment."""


class JumpingClock(SystemClock):
    """The machine's clock, some time ahead."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


@dataclass
class Outcome:
    """What came of the requests of one kind."""

    seen: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The names of the codes, by the path of the field and the name of its value."""
    complaints: list[str] = field(default_factory=list)


class Run:
    """One broker that gets all requests."""

    def __init__(self, broker: InProcessBroker, folder: Path, clock: JumpingClock) -> None:
        self.outcomes: dict[str, Outcome] = defaultdict(Outcome)
        self._broker = broker
        self._services = broker.dispatcher._services
        self._folder = folder
        self._clock = clock
        self._waiting: list[asyncio.Task[Any]] = []
        self._knowns = 0

    async def prepare(self) -> None:
        for topic in TOPIC, KEPT, READ_TOPIC:
            await self._broker.create_topic(topic)
        await self._services.topics.ensure_internal(SHARE_GROUP_STATE_TOPIC)  # else a group begins to create it
        for topic in KEPT, READ_TOPIC:
            await self._broker.ask(self._request("Produce", 9, topic_data=_to_topic(topic)), 9)
        self._kept = await self._stored(KEPT)

    def _request(self, name: str, version: int, **changes: Any) -> Any:
        api = next(api for api in SERVED if api.name == name)
        nothing = Known(*[None] * 9)  # type: ignore[arg-type]
        return build(api.request, {**valid_requests(nothing)[name], **changes}, version)

    async def every_field(self, api: Api) -> None:
        for version in api.versions:
            known = await self._known(api)
            values = valid_requests(known)[api.name]
            valid = Mutant("", f"v{version}", build(api.request, values, version))
            await self._try_all(api.name, version, [valid, *mutants(api.request, values, version)])
            await self._compare_kept(self.outcomes[api.name], f"{api.name} v{version}")

    async def every_field_of_fetches_that_wait(self) -> None:
        (api,) = (api for api in SERVED if api.name == "Fetch")
        known = await self._known(api)
        end = {"partition": 0, "fetch_offset": self._end_offset(KEPT), "partition_max_bytes": 1}
        for version in api.versions:
            topic_id = await self._topic_id(KEPT)
            values = {
                **valid_requests(known)["Fetch"],
                "topics": [{"topic": KEPT, "topic_id": topic_id, "partitions": [end]}],
                "max_wait_ms": 1_000_000,
            }
            await self._try_all("Fetch at the end", version, mutants(api.request, values, version))
            await self._compare_kept(self.outcomes["Fetch at the end"], f"Fetch v{version}")

    async def combinations(self, count: int, seed: int) -> None:
        """Two or three wrong fields together."""
        rng = Random(seed)
        known = {api.name: await self._known(api) for api in OF_CLIENTS}
        for number in range(count):
            api = rng.choice(OF_CLIENTS)
            version = rng.choice(api.versions)
            values = valid_requests(known[api.name])[api.name]
            for _ in range(rng.choice((2, 3))):
                possible = [changed for _, name, changed in changes(api.request, values, version) if name != MANY]
                values = rng.choice([values, *possible])
            mutant = Mutant("", api.name, build(api.request, values, version))
            await self._try_all(api.name, version, [mutant], kind="combined")
            if number % COMPARED_EVERY == COMPARED_EVERY - 1:
                await self._compare_kept(self.outcomes["combined"], f"combinations up to {number}")

    async def _try_all(self, name: str, version: int, every: Any, kind: str = "") -> None:
        outcome = self.outcomes[kind or name]
        dispatcher = self._broker.dispatcher
        for mutant in every:
            before = self._end_offset(TOPIC)
            failed = dispatcher.unexpected_error_count
            tasks = asyncio.all_tasks() if name == "Produce" else set()
            codes, response = await self._ask(name in WAITING or (kind != "" and name == "Fetch"), version, mutant)
            if name == "Produce" and response is None and (unfinished := asyncio.all_tasks() - tasks):
                await asyncio.wait(unfinished)  # appends without a response, which go on
            outcome.seen[mutant.path, mutant.name] |= codes
            what = f"{name} v{version} {mutant.path} {mutant.name}"
            if dispatcher.unexpected_error_count != failed or ErrorCode.UNKNOWN_SERVER_ERROR.name in codes:
                outcome.complaints.append(f"{what}: failed unexpectedly")
            if response is not None or name != "Produce":
                grown = self._end_offset(TOPIC) - before
                accepted = 2 * _accepted(response) if name == "Produce" else 0
                markers = grown if name in MARKING else 0
                if grown - markers != accepted:
                    outcome.complaints.append(f"{what}: {grown} offsets more, {accepted} were accepted")
        await self._end_of_waiting(outcome, f"{name} v{version}", by_leaving=bool(version % 2))

    async def _compare_kept(self, outcome: Outcome, what: str) -> None:
        if await self._stored(KEPT) != self._kept:
            outcome.complaints.append(f"{what}: records of others changed")

    async def _ask(self, may_wait: bool, version: int, mutant: Mutant) -> tuple[set[str], Any]:
        task = asyncio.ensure_future(self._broker.ask(mutant.request, version))
        for _ in range(10):
            await asyncio.sleep(0)
            if task.done():
                break
        else:
            if may_wait:
                self._waiting.append(task)
                return {"waits"}, None
        try:
            response = await asyncio.wait_for(task, TIMEOUT_S)
        except (Malformed, CloseConnection):
            return {"closed"}, None
        except TimeoutError:
            return {"no response"}, None
        return {ErrorCode(code).name for code in error_codes(response)}, response

    async def _end_of_waiting(self, outcome: Outcome, what: str, *, by_leaving: bool) -> None:
        """Clients go, or their time is over: either way nothing of them may stay."""
        if self._waiting and by_leaving:
            for task in self._waiting:
                task.cancel()
        elif self._waiting:
            self._clock.ahead_ms += (1 << 31) + LATER_MS_MAX
            self._services.replica_manager.fetch_purgatory._timer.advance(self._clock.monotonic_ms())
        if self._waiting:
            _, left = await asyncio.wait(self._waiting, timeout=TIMEOUT_S)
            if left:
                outcome.complaints.append(f"{what}: {len(left)} requests wait for ever")
            self._waiting.clear()
        manager = self._services.replica_manager
        for purgatory in (
            manager.fetch_purgatory,
            manager.produce_purgatory,
            manager.delete_records_purgatory,
            self._services.topics.purgatory,
        ):
            if purgatory.delayed_count:
                outcome.complaints.append(f"{what}: {purgatory.delayed_count} left in the {purgatory.name} purgatory")

    async def _known(self, api: Api) -> Known:
        """A group with one member, a transactional producer and a topic that no request before has met."""
        self._knowns += 1
        tag = f"{api.key}-{self._knowns}"
        broker = self._broker
        group, transactional_id = f"group-{tag}", f"transaction-{tag}"
        await self._coordinated(group, 0, OffsetFetchRequest(group_id=group, topics=[]), 7)
        member = await join_alone(broker, group, session_timeout_ms=1_800_000)
        producer = await self._coordinated(
            transactional_id,
            1,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
            1,
        )
        if api.name == "TxnOffsetCommit":
            add = AddOffsetsToTxnRequest(
                transactional_id=transactional_id, producer_id=producer.producer_id, producer_epoch=0, group_id=group
            )
            assert not (await broker.ask(add, 1)).error_code
        own_topic = f"own-{tag}"
        if api.name in ("CreatePartitions", "DeleteTopics"):
            await broker.create_topic(own_topic)
        return Known(
            await self._topic_id(READ_TOPIC),
            member.member_id,
            group,
            transactional_id,
            producer.producer_id,
            str(self._folder),
            f"new-{tag}",
            own_topic,
            self._broker_epoch(),
        )

    def _broker_epoch(self) -> int:
        term = self._services.controller._active_term
        assert term is not None
        return term.context.live_brokers[0].epoch

    async def _coordinated(self, key: str, key_type: int, request: object, version: int) -> Any:
        """Return the response once the coordinator is available."""
        for _ in range(500):
            response = await self._broker.ask(request, version)
            if not response.error_code:
                return response
            await self._broker.ask(FindCoordinatorRequest(key=key, key_type=key_type), 2)
            await asyncio.sleep(0.02)
        raise AssertionError(response)

    async def _topic_id(self, topic: str) -> Any:
        return (await self._broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))).topics[0].topic_id

    def _end_offset(self, topic: str) -> int:
        """What consumers see as the end of the topic's only log."""
        partition = self._services.replica_manager.find(topic, 0)
        assert partition is not None
        return partition.log.high_watermark

    async def _stored(self, topic: str) -> bytes:
        """The bytes of a topic from its first offset on."""
        stored, offset = b"", 0
        while True:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[partition])], replica_id=-1
            )
            piece = bytes((await self._broker.ask(request, 12)).responses[0].partitions[0].records)
            if not piece:
                return stored
            stored += piece
            offset = max(header.next_offset for _, header in batches(piece))

    async def wrong_records(self) -> list[str]:
        """What the topic that was produced to holds besides what was sent, in order."""
        stored = await self._stored(TOPIC)
        wrong, expected = [], 0
        for position, header in batches(stored):
            if header.base_offset != expected:
                wrong.append(f"offset {header.base_offset} where {expected} was expected")
            expected = header.next_offset
            if not header.is_control:
                wrong += [
                    str(record)
                    for record in records(stored, position, size_max=1 << 20)
                    if (record.key, record.value) != (b"key", VALUE)
                ]
        return wrong


class RunOfBroker(Run):
    """A broker that gets requests of brokers. These may make it lead other partitions, so records are not compared."""

    async def _known(self, api: Api) -> Known:
        topic_id = self._services.metadata_cache.topics[READ_TOPIC].topic_id
        return Known(topic_id, "", "", "", 0, "", "", "", self._broker_epoch())

    async def _try_all(self, name: str, version: int, every: Any, kind: str = "") -> None:
        outcome = self.outcomes[name]
        for mutant in every:
            failed = self._broker.dispatcher.unexpected_error_count
            codes, _ = await self._ask(may_wait=False, version=version, mutant=mutant)
            outcome.seen[mutant.path, mutant.name] |= codes
            if self._broker.dispatcher.unexpected_error_count != failed or "UNKNOWN_SERVER_ERROR" in codes:
                outcome.complaints.append(f"{name} v{version} {mutant.path} {mutant.name}: failed unexpectedly")

    async def _compare_kept(self, outcome: Outcome, what: str) -> None:
        """Compare nothing."""


MARKING = frozenset({"WriteTxnMarkers", "EndTxn", "InitProducerId"})
"""What may end a transaction, which takes an offset."""


def _to_topic(topic: str) -> list[dict[str, Any]]:
    return [{"name": topic, "partition_data": [{"index": 0, "records": batch()}]}]


def _accepted(response: Any) -> int:
    """How many partitions of a Produce response got what was sent."""
    partitions = [p for topic in response.responses for p in topic.partition_responses] if response else []
    return sum(not p.error_code and p.base_offset >= 0 for p in partitions)


def error_codes(response: Any) -> Iterator[int]:
    """Every error code of a response, at any depth."""
    for f in response.__fields__ if isinstance(response, Struct) else ():
        value = getattr(response, f.name)
        if f.name.endswith("error_code"):
            yield value
        elif f.struct is not None and value is not None:
            for inner in value if f.is_array else [value]:
                yield from error_codes(inner)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Of all requests, by API."""

    async def run() -> dict[str, Outcome]:
        folder, clock = tmp_path_factory.mktemp("mutated"), JumpingClock()
        async with running_broker(folder, OVERRIDES, clock=clock) as broker:
            run = Run(broker, folder, clock)
            await run.prepare()
            before = resident_bytes()
            for api in OF_CLIENTS:
                await run.every_field(api)
            await run.every_field_of_fetches_that_wait()
            await run.combinations(COMBINATIONS, seed=3)
            whole = run.outcomes["whole"]
            whole.complaints += await run.wrong_records()
            if resident_bytes() - before > GROWTH_MAX_BYTES:
                whole.complaints.append(f"resident memory grew by {resident_bytes() - before} bytes")
        for api in SERVED:
            if api.name in OF_BROKERS:
                async with running_broker(tmp_path_factory.mktemp(api.name), OVERRIDES) as broker:
                    of_broker = RunOfBroker(broker, folder, clock)
                    await of_broker.prepare()
                    await of_broker.every_field(api)
                    run.outcomes |= of_broker.outcomes
        return run.outcomes

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


@pytest.mark.parametrize("name", [api.name for api in SERVED] + ["Fetch at the end"])
def test_every_wrong_value_gets_a_documented_response(name: str, outcomes: dict[str, Outcome]) -> None:
    documented = DOCUMENTED[name.removesuffix(" at the end")]
    assert outcomes[name].complaints == []
    undocumented = [
        f"{path} {value}: {code}"
        for (path, value), codes in outcomes[name].seen.items()
        for code in codes - documented.get("", set()) - documented.get(path, set()) - ALWAYS
        if not (code == "waits" and name in WAITING)
    ]
    assert undocumented == []


def test_several_wrong_values_get_a_documented_response(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["combined"].complaints == []
    undocumented = {
        name: more
        for (_, name), codes in outcomes["combined"].seen.items()
        if (more := codes - {"waits"} - MOVED - ALWAYS.union(*DOCUMENTED[name].values()))
    }
    assert undocumented == {}


def test_broker_is_unchanged_by_wrong_values(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["whole"].complaints == []


def test_wrong_values_cover_all_fields_of_all_versions(outcomes: dict[str, Outcome]) -> None:
    for api in SERVED:
        tried = {path for path, _ in outcomes[api.name].seen}
        assert tried >= set(_paths(api.request, api.versions)), api.name


def _paths(cls: type[Struct], versions: Sequence[int], prefix: str = "") -> Iterator[str]:
    for f in cls.__fields__:
        if has_it := [version for version in versions if f.is_in(version)]:
            yield prefix + f.name
            if f.struct is not None:
                yield from _paths(f.struct, has_it, f"{prefix}{f.name}.")


@pytest.mark.parametrize(("name", "path", "values", "code"), REFUSED)
def test_wrong_values_are_rejected(name: str, path: str, values: str, code: str, outcomes: dict[str, Outcome]) -> None:
    for value in values.split(", "):
        codes = outcomes[name].seen[path, value]
        assert code in codes, value
        assert codes <= {code, "NONE"}, value
