"""Scanners compared with the readers of the same versions: they return the same values and reject the same bytes."""

import pkgutil
import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest

import protocol.messages
from protocol.codec import Decoder, decoder, encode, scanner
from protocol.errors import Malformed
from protocol.messages.heartbeat import HeartbeatRequest, ScannedHeartbeat
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceRow,
    ScannedProduce,
    TopicProduceData,
)
from protocol.reader import ELEMENTS_UNLIMITED, TooManyElements
from protocol.schema import int16, int32, message, since, string, struct
from tests.protocol.random_messages import mutated, random_message, versions_of
from tests.protocol.test_codec import PYTHONS_WORDS

Outcome = tuple[object, ...]


def scanned_messages() -> Iterator[tuple[type, type]]:
    """Every request class with the tuple that it is scanned into, which is declared beside it."""
    for module_info in pkgutil.iter_modules(protocol.messages.__path__):
        module = import_module(f"protocol.messages.{module_info.name}")
        for name, scanned in vars(module).items():
            if name.startswith("Scanned") and scanned.__module__ == module.__name__:
                yield getattr(module, name.removeprefix("Scanned") + "Request"), scanned


SCANNED = list(scanned_messages())
every_scanned = pytest.mark.parametrize(("cls", "scanned"), SCANNED, ids=[scanned.__name__ for _, scanned in SCANNED])


# The expected tuples, made of the objects that a reader returns


def field_names(row: Any) -> list[tuple[str, str]]:
    """The fields of a tuple, and what the message calls them."""
    return [(name, name.removesuffix("_")) for name in row._fields]


def flattened(decoded: Any, scanned: Any) -> Any:
    """The tuple for a decoded message."""
    hints = get_type_hints(scanned)
    values = []
    for name, field in field_names(scanned):
        value = getattr(decoded, field)
        row = get_args(hints[name])[0] if get_origin(hints[name]) is list else None
        values.append(value if value is None or not hasattr(row, "_fields") else rows_of(value, row))
    return scanned(*values)


def rows_of(structs: list[Any], row: Any) -> list[Any]:
    found = []
    for each in structs:
        if all(hasattr(each, field) for _, field in field_names(row)):
            found.append(row(*(getattr(each, field) for _, field in field_names(row))))
            continue
        (nested,) = (field.name for field in each.__fields__ if field.is_array and field.struct is not None)
        for inner in getattr(each, nested) or ():
            holders = [(inner if hasattr(inner, field) else each, field) for _, field in field_names(row)]
            found.append(row(*(getattr(holder, field) for holder, field in holders)))
    return found


def types_in(value: object) -> object:
    """Return the types of a tuple, its rows and their values, because `==` ignores the type of a named tuple."""
    if isinstance(value, tuple):
        return type(value), [types_in(each) for each in value]
    return [types_in(each) for each in value] if isinstance(value, list) else type(value)


def assert_same(found: object, expected: object) -> None:
    assert found == expected
    assert types_in(found) == types_in(expected)


def both(cls: type, scanned: type, version: int) -> tuple[Callable[..., Outcome], Callable[..., Outcome]]:
    """Return the reader and the scanner of one version as functions whose results can be compared."""

    def outcomes_of(read: Decoder[Any], as_tuple: Callable[[Any], Any]) -> Callable[..., Outcome]:
        def outcome(data: bytes, elements_left: int = ELEMENTS_UNLIMITED) -> Outcome:
            try:
                return ("accepted", as_tuple(read(memoryview(data), 0, elements_left)))
            except Malformed as error:
                return ("rejected", type(error), str(error))

        return outcome

    return (
        outcomes_of(decoder(cls, version), lambda decoded: flattened(decoded, scanned)),
        outcomes_of(scanner(cls, scanned, version), lambda found: found),
    )


def encoded(cls: type, version: int, random: Random, *, list_size_max: int = 3) -> bytes:
    return b"".join(encode(random_message(cls, version, random, list_size_max=list_size_max), version))


def test_every_scanned_tuple_is_tested() -> None:
    assert {(ProduceRequest, ScannedProduce), (HeartbeatRequest, ScannedHeartbeat)} <= {*SCANNED}


@every_scanned
def test_scanner_returns_the_flattened_result_of_the_reader(cls: type, scanned: type) -> None:
    for version in versions_of(cls):
        for seed in range(40):
            data = encoded(cls, version, Random(seed))
            expected = flattened(decoder(cls, version)(data), scanned)
            scan: Decoder[Any] = scanner(cls, scanned, version)
            assert_same(scan(memoryview(data)), expected)
            assert_same(scan(memoryview(bytearray(data))), expected)
            assert_same(scan(memoryview(b"...." + data), 4), expected)
            assert_same(scan(memoryview(b"...." + data)[4:]), expected)


@every_scanned
def test_bytes_after_the_end_are_ignored(cls: type, scanned: type) -> None:
    for version in versions_of(cls):
        data = encoded(cls, version, Random(version))
        scan: Decoder[Any] = scanner(cls, scanned, version)
        assert_same(scan(memoryview(data + b"\0\0\0")), scan(memoryview(data)))


@every_scanned
def test_every_truncation_is_rejected_as_by_the_reader(cls: type, scanned: type) -> None:
    for version in versions_of(cls):
        data = encoded(cls, version, Random(version), list_size_max=2)
        read, scan = both(cls, scanned, version)
        for size in range(len(data)):
            outcome = scan(data[:size])
            assert outcome == read(data[:size]), (version, size)
            assert outcome[0] == "rejected"
            assert not PYTHONS_WORDS.search(str(outcome[2]))


@every_scanned
def test_changed_byte_has_the_same_result_as_with_the_reader(cls: type, scanned: type) -> None:
    random = Random(cls.__name__)
    for version in versions_of(cls):
        data = encoded(cls, version, random, list_size_max=2)[:400]
        read, scan = both(cls, scanned, version)
        for position in range(len(data)):
            for byte in (0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)):
                mutant = data[:position] + bytes([byte]) + data[position + 1 :]
                assert scan(mutant) == read(mutant), (version, mutant)


@every_scanned
def test_mutations_have_the_same_result_as_with_the_reader(cls: type, scanned: type) -> None:
    random = Random(cls.__name__)
    accepted_count = 0
    for version in versions_of(cls):
        read, scan = both(cls, scanned, version)
        for _ in range(400):
            mutant = mutated(encoded(cls, version, random, list_size_max=2), random)
            elements_left = random.choice((0, 1, 3, 10, ELEMENTS_UNLIMITED))
            outcome = scan(mutant, elements_left)
            assert outcome == read(mutant, elements_left), (version, mutant, elements_left)
            accepted_count += outcome[0] == "accepted"
    assert accepted_count > 50, "mutants that are all rejected prove little"


@every_scanned
def test_elements_are_counted_as_by_the_reader(cls: type, scanned: type) -> None:
    for version in versions_of(cls):
        read, scan = both(cls, scanned, version)
        for seed in range(5):
            data = encoded(cls, version, Random(seed))
            for elements_left in range(1000):
                outcome = scan(data, elements_left)
                assert outcome == read(data, elements_left), (version, seed, elements_left)
                if outcome[0] == "accepted":
                    break
                assert outcome[1] is TooManyElements
            else:
                raise AssertionError("never accepted")


@every_scanned
def test_unknown_tags_are_counted_and_skipped_as_by_the_reader(cls: type, scanned: type) -> None:
    """Tags that no version has, in place of each empty section of tagged fields."""
    section = bytes.fromhex("02 7e01aa 7f02bbcc")
    for version in versions_of(cls):
        data = encoded(cls, version, Random(version))
        read, scan = both(cls, scanned, version)
        for position in range(len(data)):
            if data[position] == 0:
                tagged = data[:position] + section + data[position + 1 :]
                for elements_left in (0, 1, 2, 8, ELEMENTS_UNLIMITED):
                    assert scan(tagged, elements_left) == read(tagged, elements_left), (version, position)


@every_scanned
@pytest.mark.parametrize("count", [10, 10_000, 0x7FFF_FFFE])
def test_a_hostile_count_allocates_nothing(cls: type, scanned: type, count: int) -> None:
    """A count in place of any bytes of a message that is nearly empty."""
    counts = [count.to_bytes(4, "big"), bytes.fromhex({10: "0b", 10_000: "914e", 0x7FFF_FFFE: "ffffffff07"}[count])]
    for version in versions_of(cls):
        data = encoded(cls, version, Random(1), list_size_max=1)[:100]
        scan: Decoder[Any] = scanner(cls, scanned, version)
        for position in range(len(data)):
            for hostile in counts:
                mutant = data[:position] + hostile + data[position + len(hostile) :]
                tracemalloc.start()
                try:
                    scan(memoryview(mutant))
                except Malformed:
                    pass
                finally:
                    peak = tracemalloc.get_traced_memory()[1]
                    tracemalloc.stop()
                assert peak < 20_000, (version, position)


def test_rows_take_no_more_memory_than_objects() -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="x" * 249, partition_data=[PartitionProduceData(index=index, records=b"")] * size)
            for index, size in enumerate([1] * 1000 + [100] * 10)
        ],
    )
    data = b"".join(encode(request, 9))

    def peak_of(read: Decoder[object]) -> int:
        tracemalloc.start()
        try:
            assert read(memoryview(data)) is not None
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_of(scanner(ProduceRequest, ScannedProduce, 9)) <= peak_of(decoder(ProduceRequest, 9))


def test_records_are_views_that_stay_writable() -> None:
    records = bytes(range(256)) * 10
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    scan = scanner(ProduceRequest, ScannedProduce, 9)
    frame = bytearray(b"".join(encode(request, 9)))
    ((_, _, view),) = scan(memoryview(frame)).topic_data
    assert isinstance(view, memoryview)
    assert not view.readonly
    view[0] = 99
    assert frame.count(bytes([99]) + records[1:]) == 1
    ((_, _, unwritable),) = scan(memoryview(bytes(frame))).topic_data
    assert isinstance(unwritable, memoryview)
    assert unwritable.readonly


def test_rows_of_several_topics_keep_their_order_and_empty_topics_have_none() -> None:
    counts = {"a": 2, "empty": 0, "b": 1, "a again": 3}
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=None) for index in range(count)]
            )
            for name, count in counts.items()
        ],
    )
    for version in versions_of(ProduceRequest):
        found = scanner(ProduceRequest, ScannedProduce, version)(memoryview(b"".join(encode(request, version))))
        expected = [ProduceRow(name, index, None) for name, count in counts.items() for index in range(count)]
        assert_same(found, ScannedProduce(None, -1, 5, expected))


def test_scanners_are_compiled_once() -> None:
    assert scanner(HeartbeatRequest, ScannedHeartbeat, 3) is scanner(HeartbeatRequest, ScannedHeartbeat, 3)


def test_a_version_that_is_not_declared_is_rejected() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has no version 5, only 0 to 4"):
        scanner(HeartbeatRequest, ScannedHeartbeat, 5)


# Declarations that no message of the protocol has


@struct
class SamplePartition:
    index: int32
    error_code: int16 = since(1, default=-7)
    tag: int32 = since(2, tag=3, default=5)


@struct
class SampleTopic:
    name: string
    epoch: int32 = since(1, default=-3)
    partitions: list[SamplePartition]
    late: int32 = 0
    tagged: int32 = since(2, tag=0, default=0)


@struct
class SampleNode:
    node_id: int32
    racks: list[string]


@message(99, versions=range(0, 3), flexible=2)
class SampleRequest:
    topics: list[SampleTopic]
    nodes: list[SampleNode] = since(1, default=[])
    count: int32 = 0
    tagged: list[SampleNode] = since(2, tag=1, default=[])


class SampleRow(NamedTuple):
    index_: int
    name: str
    epoch: int
    error_code: int
    tag: int


class NodeRow(NamedTuple):
    racks: list[str]
    node_id: int


class ScannedSample(NamedTuple):
    tagged: list[NodeRow]
    count_: int
    topics: list[SampleRow]
    nodes: list[NodeRow]


class ScannedObjects(NamedTuple):
    nodes: list[SampleNode]


class ScannedNothing(NamedTuple):
    count_: int


@pytest.mark.parametrize("scanned", [ScannedSample, ScannedObjects, ScannedNothing])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_tuple_has_any_of_the_fields_in_any_order(scanned: type, version: int) -> None:
    read, scan = both(SampleRequest, scanned, version)
    for seed in range(100):
        random = Random(seed)
        data = encoded(SampleRequest, version, random)
        expected = flattened(decoder(SampleRequest, version)(data), scanned)
        assert_same(scanner(SampleRequest, scanned, version)(memoryview(data)), expected)
        for _ in range(20):
            mutant = mutated(data, random)
            elements_left = random.choice((0, 1, 3, 10, ELEMENTS_UNLIMITED))
            assert scan(mutant, elements_left) == read(mutant, elements_left), mutant


def test_fields_that_a_version_lacks_have_their_defaults() -> None:
    request = SampleRequest(
        topics=[SampleTopic(name="t", partitions=[SamplePartition(index=1), SamplePartition(index=2)], late=9)], count=4
    )
    data = b"".join(encode(request, 0))
    assert_same(
        scanner(SampleRequest, ScannedSample, 0)(memoryview(data)),
        ScannedSample([], 4, [SampleRow(1, "t", -3, -7, 5), SampleRow(2, "t", -3, -7, 5)], []),
    )


def test_a_default_list_is_fresh_in_every_tuple() -> None:
    data = memoryview(b"".join(encode(SampleRequest(topics=[]), 0)))
    scan = scanner(SampleRequest, ScannedSample, 0)
    assert scan(data).nodes is not scan(data).nodes


class RowWithUnknown(NamedTuple):
    name: str
    index_: int
    size: int


class ScannedUnknownInRow(NamedTuple):
    topics: list[RowWithUnknown]


class FlatRowWithUnknown(NamedTuple):
    node_id: int
    host: str


class ScannedUnknownInFlatRow(NamedTuple):
    nodes: list[FlatRowWithUnknown]


class ScannedUnknown(NamedTuple):
    count_: int
    size: int


class RowWithLate(NamedTuple):
    name: str
    index_: int
    late: int


class ScannedLate(NamedTuple):
    topics: list[RowWithLate]


class RowWithTagged(NamedTuple):
    index_: int
    tagged: int


class ScannedTagged(NamedTuple):
    topics: list[RowWithTagged]


@pytest.mark.parametrize(
    ("scanned", "version", "text"),
    [
        (ScannedUnknown, 0, r"ScannedUnknown: SampleRequest has no \['size'\]"),
        (ScannedUnknownInRow, 0, r"RowWithUnknown: .* has no \['size'\]"),
        (ScannedUnknownInFlatRow, 1, r"FlatRowWithUnknown: SampleNode has no \['host'\]"),
        (ScannedLate, 0, "RowWithLate: SampleTopic.late follows partitions"),
        (ScannedLate, 2, "RowWithLate: SampleTopic.late follows partitions"),
        (ScannedTagged, 2, "RowWithTagged: SampleTopic.tagged follows partitions"),
    ],
)
def test_a_wrong_declaration_is_a_type_error(scanned: type, version: int, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        scanner(SampleRequest, scanned, version)


@struct
class SampleItem:
    size: int32


@struct
class SampleInfo:
    items: list[SampleItem]


@struct
class SamplePart:
    index: int32


@struct
class SampleOwner:
    info: SampleInfo
    name: string
    parts: list[SamplePart] = since(1, default=[])


@message(12, versions=range(0, 3), flexible=2)
class NestingRequest:
    owners: list[SampleOwner] | None


class NestingRow(NamedTuple):
    info: SampleInfo
    name: str
    index_: int


class ScannedNesting(NamedTuple):
    owners_: list[NestingRow] | None


@pytest.mark.parametrize("version", [1, 2])
def test_a_struct_within_a_row_is_an_object_with_lists_of_its_own(version: int) -> None:
    info = SampleInfo(items=[SampleItem(size=5), SampleItem(size=6)])
    owner = SampleOwner(info=info, name="n", parts=[SamplePart(index=7), SamplePart(index=8)])
    scan = scanner(NestingRequest, ScannedNesting, version)
    frame = memoryview(b"".join(encode(NestingRequest(owners=[owner]), version)))
    assert scan(frame).owners_ == [(info, "n", 7), (info, "n", 8)]
    assert scan(memoryview(b"".join(encode(NestingRequest(owners=None), version)))).owners_ is None


def test_rows_need_their_nested_list_in_every_version() -> None:
    with pytest.raises(TypeError, match=r"SampleOwner\.parts is tagged, or not in version 0"):
        scanner(NestingRequest, ScannedNesting, 0)


def test_one_tuple_of_two_messages_has_two_scanners() -> None:
    @message(12, versions=range(1), flexible=None)
    class WideRequest:
        before: int16
        acks: int16

    @message(12, versions=range(1), flexible=None)
    class NarrowRequest:
        acks: int16

    class ScannedAcks(NamedTuple):
        acks: int

    assert scanner(NarrowRequest, ScannedAcks, 0)(memoryview(b"\0\1")).acks == 1
    assert scanner(WideRequest, ScannedAcks, 0)(memoryview(b"\0\1\0\2")).acks == 2
