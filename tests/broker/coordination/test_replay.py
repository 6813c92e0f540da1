"""Replay: every whole record is read in order, and damage is passed, reported, or read from a follower."""

from __future__ import annotations

import pytest

from broker.coordination import replay as replay_module
from broker.coordination.replay import Damage, replay
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import BatchHeader, Record, batches
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.legacy import build_message_set
from storage.batches.stored_batch import extent_at
from tests.broker.groups.fakes import FakeLog

BAD = b"cannot be decoded"


class Values:
    """Contents that keep the values and what was skipped between them."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.skipped: list[Damage] = []

    def replay(self, batch: BatchHeader, record: Record) -> None:
        if record.value == BAD:
            raise Malformed("it cannot be decoded")
        self.values.append(record.value)

    def skip(self, damage: Damage) -> None:
        self.skipped.append(damage)

    def lost(self) -> list[str]:
        return [f"lost {key!r}" for damage in self.skipped for key in damage.keys or ()]


async def replayed(log: FakeLog, buffer_size: int = 1 << 20) -> Values:
    contents, end = await replay(log, 0, buffer_size, Values, "__topic")
    assert end == log.end_offset(0)
    return contents


async def values_of(log: FakeLog, buffer_size: int = 1 << 20) -> list[bytes | None]:
    return (await replayed(log, buffer_size)).values


def log_of(*values: bytes, followers: tuple[FakeLog, ...] = ()) -> FakeLog:
    """A log of one batch for each value, the key of which is the value in capitals."""
    log = FakeLog()
    for value in values:
        log.write(0, build_batch([RecordData(0, value.upper(), value)]))
    log.followers = dict(enumerate(followers, 2))
    return log


class RealisticLog(FakeLog):
    """A log that finds batches only from an index entry on: every fourth batch has one."""

    def __init__(self, log: FakeLog) -> None:
        super().__init__()
        self.logs, self.followers = log.logs, log.followers
        self.index = {header.base_offset: position for position, header in batches(log.logs[0])}
        self.index = {
            offset: position for number, (offset, position) in enumerate(self.index.items()) if not number % 4
        }
        self.end = super().end_offset(0)

    def end_offset(self, partition: int) -> int:
        return self.end

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        log = self.logs[0]
        position = max(position for indexed, position in self.index.items() if indexed <= offset)
        try:
            for relative, header in batches(log[position:]):
                if header.next_offset > offset:
                    size = max(header.size, max_bytes)
                    return bytes(log[position + relative : position + relative + size])
        except Malformed as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch")


def positions(log: FakeLog) -> list[int]:
    return [position for position, _ in batches(log.logs[0])]


def flip(log: FakeLog, batch: int, byte: int) -> None:
    """Change a byte of a batch; a negative `byte` counts from its end."""
    starts = [*positions(log), len(log.logs[0])]
    at = starts[batch] + byte if byte >= 0 else starts[batch + 1] + byte
    log.logs[0][at] ^= 0x20


@pytest.mark.parametrize("buffer_size", [1, 200, 1 << 20])
async def test_every_record_is_read_with_any_buffer_size(buffer_size: int) -> None:
    log = FakeLog()
    numbers = [b"%d" % number for number in range(1_200)]
    for start in range(0, len(numbers), 400):
        log.write(0, build_batch([RecordData(0, b"k", value) for value in numbers[start : start + 400]]))
    assert await values_of(log, buffer_size) == numbers


async def test_a_log_that_cannot_be_read_is_not_served() -> None:
    log = log_of(b"a")
    log.read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError):
        await values_of(log)


@pytest.mark.parametrize("buffer_size", [1, 1 << 20])
@pytest.mark.parametrize("batch", [0, 1, 2])
async def test_batch_with_a_wrong_checksum_is_skipped_and_named(
    batch: int, buffer_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = [b"a", b"b", b"c"]
    log = log_of(*values)
    flip(log, batch, -2)  # the last byte of the value
    found = await replayed(log, buffer_size)
    (damage,) = found.skipped
    assert found.values == [value for number, value in enumerate(values) if number != batch]
    assert (damage.offset, damage.next_offset, damage.is_as_written) == (batch, batch + 1, False)
    assert list(damage.keys or ()) == [values[batch].upper()]
    assert f"Offsets {batch} to {batch} in folder-0/00000000000000000000.log" in caplog.text
    assert f"__topic-0: lost {values[batch].upper()!r}" in caplog.text


async def test_batch_that_cannot_be_parsed_is_skipped_without_names() -> None:
    log = log_of(b"a", b"b", b"c")
    flip(log, 1, 61)  # the length of the record
    found = await replayed(log)
    assert found.values == [b"a", b"c"]
    assert [damage.keys for damage in found.skipped] == [None]


async def test_damaged_marker_is_skipped_without_names() -> None:
    log = log_of(b"a", b"b", b"c")
    flip(log, 1, 22)  # the attributes: now the batch counts as a marker
    found = await replayed(log)
    assert found.values == [b"a", b"c"]
    assert [damage.keys for damage in found.skipped] == [None]


@pytest.mark.parametrize("buffer_size", [1, 100, 1 << 20])
@pytest.mark.parametrize(("batch", "next_readable"), [(1, 4), (5, 8), (9, 10), (0, 4)])
@pytest.mark.parametrize("byte", [8, 16], ids=["length", "magic"])
async def test_reading_goes_on_at_the_next_index_entry_behind_a_damaged_header(
    batch: int, next_readable: int, byte: int, buffer_size: int
) -> None:
    values = [b"v%d" % number for number in range(10)]
    log = RealisticLog(log_of(*values))
    flip(log, batch, byte)
    found = await replayed(log, buffer_size)
    assert found.values == values[:batch] + values[next_readable:]
    assert [(damage.offset, damage.next_offset, damage.keys) for damage in found.skipped] == [
        (batch, next_readable, None)
    ]


async def test_batches_behind_a_wrong_length_do_not_count_as_named() -> None:
    """The damaged batch can still be parsed, but what follows it cannot be found, so other ids may be hidden."""
    log = RealisticLog(log_of(*(b"v%d" % number for number in range(8))))
    flip(log, 1, -2)
    flip(log, 2, 16)
    found = await replayed(log)
    assert found.skipped[0][:2] == (1, 4)
    assert found.skipped[0].keys is None


async def test_wrong_base_offset_does_not_end_the_replay() -> None:
    log = log_of(b"a", b"b", b"c")
    end = log.end_offset(0)
    log.end_offset = lambda partition: end  # type: ignore[method-assign]
    log.logs[0][positions(log)[1]] ^= 0x20  # the checksum does not cover it
    found = await replayed(log)
    assert found.values == [b"a", b"c"]
    assert found.skipped[0][:2] == (1, 2)


async def test_record_that_cannot_be_decoded_is_skipped_alone() -> None:
    log = FakeLog()
    log.write(0, build_batch([RecordData(0, b"A", b"a"), RecordData(0, b"B", BAD), RecordData(0, b"C", b"c")]))
    log.followers = {2: log_of(b"not", b"to", b"be read")}
    found = await replayed(log)
    assert found.values == [b"a", b"c"]
    assert found.skipped == [Damage(1, 2, "it cannot be decoded", (b"B",), is_as_written=True)]


async def test_log_start_that_moves_during_the_replay_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"a", b"b", b"c")
    whole_read = log.read

    async def read(partition: int, offset: int, max_bytes: int) -> object:
        if offset == 1:
            log.start_offsets[0] = 2
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return await whole_read(partition, offset, 1)

    monkeypatch.setattr(log, "read", read)
    found = await replayed(log)
    assert found.values == [b"a", b"c"]
    assert not found.skipped


async def test_offset_out_of_range_for_another_reason_is_an_error() -> None:
    log = log_of(b"a")
    log.read_error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        await values_of(log)


async def test_damage_is_read_from_an_in_sync_follower(caplog: pytest.LogCaptureFixture) -> None:
    """From the start of its log: its cleaner has removed a tombstone and the value that it removed."""
    follower = log_of(b"a", b"b", b"c", b"d")
    start, end = positions(follower)[0], positions(follower)[1]
    del follower.logs[0][start:end]
    log = log_of(b"a", b"b", b"c", b"d", followers=(follower,))
    log.write(0, build_batch([RecordData(0, b"E", b"e")]))  # the follower does not have it yet
    flip(log, 2, -2)
    found = await replayed(log)
    assert found.values == [b"b", b"c", b"d", b"e"]
    assert not found.skipped
    assert "was read from broker 2 up to offset 3" in caplog.text
    assert "folder-0/00000000000000000000.log" in caplog.text


async def test_follower_with_a_damaged_copy_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "FOLLOWER_PAUSE_S", 0)
    damaged, unreachable, whole = (log_of(b"a", b"b", b"c") for _ in range(3))
    flip(damaged, 0, -2)
    unreachable.read_error = KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
    log = log_of(b"a", b"b", b"c", followers=(damaged, unreachable, whole))
    flip(log, 1, -2)
    assert await values_of(log) == [b"a", b"b", b"c"]
    del log.followers[4]
    found = await replayed(log)
    assert found.values == [b"a", b"c"]
    assert len(found.skipped) == 1


@pytest.mark.parametrize("buffer_size", [1, 100, 1 << 20])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
async def test_messages_of_old_formats_are_read(compression: Compression, buffer_size: int) -> None:
    log = OldLog()
    old = [Record(number, 1, b"K", b"%d" % number, []) for number in range(4)]
    log.logs[0] = bytearray(build_message_set(old, magic=1, compression=compression))
    log.write(0, build_batch([RecordData(0, b"K", b"new")]))
    found = await replayed(log, buffer_size)
    assert found.values == [b"0", b"1", b"2", b"3", b"new"]
    assert not found.skipped


async def test_damaged_message_of_an_old_format_is_skipped() -> None:
    log = OldLog()
    old = [Record(number, 1, b"K", b"%d" % number, []) for number in range(3)]
    log.logs[0] = bytearray(build_message_set(old, magic=1, compression=Compression.NONE))
    size = len(log.logs[0]) // 3
    log.logs[0][2 * size - 1] ^= 0x20
    found = await replayed(log)
    assert found.values == [b"0", b"2"]
    assert [damage[:2] for damage in found.skipped] == [(1, 2)]


class OldLog(FakeLog):
    """A log whose first messages are of an old format."""

    def end_offset(self, partition: int) -> int:
        return self._entries()[-1][2] + 1

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        entries = self._entries()
        begin = next(position for position, _, last_offset in entries if last_offset >= offset)
        size = next(size for position, size, _ in entries if position == begin)
        return bytes(self.logs[0][begin : begin + max(size, max_bytes)])

    def _entries(self) -> list[tuple[int, int, int]]:
        """Position, size and last offset of each."""
        log, position, found = self.logs[0], 0, []
        while position < len(log):
            extent = extent_at(log, position, position)
            found.append((position, extent.size, extent.last_offset))
            position += extent.size
        return found
