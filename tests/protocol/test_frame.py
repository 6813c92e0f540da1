"""Frames are cut the same however the bytes arrive, and hostile lengths end the stream before memory is spent."""

import os
import random
import struct
from pathlib import Path

import pytest

from protocol.frame import GROWN_FROM_SIZE, GROWTH, MAPPED_FROM_SIZE, SCRATCH_SIZE, FrameReader, FrameTooLarge

SIZE_MAX = 8 << 20


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def feed(reader: FrameReader, data: bytes, chunk_size: int) -> list[bytes]:
    """Deliver `data` in chunks as a socket would, and collect the frames."""
    frames, position = [], 0
    while position < len(data):
        target = reader.writable()
        assert len(target) > 0
        chunk = data[position : position + min(chunk_size, len(target))]
        target[: len(chunk)] = chunk
        reader.received(len(chunk))
        position += len(chunk)
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
        reader.settle()
    return frames


@pytest.mark.parametrize("chunk_size", [30, 600])
def test_a_limit_counts_for_frames_that_arrive_whole_as_well(chunk_size: int) -> None:
    scratch, data = memoryview(bytearray(512)), framed(bytes(100))
    reader = FrameReader(scratch, 50)
    target = reader.writable()
    assert len(target) < len(data)
    with pytest.raises(FrameTooLarge):
        feed(reader, data, chunk_size)
    lifted = FrameReader(scratch, 50)
    lifted.limit(scratch, 200)
    assert feed(lifted, data, chunk_size) == [bytes(100)]


@pytest.mark.parametrize("chunk_size", [1, 3, 4, 5, 7, 64, 1000])
def test_frames_are_split_however_they_arrive(chunk_size: int) -> None:
    payloads = [b"", b"a", b"bc", bytes(range(256)) * 3, b"tail"]
    reader = FrameReader(memoryview(bytearray(512)), SIZE_MAX)
    assert feed(reader, framed(*payloads), chunk_size) == payloads
    assert reader.kept_size == 0


def test_random_streams_agree_with_the_payloads() -> None:
    seed = 7
    rng = random.Random(seed)
    scratch = memoryview(bytearray(4096))
    for _ in range(50):
        payloads = [rng.randbytes(rng.choice([0, 1, 10, 500, 5000, 20000])) for _ in range(rng.randrange(1, 8))]
        reader = FrameReader(scratch, SIZE_MAX)
        assert feed(reader, framed(*payloads), rng.choice([1, 100, 4096, 9999])) == payloads, f"seed {seed}"


def test_connections_may_share_the_scratch_buffer() -> None:
    scratch = memoryview(bytearray(64))
    one, other = FrameReader(scratch, SIZE_MAX), FrameReader(scratch, SIZE_MAX)
    first, second = framed(b"x" * 40), framed(b"y" * 40)
    assert feed(one, first[:20], 20) == []
    assert feed(other, second[:30], 30) == []
    assert feed(one, first[20:], 20) == [b"x" * 40]
    assert feed(other, second[30:], 20) == [b"y" * 40]


def test_a_frame_that_arrives_whole_is_a_view_of_the_scratch_buffer() -> None:
    scratch = memoryview(bytearray(64))
    reader = FrameReader(scratch, SIZE_MAX)
    data = framed(b"abc")
    reader.writable()[: len(data)] = data
    reader.received(len(data))
    frame = reader.next_frame()
    assert frame is not None
    assert frame.obj is scratch.obj


@pytest.mark.parametrize(
    ("received", "payload"),
    [
        (framed(b"abc"), b"abc"),
        (framed(b""), b""),
        (framed(b"abc")[:-1], None),
        (framed(b"abc")[:3], None),
        (framed(b"abc", b"d"), None),
        (framed(b"x" * 41), None),
        (b"\xff\xff\xff\xff", None),
        (b"", None),
    ],
    ids=["one", "empty", "cut off", "length cut off", "two", "too large", "negative", "nothing"],
)
def test_sole_frame_leaves_no_bytes_in_the_buffer(received: bytes, payload: bytes | None) -> None:
    reader = FrameReader(memoryview(bytearray(64)), 40)
    room = reader.writable()
    count = min(len(received), len(room))
    room[:count] = received[:count]
    frame = reader.sole_frame(count)
    assert (None if frame is None else bytes(frame)) == payload
    assert feed(reader, framed(b"next"), 100) == [b"next"]


def test_rest_of_an_incomplete_frame_is_not_a_sole_frame() -> None:
    reader = FrameReader(memoryview(bytearray(64)), 40)
    begun = framed(framed(b"inner"))
    assert feed(reader, begun[:4], 4) == []
    rest = begun[4:]
    reader.writable()[: len(rest)] = rest
    assert reader.sole_frame(len(rest)) is None


def test_pending_frames_are_kept_in_order() -> None:
    """A connection that stops splitting (its response is awaited) finds the rest later, and may continue to receive."""
    reader = FrameReader(memoryview(bytearray(64)), SIZE_MAX)
    data = framed(b"one", b"two", b"three")
    reader.writable()[: len(data)] = data
    reader.received(len(data))
    assert bytes(reader.next_frame() or b"") == b"one"
    reader.settle()
    assert reader.kept_size == len(framed(b"two", b"three"))
    more = framed(b"four")
    reader.writable()[: len(more)] = more
    reader.received(len(more))
    assert [bytes(frame) for frame in iter(reader.next_frame, None)] == [b"two", b"three", b"four"]


@pytest.mark.parametrize("size", [-1, -(2**31), SIZE_MAX + 1, 2**31 - 1])
def test_invalid_frame_length_is_rejected(size: int) -> None:
    reader = FrameReader(memoryview(bytearray(64)), SIZE_MAX)
    reader.writable()[:4] = struct.pack(">i", size)
    reader.received(4)
    with pytest.raises(FrameTooLarge, match=str(size)):
        reader.next_frame()


def test_memory_grows_with_received_bytes_not_with_the_announced_length() -> None:
    announced, little = 64 << 20, 8 << 20
    reader = FrameReader(memoryview(bytearray(64)), announced)
    reader.writable()[:4] = struct.pack(">i", announced)
    reader.received(4)
    assert reader.next_frame() is None
    before = resident_size()
    reader.settle()
    assert len(reader.writable()) >= announced
    assert resident_size() - before < little
    reader.writable()[: 1 << 20] = bytes(1 << 20)
    assert resident_size() - before < little


@pytest.mark.parametrize("announced", [64 << 10, 1 << 20, MAPPED_FROM_SIZE - 8])
def test_buffer_grows_with_the_bytes_of_a_frame_that_trickles(announced: int) -> None:
    payload = random.Random(2).randbytes(announced)
    reader = FrameReader(memoryview(bytearray(SCRATCH_SIZE)), SIZE_MAX)
    frames, data, step = [], framed(payload), 5
    while data:
        count = min(step, len(data), len(target := reader.writable()))
        target[:count], data = data[:count], data[count:]
        reader.received(count)
        frames += [bytes(frame) for frame in iter(reader.next_frame, None)]
        reader.settle()
        received = len(framed(payload)) - len(data)
        assert reader.kept_size + len(reader.writable()) <= max(GROWTH * received, GROWN_FROM_SIZE, SCRATCH_SIZE)
        step *= 2
    assert frames == [payload]


def test_buffer_is_full_size_once_a_quarter_of_the_frame_arrived() -> None:
    reader = FrameReader(memoryview(bytearray(SCRATCH_SIZE)), SIZE_MAX)
    frame = framed(bytes(1 << 20))
    reader.writable()[:] = frame[:SCRATCH_SIZE]
    reader.received(SCRATCH_SIZE)
    assert reader.next_frame() is None
    reader.settle()
    assert len(reader.writable()) == 3 * SCRATCH_SIZE


def resident_size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_large_frame_grows_into_place() -> None:
    payload = random.Random(1).randbytes(5 << 20)
    reader = FrameReader(memoryview(bytearray(256 << 10)), SIZE_MAX)
    assert feed(reader, framed(payload), 256 << 10) == [payload]
