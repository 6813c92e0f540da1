"""Row writers compared with the ordinary encoder: they write the same bytes in every version."""

import struct
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest

from protocol.codec import decode, encode
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import MetadataResponse
from protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from protocol.row_writer import (
    FIRST_FETCH_VERSION_WITH_IDS,
    RowResponse,
    RowWriter,
    fetch_writer,
    row_writer,
    with_throttle,
)
from protocol.schema import Records
from protocol.writer import BY_REFERENCE_SIZE_MIN
from tests.protocol.random_messages import versions_of

NAME_SIZES = (1, 126, 127, 128, 249)
COUNTS = (1, 126, 127, 128, 200)

Numbers = tuple[int, ...]
Groups = Sequence[tuple[str, Sequence[Numbers]]]


def produce_response(groups: Groups) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_code=code,
                        base_offset=base_offset,
                        log_append_time_ms=log_append_time_ms,
                        log_start_offset=log_start_offset,
                    )
                    for index, code, base_offset, log_append_time_ms, log_start_offset in elements
                ],
            )
            for name, elements in groups
        ]
    )


def offset_commit_response(groups: Groups) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in elements
                ],
            )
            for name, elements in groups
        ]
    )


def list_offsets_response(groups: Groups) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=index,
                        error_code=code,
                        timestamp=timestamp,
                        offset=offset,
                        leader_epoch=leader_epoch,
                    )
                    for index, code, timestamp, offset, leader_epoch in elements
                ],
            )
            for name, elements in groups
        ]
    )


PRODUCE_BITS, OFFSET_COMMIT_BITS, LIST_OFFSETS_BITS = (32, 16, 64, 64, 64), (32, 16), (32, 16, 64, 64, 32)
WITH_LISTS_OF_OFFSETS = 0
"""This version of ListOffsets does not consist of numbers."""

CASES = [
    pytest.param(cls, version, build, bits, id=f"{cls.__name__}-{version}")
    for cls, build, bits in (
        (ProduceResponse, produce_response, PRODUCE_BITS),
        (OffsetCommitResponse, offset_commit_response, OFFSET_COMMIT_BITS),
        (ListOffsetsResponse, list_offsets_response, LIST_OFFSETS_BITS),
    )
    for version in versions_of(cls)
    if cls is not ListOffsetsResponse or version > WITH_LISTS_OF_OFFSETS
]
every_version = pytest.mark.parametrize(("cls", "version", "build", "bits"), CASES)


def elements_of(count: int, bits: Sequence[int], random: Random) -> list[Numbers]:
    def number(size: int) -> int:
        low, high = -(1 << size - 1), (1 << size - 1) - 1
        return random.choice((0, -1, 1, low, high, random.randint(low, high)))

    return [tuple(number(size) for size in bits) for _ in range(count)]


def columns_of(rows: Sequence[tuple[Any, ...]], bits: Sequence[int]) -> Any:
    """The columns of rows of a name and numbers."""
    return zip(*rows, strict=True) if rows else [()] * (1 + len(bits))


def assert_written_as_encoded(cls: type, version: int, build: Any, groups: Groups, bits: Sequence[int]) -> None:
    rows = [(name, *numbers) for name, elements in groups for numbers in elements]
    (written,) = row_writer(cls, version).write(*columns_of(rows, bits))
    assert written == b"".join(encode(build(groups), version))
    if len(rows) == 1:
        assert row_writer(cls, version).write_one(*rows[0]) == [written]


@every_version
def test_rows_with_any_size_of_name_and_count_of_elements_are_written(
    cls: type, version: int, build: Any, bits: Sequence[int]
) -> None:
    random = Random(version)
    for size in NAME_SIZES:
        for count in COUNTS:
            assert_written_as_encoded(cls, version, build, [("n" * size, elements_of(count, bits, random))], bits)


def assert_throttle_is_stated(written: list[Records], response: Any, version: int) -> None:
    stated = with_throttle(RowResponse(1, lambda: list(written)), type(response), version, 17)
    response.throttle_time_ms = 17  # versions without the field leave it out
    assert b"".join(stated.write()) == b"".join(encode(response, version))


@every_version
def test_a_throttle_is_stated_in_the_versions_that_have_the_field(
    cls: type, version: int, build: Any, bits: Sequence[int]
) -> None:
    elements = elements_of(2, bits, Random(version))
    written = row_writer(cls, version).write(*columns_of([("n", *numbers) for numbers in elements], bits))
    assert_throttle_is_stated(written, build([("n", elements)]), version)


@every_version
def test_several_groups_are_written(cls: type, version: int, build: Any, bits: Sequence[int]) -> None:
    random = Random(version)
    for group_count in (0, 1, 2, 5, 126, 127, 128, 200):
        groups = [
            (f"{number}".ljust(random.choice(NAME_SIZES[1:]), "x"), elements_of(random.randint(1, 3), bits, random))
            for number in range(group_count)
        ]
        assert_written_as_encoded(cls, version, build, groups, bits)
    for counts in (COUNTS, COUNTS[::-1]):
        groups = [
            ("n" * size, elements_of(count, bits, random)) for size, count in zip(NAME_SIZES, counts, strict=True)
        ]
        assert_written_as_encoded(cls, version, build, groups, bits)


@every_version
def test_the_length_of_a_name_counts_its_bytes(cls: type, version: int, build: Any, bits: Sequence[int]) -> None:
    elements = elements_of(2, bits, Random(version))
    for name in ("", "é" * 63, "é" * 64, "é" * 63 + "x", "тема-主题", "🙂" * 32, "x" * 0x7FFF):
        assert_written_as_encoded(cls, version, build, [(name, elements), ("other", elements)], bits)


@every_version
def test_rows_that_follow_one_another_under_one_name_are_a_group(
    cls: type, version: int, build: Any, bits: Sequence[int]
) -> None:
    names = ["topic-a", "topic-a", "b", "topic-a", "topic", "topic", "topic", "", ""]
    numbers = elements_of(len(names), bits, Random(version))
    rows = [(name[:1] + name[1:], *row) for name, row in zip(names, numbers, strict=True)]
    groups = [
        ("topic-a", numbers[:2]),
        ("b", numbers[2:3]),
        ("topic-a", numbers[3:4]),
        ("topic", numbers[4:7]),
        ("", numbers[7:]),
    ]
    expected = b"".join(encode(build(groups), version))
    writer = row_writer(cls, version)
    assert writer.write(*columns_of(rows, bits)) == [expected]
    assert writer.write(*columns_of(rows, bits)) == [expected], "nothing of the first response is left in the writer"


@every_version
def test_a_written_response_is_decoded_to_the_rows(cls: type, version: int, build: Any, bits: Sequence[int]) -> None:
    groups = [("n" * size, elements_of(2, bits, Random(version))) for size in NAME_SIZES]
    rows = [(name, *numbers) for name, elements in groups for numbers in elements]
    (written,) = row_writer(cls, version).write(*columns_of(rows, bits))
    assert decode(cls, version, written) == decode(cls, version, b"".join(encode(build(groups), version)))


@every_version
def test_too_long_name_is_rejected(cls: type, version: int, build: Any, bits: Sequence[int]) -> None:
    numbers = elements_of(1, bits, Random(version))
    with pytest.raises((ValueError, struct.error)):
        encode(build([("x" * 0x8000, numbers)]), version)
    with pytest.raises((ValueError, struct.error)):
        row_writer(cls, version).write(*columns_of([("x" * 0x8000, *numbers[0])], bits))


@every_version
def test_number_out_of_range_is_rejected(cls: type, version: int, build: Any, bits: Sequence[int]) -> None:
    too_large = tuple(1 << size - 1 for size in bits)
    with pytest.raises(struct.error):
        encode(build([("n", [too_large])]), version)
    with pytest.raises(struct.error):
        row_writer(cls, version).write(*columns_of([("n", *too_large)], bits))


@pytest.mark.parametrize(
    ("cls", "version", "text"),
    [
        (HeartbeatResponse, 0, "HeartbeatResponse v0 has 0 lists of structs"),
        (MetadataResponse, 1, "MetadataResponse v1 has 2 lists of structs"),
    ],
)
def test_a_message_of_another_kind_is_a_type_error(cls: type, version: int, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        RowWriter(cls, version)


def test_a_version_that_is_not_declared_is_rejected() -> None:
    for cls in (ProduceResponse, OffsetCommitResponse):
        version = versions_of(cls).stop
        with pytest.raises(ValueError, match=f"has no version {version}"):
            row_writer(cls, version)


def test_writers_are_compiled_once() -> None:
    assert row_writer(ProduceResponse, 9) is row_writer(ProduceResponse, 9)
    assert fetch_writer(12) is fetch_writer(12)


# FetchResponse

FIRST_FETCH_VERSION_WITH_SESSIONS = 7
FETCHED_COUNTS = (0, 1, 126, 127, 200)

FetchedTopics = Sequence[tuple[str, UUID, Sequence[tuple[int, int, int, int, Records]]]]


def fetch_response(session_id: int, topics: FetchedTopics, *, is_committed: bool) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=high_watermark,
                        last_stable_offset=last_stable_offset,
                        log_start_offset=log_start_offset,
                        aborted_transactions=[] if is_committed else None,
                        records=records,
                    )
                    for index, high_watermark, last_stable_offset, log_start_offset, records in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )


def fetched_topics(random: Random, name_sizes: Sequence[int], counts: Sequence[int]) -> FetchedTopics:
    record_sizes = (0, 1, 126, 127, 128, BY_REFERENCE_SIZE_MIN - 1, BY_REFERENCE_SIZE_MIN, 20_000)
    large = {size: memoryview(random.randbytes(size)) for size in record_sizes}
    return [
        (
            "n" * size,
            UUID(int=random.getrandbits(128)),
            [
                (
                    random.randint(0, 2**31 - 1),
                    random.randint(-1, 2**63 - 1),
                    random.randint(-1, 2**63 - 1),
                    random.randint(-1, 2**63 - 1),
                    large[random.choice(record_sizes)],
                )
                for _ in range(count)
            ],
        )
        for size, count in zip(name_sizes, counts, strict=True)
    ]


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("version", versions_of(FetchResponse))
def test_written_fetch_response_equals_the_encoded_one(version: int, is_committed: bool) -> None:
    random = Random(version)
    cases: list[tuple[Sequence[int], Sequence[int]]] = [
        ((), ()),
        (NAME_SIZES, FETCHED_COUNTS),
        (NAME_SIZES, FETCHED_COUNTS[::-1]),
    ]
    cases += [((size,), (count,)) for size in NAME_SIZES for count in FETCHED_COUNTS[:4]]
    cases += [((3,) * count, (1,) * count) for count in (126, 127, 128)]
    for name_sizes, counts in cases:
        topics = fetched_topics(random, name_sizes, counts)
        for session_id in (0, 77, 2**31 - 1) if version >= FIRST_FETCH_VERSION_WITH_SESSIONS else (0,):
            buffers = fetch_writer(version).write(session_id, topics, is_committed=is_committed)
            expected = encode(fetch_response(session_id, topics, is_committed=is_committed), version)
            assert b"".join(buffers) == b"".join(expected)


@pytest.mark.parametrize("version", versions_of(FetchResponse))
def test_a_throttle_is_stated_before_the_records(version: int) -> None:
    topics = fetched_topics(Random(version), (5, 6), (1, 3))
    written = fetch_writer(version).write(7, topics, is_committed=True)
    assert_throttle_is_stated(written, fetch_response(7, topics, is_committed=True), version)


@pytest.mark.parametrize("version", versions_of(FetchResponse))
def test_large_records_are_written_by_reference(version: int) -> None:
    topics = fetched_topics(Random(1), NAME_SIZES, (5,) * len(NAME_SIZES))
    buffers = fetch_writer(version).write(0, topics, is_committed=True)
    large = [row[4] for _, _, rows in topics for row in rows if len(row[4]) >= BY_REFERENCE_SIZE_MIN]
    assert len(large) > 2
    for records in large:
        assert any(buffer is records for buffer in buffers)
    assert len(buffers) <= 2 * len(large) + 1
    assert len(buffers) <= len(encode(fetch_response(0, topics, is_committed=True), version))


def test_a_fetch_response_has_topic_ids_in_place_of_names() -> None:
    for version in versions_of(FetchResponse):
        written = b"".join(fetch_writer(version).write(0, [("name", UUID(int=1 << 127), [])], is_committed=False))
        has_id = version >= FIRST_FETCH_VERSION_WITH_IDS
        assert (UUID(int=1 << 127).bytes in written) is has_id
        assert (b"name" in written) is not has_id
