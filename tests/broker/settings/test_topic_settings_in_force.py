"""A topic's settings change while the broker serves it: each takes effect on the topic's log immediately."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from storage.log.log import Log
from tests.broker.handlers.test_alter_configs import BROKER, DELETE, SET, TOPIC, Operation, change
from tests.broker.handlers.test_produce_and_fetch import fetch, produce
from tests.storage.builders import done, in_thread, pause
from tests.support.in_process import InProcessBroker, running_broker

DAY_MS = 86_400_000


@dataclass
class Served:
    """A topic of one partition, used as a producer uses it."""

    broker: InProcessBroker
    name: str

    @property
    def log(self) -> Log:
        log = self.broker.services.log_manager.get(self.name, 0)
        assert log is not None
        return log

    def now_ms(self) -> int:
        return self.broker.services.clock.now_ms()

    async def send(
        self, value: bytes = b"value", *, key: bytes | None = b"key", age_ms: int = 0, acks: int = 1
    ) -> PartitionProduceResponse:
        record = RecordData(self.now_ms() - age_ms, key, value)
        return (await produce(self.broker, self.name, {0: build_batch([record])}, acks=acks))[0]

    async def code_of(self, value: bytes = b"value", *, key: bytes | None = b"key", age_ms: int = 0) -> ErrorCode:
        return ErrorCode((await self.send(value, key=key, age_ms=age_ms, acks=-1)).error_code)

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.log.directory.glob(f"*{suffix}"))

    async def applied_retention(self) -> int:
        log_manager = self.broker.services.log_manager
        return done(log_manager.run_retention(self.now_ms(), pause, in_thread))


async def segments_of_four(served: Served) -> object:
    for _ in range(4):
        await served.send(bytes(100))
    return served.log.segment_count


async def segments_of_three_days(served: Served) -> object:
    for age_ms in (3 * DAY_MS, 2 * DAY_MS, DAY_MS):
        await served.send(age_ms=age_ms)
    return served.log.segment_count


async def expired(served: Served) -> object:
    await served.send(age_ms=3 * DAY_MS)
    return await served.applied_retention()


async def surplus(served: Served) -> object:
    await served.send(bytes(100))
    served.log.appends.roll(served.now_ms())
    await served.send(bytes(100))
    return await served.applied_retention()


async def files_of_deleted(served: Served) -> object:
    await served.send(age_ms=8 * DAY_MS)
    assert await served.applied_retention() == 1
    served.log.disposal.remove_deleted(served.now_ms() + 1)
    return len(served.files(".deleted"))


async def unflushed(served: Served) -> object:
    await served.send()
    return served.log.durability.unflushed_count


async def stored_codec(served: Served) -> object:
    await served.send(bytes(1000))
    fetched = (await fetch(served.broker, served.name, {0: 0})).responses[0].partitions[0]
    return [header.compression.name for _, header in batches(fetched.records or b"")]


async def is_append_time_told(served: Served) -> object:
    return (await served.send()).log_append_time_ms > 0


async def code_of_large(served: Served) -> object:
    return await served.code_of(bytes(2000))


async def code_without_key(served: Served) -> object:
    return await served.code_of(key=None)


async def code_of_old(served: Served) -> object:
    return await served.code_of(age_ms=DAY_MS)


async def code_of_young(served: Served) -> object:
    return await served.code_of(age_ms=-DAY_MS)


async def code(served: Served) -> object:
    return await served.code_of()


async def index_entries(served: Served) -> object:
    for _ in range(4):
        await served.send(bytes(100))
    return served.log.segments.active.offset_index.count


async def size_of_new_index(served: Served) -> object:
    await served.send()
    served.log.appends.roll(served.now_ms())
    for _ in range(2):
        await served.send(bytes(5000))
    return served.files(".index")[-1].stat().st_size


async def size_of_new_segment(served: Served) -> object:
    await served.send()
    served.log.appends.roll(served.now_ms())
    return served.files(".log")[-1].stat().st_size


async def code_for_old_reader(served: Served) -> object:
    await served.send()
    return ErrorCode((await fetch(served.broker, served.name, {0: 0}, version=3)).responses[0].partitions[0].error_code)


class Case(NamedTuple):
    """Return what `seen` returns under `before`, and after the change to `after`."""

    after: dict[str, str]
    seen: Callable[[Served], Awaitable[object]]
    expected_before: object
    expected_after: object
    before: dict[str, str] = {}


CASES = [
    Case({"segment.bytes": "200"}, segments_of_four, 1, 4),
    Case({"segment.ms": str(DAY_MS // 2)}, segments_of_three_days, 1, 3),
    Case({"retention.ms": str(2 * DAY_MS)}, expired, 0, 1),
    Case({"retention.ms": "-1"}, expired, 1, 0, {"retention.ms": "1"}),
    Case({"retention.bytes": "0"}, surplus, 0, 2),
    Case({"cleanup.policy": "compact"}, expired, 1, 0, {"retention.ms": "1"}),
    Case({"file.delete.delay.ms": "0"}, files_of_deleted, 3, 0),
    Case({"flush.messages": "1"}, unflushed, 1, 0),
    Case({"compression.type": "gzip"}, stored_codec, ["NONE"], ["GZIP"]),
    Case({"message.timestamp.type": "LogAppendTime"}, is_append_time_told, False, True),
    Case({"max.message.bytes": "1000"}, code_of_large, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE),
    Case({"cleanup.policy": "compact"}, code_without_key, ErrorCode.NONE, ErrorCode.INVALID_RECORD),
    Case({"message.timestamp.before.max.ms": "1000"}, code_of_old, ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP),
    Case({"message.timestamp.after.max.ms": "1000"}, code_of_young, ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP),
    Case({"index.interval.bytes": "100"}, index_entries, 0, 3),
    Case({"segment.index.bytes": "4096"}, size_of_new_index, 10_485_760, 4096),
    Case({"preallocate": "true", "segment.bytes": "5000"}, size_of_new_segment, 0, 5000),
    Case(
        {"message.downconversion.enable": "false"}, code_for_old_reader, ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.seen.__name__}-{'-'.join(case.after)}")
async def test_a_change_is_in_force_at_once_and_so_is_its_end(tmp_path: Path, case: Case) -> None:
    async with running_broker(tmp_path) as broker:

        async def seen_with(settings: dict[str, str], *, created_with: dict[str, str], name: str) -> object:
            await broker.create_topic(name, **{key.replace(".", "_"): value for key, value in created_with.items()})
            operations: list[Operation] = [(key, DELETE, None) for key in created_with.keys() - settings.keys()]
            operations += [(key, SET, value) for key, value in settings.items()]
            if settings != created_with:
                assert await change(broker, (TOPIC, name), *operations) == (ErrorCode.NONE, None)
            return await case.seen(Served(broker, name))

        assert await seen_with(case.before, created_with=case.before, name="a") == case.expected_before
        assert await seen_with(case.after, created_with=case.before, name="b") == case.expected_after
        assert await seen_with(case.before, created_with=case.after, name="c") == case.expected_before


async def test_a_changed_default_of_the_broker_is_in_force_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await broker.create_topic("own", max_message_bytes="5000")
        served, own = Served(broker, "t"), Served(broker, "own")
        assert await change(broker, (BROKER, ""), ("message.max.bytes", SET, "500")) == (ErrorCode.NONE, None)
        assert await served.code_of(bytes(1_000)) is ErrorCode.MESSAGE_TOO_LARGE
        assert await own.code_of(bytes(1_000)) is ErrorCode.NONE
        assert await change(broker, (BROKER, ""), ("message.max.bytes", DELETE, None)) == (ErrorCode.NONE, None)
        assert await served.code_of(bytes(1_000)) is ErrorCode.NONE
