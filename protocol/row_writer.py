"""Write responses that consist of names and numbers, such as those of OffsetCommit and of Produce without errors.

Owns the layout of such a response in one version, which follows from its declaration. Must not know what the numbers
mean, or how other responses are written (`protocol.writer`).

Such a message has one list of groups (topics), each a name and a list of elements (partitions), and each element begins
with numbers. All other fields have their defaults, so their bytes are constant and are encoded once per version:

    prefix | count of groups | group ... group | suffix
    group:   name | count of elements | element ... element | empty tag section (flexible versions)
    element: numbers | tail (the fields after the numbers, with their defaults)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby, islice, starmap
from struct import Struct as Layout
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from protocol.codec import encode, encode_element
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.schema import REQUIRED, Field, Records, Struct, first_version, message_info
from protocol.source import plan
from protocol.writer import BY_REFERENCE_SIZE_MIN, SHORT_LENGTHS, long_string_length, uvarint

FIRST_FETCH_VERSION_WITH_SESSIONS = first_version(FetchResponse, "session_id")
FIRST_FETCH_VERSION_WITH_IDS = first_version(FetchableTopicResponse, "topic_id")

_COUNT = Layout(">i")
_STRING_LENGTH = Layout(">h")
_THROTTLE = "throttle_time_ms"
_SHORT_STRING_LENGTHS = tuple(map(_STRING_LENGTH.pack, range(127))), SHORT_LENGTHS[1:]
"""The encoded lengths of strings of up to 126 bytes, for versions that are not flexible and for flexible ones."""


NO_ERRORS: Mapping[int, int] = MappingProxyType({})


class RowResponse(NamedTuple):
    """A response of many equal elements, not yet encoded: the event loop encodes it only if they are few."""

    row_count: int
    """The number of elements."""
    write: Callable[[], list[Records]]
    """Returns the buffers of the message, without a header. Callable from any thread."""
    error_counts: Mapping[int, int] = NO_ERRORS
    """How often each error code occurs in the elements, without NONE."""


class RowWriter:
    """The writer of one version of one response."""

    __slots__ = (
        "_around_one",
        "_group_end",
        "_is_flexible",
        "_number_count",
        "_pack",
        "_prefix",
        "_string_lengths",
        "_suffix",
        "_tail",
    )

    def __init__(self, cls: type[Any], version: int) -> None:
        """Compute the constant parts of the layout.

        Raises:
            TypeError: `cls` does not have the form that the module describes.
            ValueError: `cls` has no such version.
        """
        if version not in message_info(cls).versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        groups = _only_list(cls, version)
        assert groups.struct is not None
        elements = _only_list(groups.struct, version)
        assert elements.struct is not None
        _require_name_and_list(groups.struct, version)
        _require_numbers_before(cls, groups, version)
        letters = _leading_letters(elements.struct, version)
        whole = encode_element(cls, _with_defaults(elements.struct), version)
        numbers = Layout(">" + letters)
        self._is_flexible = message_info(cls).is_flexible_in(version)
        self._tail = whole[numbers.size :]
        self._group_end = self._tail + (b"\0" if self._is_flexible else b"")
        self._pack = numbers.pack
        self._number_count = len(letters)
        empty = b"".join(encode(cls(**{groups.name: []}), version))
        count_size = 1 if self._is_flexible else _COUNT.size
        prefix_size = Layout(">" + _leading_letters(cls, version)).size
        self._prefix, self._suffix = empty[:prefix_size], empty[prefix_size + count_size :]
        one = _count(1, self._is_flexible)
        self._around_one = self._prefix + one, one, self._group_end + self._suffix
        self._string_lengths = _SHORT_STRING_LENGTHS[self._is_flexible]

    def write(self, names: Sequence[str], *columns: Iterable[int]) -> list[Records]:
        """Return the one buffer of the message, without a header.

        The elements come as columns: `names` has the name of each element's group, and each further column one number
        of each element. The columns hold all numbers of the newest version, in the order of declaration; this version
        packs the first of them. Consecutive elements with the same name form a group.
        """
        is_flexible = self._is_flexible
        # By columns, no step of the interpreter is spent on an element.
        elements = starmap(self._pack, zip(*columns[: self._number_count], strict=False))
        parts: list[bytes] = []
        group_count = 0
        for name, group in groupby(names):
            count = len(list(group))
            parts += (
                _string(name, is_flexible),
                _count(count, is_flexible),
                self._tail.join(islice(elements, count)),
                self._group_end,
            )
            group_count += 1
        return [b"".join((self._prefix, _count(group_count, is_flexible), *parts, self._suffix))]

    def write_one(self, name: str, *numbers: int) -> list[Records]:
        """Return what `write` returns for one element, as most messages have.

        Everything but its name and its numbers is constant and encoded already.
        """
        start, middle, stop = self._around_one
        text = name.encode()
        size = len(text)
        length = self._string_lengths[size] if size < 127 else _string_length(size, self._is_flexible)
        packed = self._pack(*numbers[: self._number_count])
        return [b"".join((start, length, text, middle, packed, stop))]


class FetchWriter:
    """The writer of one version of a FetchResponse without errors: names, numbers and records.

    No partition has an error, aborted transactions or tagged fields. Layout, with the constant parts in capitals:

        PREFIX (ends in session id) | count | topic ... topic | SUFFIX
        topic:     name or topic id | count | partition ... partition | TAIL
        partition: numbers | MIDDLE (aborted transactions, preferred replica) | length of records | records | TAIL

    MIDDLE depends on the isolation level: the list of aborted transactions is empty for read_committed, else null.
    SUFFIX and TAIL are the empty tag section of flexible versions.
    """

    __slots__ = (
        "_has_sessions",
        "_is_flexible",
        "_middles",
        "_number_count",
        "_numbers",
        "_prefix",
        "_suffix",
        "_tail",
        "_uses_ids",
    )

    def __init__(self, version: int) -> None:
        letters = _leading_letters(PartitionData, version)
        self._numbers = Layout(">" + letters)
        self._number_count = len(letters)
        self._is_flexible = message_info(FetchResponse).is_flexible_in(version)
        self._has_sessions = version >= FIRST_FETCH_VERSION_WITH_SESSIONS
        self._uses_ids = version >= FIRST_FETCH_VERSION_WITH_IDS
        self._tail = b"\0" if self._is_flexible else b""
        end = len(self._tail) + (1 if self._is_flexible else _COUNT.size)
        self._middles = {
            is_committed: encode_element(
                FetchResponse,
                PartitionData(partition_index=0, aborted_transactions=[] if is_committed else None, records=b""),
                version,
            )[self._numbers.size : -end]
            for is_committed in (False, True)
        }
        whole = b"".join(encode(FetchResponse(session_id=0), version))
        count_size = 1 if self._is_flexible else _COUNT.size
        self._suffix = self._tail
        self._prefix = whole[: len(whole) - len(self._suffix) - count_size]

    def write(
        self,
        session_id: int,
        topics: Sequence[tuple[str, UUID, Sequence[tuple[int, int, int, int, Records]]]],
        *,
        is_committed: bool,
    ) -> list[Records]:
        """Return the buffers of the message, without a header.

        A topic is its name, its id and its partitions. A partition is its index, high watermark, last stable offset,
        log start offset and records, which may be a slice of a file. `is_committed` is set if the request was
        read_committed. Records of `BY_REFERENCE_SIZE_MIN` bytes or more are returned as buffers of their own, not
        copied.
        """
        out: list[Records] = []
        prefix = self._prefix
        if session_id and self._has_sessions:
            prefix = prefix[: -_COUNT.size] + _COUNT.pack(session_id)
        parts: list[Records] = [prefix, _count(len(topics), self._is_flexible)]
        middle, tail, count = self._middles[is_committed], self._tail, self._number_count
        for name, topic_id, partitions in topics:
            parts.append(topic_id.bytes if self._uses_ids else _string(name, self._is_flexible))
            parts.append(_count(len(partitions), self._is_flexible))
            for index, high_watermark, last_stable_offset, log_start_offset, records in partitions:
                numbers = (index, 0, high_watermark, last_stable_offset, log_start_offset)[:count]
                size = len(records)
                length = _COUNT.pack(size) if not self._is_flexible else uvarint(size + 1)
                parts += (self._numbers.pack(*numbers), middle, length)
                if size < BY_REFERENCE_SIZE_MIN:
                    parts.append(records)
                else:
                    out += (b"".join(parts), records)
                    parts = []
                parts.append(tail)
            parts.append(tail)
        parts.append(self._suffix)
        last = b"".join(parts)
        if last:
            out.append(last)
        return out


def with_throttle(response: RowResponse, cls: type[Any], version: int, throttle_time_ms: int) -> RowResponse:
    """Return a response in a version of `cls` that states a throttle, if that version has a field for it.

    The field is the first one, or the last before the tagged fields, which are empty.
    """
    fields, stated = plan(cls, version).untagged, _COUNT.pack(throttle_time_ms)
    if fields[0].name == _THROTTLE:
        return response._replace(write=lambda: _with_first(response.write(), stated))
    if fields[-1].name == _THROTTLE:
        tags = b"\0" if message_info(cls).is_flexible_in(version) else b""
        return response._replace(write=lambda: _with_last(response.write(), stated + tags))
    return response


def _with_first(buffers: list[Records], number: bytes) -> list[Records]:
    return [number + bytes(buffers[0][len(number) :]), *buffers[1:]]


def _with_last(buffers: list[Records], end: bytes) -> list[Records]:
    return [*buffers[:-1], bytes(buffers[-1][: -len(end)]) + end]


@cache
def fetch_writer(version: int) -> FetchWriter:
    """Return the cached `FetchWriter` of `version`."""
    return FetchWriter(version)


@cache
def row_writer(cls: type[Any], version: int) -> RowWriter:
    """Return the cached `RowWriter` of `cls` in `version`."""
    return RowWriter(cls, version)


def other_counts(error_codes: Iterable[int]) -> Mapping[int, int]:
    """Return how often each code other than NONE occurs, for `RowResponse.error_counts`."""
    counts = Counter(error_codes)
    del counts[ErrorCode.NONE]
    return counts


def _count(count: int, is_flexible: bool) -> bytes:
    if not is_flexible:
        return _COUNT.pack(count)
    return SHORT_LENGTHS[count + 1] if count < 127 else uvarint(count + 1)


def _string(text: str, is_flexible: bool) -> bytes:
    encoded = text.encode()
    return _string_length(len(encoded), is_flexible) + encoded


def _string_length(size: int, is_flexible: bool) -> bytes:
    if size < 127:
        return _SHORT_STRING_LENGTHS[is_flexible][size]
    return long_string_length(size + 1) if is_flexible else _STRING_LENGTH.pack(size)


def _only_list(cls: type[Struct], version: int) -> Field:
    lists = [field for field in plan(cls, version).untagged if field.is_array and field.struct is not None]
    if len(lists) != 1:
        raise TypeError(f"{cls.__name__} v{version} has {len(lists)} lists of structs, expected one")
    return lists[0]


def _require_name_and_list(cls: type[Struct], version: int) -> None:
    fields = plan(cls, version).untagged
    if len(fields) != 2 or fields[0].is_array or fields[0].wire is None or fields[0].wire.name != "string":
        raise TypeError(f"{cls.__name__} v{version} must have exactly two fields, a name and a list")


def _require_numbers_before(cls: type[Any], groups: Field, version: int) -> None:
    if plan(cls, version).untagged.index(groups) != len(_leading_letters(cls, version)):
        raise TypeError(f"{cls.__name__} v{version}: only numbers may precede {groups.name}")


def _leading_letters(cls: type[Any], version: int) -> str:
    """Return the `struct` letters of the numbers at the start of a struct."""
    letters = ""
    for field in plan(cls, version).untagged:
        if field.is_array or field.wire is None or not field.wire.letter:
            break
        letters += field.wire.letter
    return letters


def _with_defaults(cls: type[Struct]) -> Struct:
    required = [field for field in cls.__fields__ if field.default is REQUIRED]
    for field in required:
        if field.is_array or field.wire is None or not field.wire.letter:
            raise TypeError(f"{cls.__name__}.{field.name} is not a number and has no default")
    return cls(**{field.name: 0 for field in required})
