"""Records of a topic for the console: pages of the newest or the oldest, single records, searches, tails and counts.

Owns what a page of records contains and the bounds of long reads. Must not know HTTP: a long read yields its lines.

A cursor names the partitions, and the offsets before which, or from which on, nothing was returned yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final, Literal, TypedDict

from broker.console.console import Console
from broker.console.problem import ProblemError, bad_request
from broker.console.records.cursors import INT64_MAX, cursor_of, offsets_of_cursor
from broker.console.records.filters import FilterError, Matches, parse_filter
from broker.console.records.pieces import Found, Piece, Range
from broker.console.records.registry_values import SchemaValues, schema_values, with_schemas
from broker.console.records.values import (
    VALUE_SIZE_MAX,
    WHOLE_VALUE_SIZE_MAX,
    ShownRecord,
    shown_record,
)
from broker.console.topics import require_topic
from protocol.errors import ErrorCode

LONG_READS_MAX: Final = 6
"""How many searches, tails and counts run at the same time."""
SEARCH_TIME_MAX_MS: Final = 120_000
SEARCH_BYTES_MAX: Final = 4 << 30
SEARCH_PIECE_SIZE: Final = 512 << 10
SEARCH_PARTITIONS: Final = 8
"""Partitions that a search reads at the same time."""
PROGRESS_MS: Final = 500
TAIL_PAUSE_S: Final = 0.25
TAIL_TIME_MAX_MS: Final = 3_600_000
TAIL_LINE_RECORDS: Final = 200
OFFSET_OUT_OF_RANGE: Final = 1
STOPPING: Final = "the broker stops"

Direction = Literal["newest", "oldest"]
Isolation = Literal["read_uncommitted", "read_committed"]
ValueForm = Literal["auto", "hex"]


class RecordPage(TypedDict):
    """Some records. `cursor` gets the next page; it is null after the last one."""

    records: list[ShownRecord]
    cursor: str | None
    is_complete: bool
    problems: list[str]


class WholeRecord(TypedDict):
    """One record with its whole values, and the offsets of the records before and after it in its partition."""

    record: ShownRecord
    previous: str | None
    next: str | None


class Progress(TypedDict):
    """How far a long read is; offsets are counted, also those of records that are gone.

    `undecoded` counts keys and values that their schema did not open, so that the filter saw their bytes.
    """

    scanned: int
    total: int
    bytes: int
    matches: int
    undecoded: int


class Line(TypedDict, total=False):
    """One line of a long read."""

    record: ShownRecord
    records: list[ShownRecord]
    progress: Progress
    done: str
    behind: int
    gap: str
    problem: str
    counts: dict[str, int]


async def records(
    console: Console,
    *,
    name: str,
    limit: int,
    partition: int,
    cursor: str,
    isolation: Isolation,
    form: ValueForm,
    order: Direction,
    until: int,
    since: int,
    from_offset: int,
) -> RecordPage:
    """Return the newest or the oldest records, over all partitions or of one.

    The newest may leave out what is newer than `until` (ms). The oldest may begin at `since` (ms) or at an offset.
    """
    require_topic(console, name)
    partitions = _partitions(console, name, partition)
    at = offsets_of_cursor(cursor)
    is_committed = isolation == "read_committed"
    if order == "newest":
        if until >= 0 and not at:
            at = await _offsets_at(console, name, partitions, until + 1)
        page = await console.reader.newest(name, limit, partitions=partitions, before=at, is_committed=is_committed)
    else:
        if since >= 0 and not at:
            none = dict.fromkeys(partitions, INT64_MAX)  # no record is as new as that
            at = none | await _offsets_at(console, name, partitions, since)
        start = at or dict.fromkeys(partitions, from_offset)
        page = await console.reader.oldest(name, limit, partitions=partitions, start=start, is_committed=is_committed)
    return RecordPage(
        records=await shown(console, page.found, form),
        cursor=cursor_of(page.cursor) if page.has_more else None,
        is_complete=page.is_complete,
        problems=page.problems[:20],
    )


async def _offsets_at(console: Console, name: str, partitions: list[int], time_ms: int) -> dict[int, int]:
    """Return the first offset of each partition whose record is not older than a time; none if all are older."""
    found = await console.client.offsets([(name, each) for each in partitions], time_ms)
    return {each: one.offset for (_, each), one in found.items() if one.offset >= 0}


async def record(console: Console, *, name: str, partition: int, offset: int, form: ValueForm) -> WholeRecord:
    """Return one record with values up to a megabyte. Raises ProblemError."""
    require_topic(console, name)
    partitions = _partitions(console, name, partition)
    found = await console.reader.one(name, partition, offset)
    before, after = await asyncio.gather(
        console.reader.newest(name, 1, partitions=partitions, before={partition: offset}, is_committed=False),
        console.reader.oldest(name, 1, partitions=partitions, start={partition: offset + 1}, is_committed=False),
    )
    (whole,) = await shown(console, [found], form, WHOLE_VALUE_SIZE_MAX, is_pretty=True)
    return WholeRecord(record=whole, previous=_offset_of(before.found), next=_offset_of(after.found))


def _offset_of(found: list[Found]) -> str | None:
    return str(found[0].record.offset) if found else None


async def search(
    console: Console,
    *,
    name: str,
    filter: str,  # noqa: A002 - the name of the parameter in the address
    partition: int,
    from_offset: int,
    to_offset: int,
    from_time: int,
    to_time: int,
    limit: int,
    isolation: Isolation,
    form: ValueForm,
) -> AsyncIterator[Line]:
    """Yield the records that pass a filter, with progress, until all are read or a bound is reached.

    Raises:
        ProblemError: the filter, the topic or the partition is not valid, or too many long reads run.
    """
    is_committed = isolation == "read_committed"
    matches, ranges, missing = await _selected(console, name, filter, partition, is_committed=is_committed)
    ranges = await _narrowed(console, name, ranges, from_time, to_time)
    ranges = {
        each: Range(min(max(one.start, from_offset), one.end), min(one.end, to_offset) if to_offset >= 0 else one.end)
        for each, one in ranges.items()
    }
    return _search(console, name, ranges, matches, limit, is_committed, form, missing)


async def _search(
    console: Console,
    name: str,
    ranges: Mapping[int, Range],
    matches: Matches,
    limit: int,
    is_committed: bool,
    form: ValueForm,
    missing: list[int],
) -> AsyncIterator[Line]:
    clock = console.services.clock
    began_ms = shown_ms = clock.monotonic_ms()
    left = {each: one for each, one in ranges.items() if one.start < one.end}
    total = sum(one.end - one.start for one in left.values())
    progress = Progress(scanned=0, total=total, bytes=0, matches=0, undecoded=0)
    for each in missing:
        yield Line(problem=f"partition {each}: its leader did not respond")
    while left:
        if not console.is_ready:
            yield Line(progress=progress, done=STOPPING)
            return
        if clock.monotonic_ms() - began_ms > SEARCH_TIME_MAX_MS:
            yield Line(progress=progress, done=f"stopped after {SEARCH_TIME_MAX_MS // 1000} s: narrow the search")
            return
        if progress["bytes"] > SEARCH_BYTES_MAX:
            yield Line(progress=progress, done=f"stopped after {SEARCH_BYTES_MAX >> 30} GiB: narrow the search")
            return
        chunk = dict(list(left.items())[:SEARCH_PARTITIONS])
        pieces = await console.reader.read(name, chunk, is_committed=is_committed, piece_size=SEARCH_PIECE_SIZE)
        found: list[Found] = []
        for each, one in chunk.items():
            piece = pieces.get(each)
            if piece is None or piece.error_code:
                yield Line(problem=f"partition {each}: {_reason(piece and piece.error_code)}")
                progress["scanned"] += one.end - one.start
                del left[each]
                continue
            if piece.problem:
                yield Line(problem=f"partition {each}: {piece.problem}")
            progress["bytes"] += piece.size
            found += piece.records
            left[each] = Range(piece.next_offset, one.end)
            if left[each].start >= one.end:
                del left[each]
        values = await schema_values(console, found)
        passed = (await _passing(console, matches, found, values))[: limit - progress["matches"]]
        progress["undecoded"] += values.unopened_count
        for one_record in await shown(console, passed, form):
            progress["matches"] += 1
            yield Line(record=one_record)
        is_full = progress["matches"] >= limit
        progress["scanned"] += _examined(chunk, pieces, passed[-1] if is_full else None)
        if is_full and progress["scanned"] < total:
            yield Line(progress=progress, done=f"stopped at {limit} matches")
            return
        if clock.monotonic_ms() - shown_ms >= PROGRESS_MS:
            shown_ms = clock.monotonic_ms()
            yield Line(progress=progress)
    yield Line(progress=progress, done="complete")


def _examined(chunk: Mapping[int, Range], pieces: Mapping[int, Piece], last: Found | None) -> int:
    """Return how many offsets of what was read a search has examined, the last of them with the match `last`."""
    examined = 0
    for each, one in chunk.items():
        piece = pieces.get(each)
        if last is not None and each == last.partition:
            return examined + last.record.offset + 1 - one.start
        if piece is not None and not piece.error_code:
            examined += piece.next_offset - one.start
    return examined


async def _passing(console: Console, matches: Matches, found: list[Found], values: SchemaValues) -> list[Found]:
    """Return the records that pass a filter. The thread that finds them ends with the caller."""
    is_left = False

    def passing() -> list[Found]:
        passed = []
        for each in found:
            if is_left:
                break
            if matches(each.partition, each.record, values.text):
                passed.append(each)
        return passed

    try:
        return await console.services.cpu_pool.run(passing)
    finally:
        is_left = True


async def tail(
    console: Console,
    *,
    name: str,
    filter: str,  # noqa: A002 - the name of the parameter in the address
    partition: int,
    isolation: Isolation,
    form: ValueForm,
) -> AsyncIterator[Line]:
    """Yield new records as they arrive; none is left out. `behind` counts offsets that are not read yet.

    Raises:
        ProblemError: the filter, the topic or the partition is not valid, or too many long reads run.
    """
    is_committed = isolation == "read_committed"
    matches, ranges, missing = await _selected(console, name, filter, partition, is_committed=is_committed)
    positions = {each: one.end for each, one in ranges.items()}
    return _tail(console, name, positions, missing, matches, is_committed, form)


async def _tail(
    console: Console,
    name: str,
    positions: dict[int, int],
    unread: list[int],
    matches: Matches,
    is_committed: bool,
    form: ValueForm,
) -> AsyncIterator[Line]:
    clock = console.services.clock
    began_ms = clock.monotonic_ms()
    for each in unread:
        yield Line(problem=f"partition {each}: its leader did not respond, so it is not followed")
    yield Line(behind=0)
    while clock.monotonic_ms() - began_ms < TAIL_TIME_MAX_MS:
        if not console.is_ready:
            yield Line(done=STOPPING)
            return
        if name not in console.services.metadata_cache.topics:
            yield Line(done=f"topic {name} was deleted")
            return
        ranges, _ = await console.reader.ranges(name, positions, is_committed=is_committed)
        for gap in _skip_deleted(positions, ranges):
            yield Line(gap=gap)
        wanted = {each: Range(positions[each], one.end) for each, one in ranges.items() if positions[each] < one.end}
        if not wanted:
            yield Line(behind=0)
            await asyncio.sleep(TAIL_PAUSE_S)
            continue
        pieces = await console.reader.read(name, wanted, is_committed=is_committed)
        found: list[Found] = []
        for each, piece in pieces.items():
            if piece.error_code == OFFSET_OUT_OF_RANGE:
                continue  # the start has moved; the next round reports the gap
            if piece.problem:
                yield Line(problem=f"partition {each}: {piece.problem}")
            found += piece.records
            positions[each] = max(positions[each], piece.next_offset)
        found.sort(key=lambda each: each.record.timestamp)
        passed = await _passing(console, matches, found, await schema_values(console, found))
        behind = sum(one.end - positions[each] for each, one in wanted.items())
        for first in range(0, len(passed), TAIL_LINE_RECORDS):
            yield Line(records=await shown(console, passed[first : first + TAIL_LINE_RECORDS], form), behind=behind)
        if behind or not passed:
            yield Line(behind=behind)
        if not behind:
            await asyncio.sleep(TAIL_PAUSE_S)
    yield Line(done=f"ended after {TAIL_TIME_MAX_MS // 3_600_000} h")


def _skip_deleted(positions: dict[int, int], ranges: Mapping[int, Range]) -> list[str]:
    """Raise positions to the starts of the logs; return what was deleted before it was read."""
    gaps = []
    for each, one in ranges.items():
        if positions[each] < one.start:
            gaps.append(f"partition {each}: offsets {positions[each]} to {one.start - 1} were deleted unread")
            positions[each] = one.start
    return gaps


async def count(
    console: Console, *, name: str, partition: int, from_offsets: str, isolation: Isolation
) -> AsyncIterator[Line]:
    """Yield the number of records by partition: without markers, compacted offsets and aborted transactions.

    Offsets count all of these. `from_offsets` is a cursor: counted is from these offsets on, such as those of a group.

    Raises:
        ProblemError: the topic, the partition or the cursor is not valid.
    """
    require_topic(console, name)
    starts = offsets_of_cursor(from_offsets)
    partitions = sorted(starts) if starts else _partitions(console, name, partition)
    is_committed = isolation == "read_committed"
    ranges, missing = await console.reader.ranges(name, partitions, is_committed=is_committed)
    ranges = {each: Range(min(max(one.start, starts.get(each, 0)), one.end), one.end) for each, one in ranges.items()}
    return _count(console, name, ranges, missing, is_committed)


async def _count(
    console: Console, name: str, ranges: Mapping[int, Range], missing: list[int], is_committed: bool
) -> AsyncIterator[Line]:
    clock = console.services.clock
    began_ms = shown_ms = clock.monotonic_ms()
    left = {each: one for each, one in ranges.items() if one.start < one.end}
    counts = dict.fromkeys(map(str, ranges), 0)
    progress = Progress(
        scanned=0, total=sum(one.end - one.start for one in left.values()), bytes=0, matches=0, undecoded=0
    )
    for each in missing:
        yield Line(problem=f"partition {each}: its leader did not respond")
    while left:
        if not console.is_ready:
            yield Line(progress=progress, counts=counts, done=STOPPING)
            return
        if clock.monotonic_ms() - began_ms > SEARCH_TIME_MAX_MS or progress["bytes"] > SEARCH_BYTES_MAX:
            yield Line(progress=progress, counts=counts, done="stopped at a bound: the counts are too low")
            return
        chunk = dict(list(left.items())[:SEARCH_PARTITIONS])
        pieces = await console.reader.read(
            name, chunk, is_committed=is_committed, piece_size=SEARCH_PIECE_SIZE, is_counting=True
        )
        for each, one in chunk.items():
            piece = pieces.get(each)
            if piece is None or piece.error_code or piece.problem:
                reason = piece.problem if piece is not None and piece.problem else _reason(piece and piece.error_code)
                yield Line(problem=f"partition {each}: {reason}")
                del left[each]
                continue
            counts[str(each)] += piece.counted
            progress["matches"] += piece.counted
            progress["bytes"] += piece.size
            progress["scanned"] += piece.next_offset - one.start
            left[each] = Range(piece.next_offset, one.end)
            if left[each].start >= one.end:
                del left[each]
        if clock.monotonic_ms() - shown_ms >= PROGRESS_MS:
            shown_ms = clock.monotonic_ms()
            yield Line(progress=progress)
    yield Line(progress=progress, counts=counts, done="complete")


async def shown(
    console: Console,
    found: list[Found],
    form: ValueForm,
    size_max: int = VALUE_SIZE_MAX,
    *,
    is_pretty: bool = False,
) -> list[ShownRecord]:
    """Return records for a browser; values with a schema of the registry are opened with it."""
    if not found:
        return []
    is_hexadecimal = form == "hex"
    rows = await console.services.cpu_pool.run(
        lambda: [
            shown_record(
                each.partition,
                each.record,
                each.header,
                size_max,
                is_pretty=is_pretty,
                is_hexadecimal=is_hexadecimal,
            )
            for each in found
        ]
    )
    if not is_hexadecimal:
        await with_schemas(console, found, rows, size_max, is_pretty=is_pretty)
    return rows


async def _selected(
    console: Console, name: str, filter_text: str, partition: int, *, is_committed: bool
) -> tuple[Matches, dict[int, Range], list[int]]:
    """Return the filter, the readable offsets by partition, and the partitions whose leaders did not respond.

    Raises:
        ProblemError: the filter, the topic or the partition is not valid.
    """
    require_topic(console, name)
    try:
        matches = parse_filter(filter_text)
    except FilterError as error:
        raise bad_request(str(error)) from error
    ranges, missing = await console.reader.ranges(
        name, _partitions(console, name, partition), is_committed=is_committed
    )
    return matches, ranges, missing


def _partitions(console: Console, name: str, partition: int) -> list[int]:
    """Return the wanted partitions; -1 stands for all. Raises ProblemError."""
    known = console.reader.partitions_of(name)
    if partition < 0:
        return known
    if partition not in known:
        raise ProblemError(
            HTTPStatus.NOT_FOUND, f"topic {name!r} has no partition {partition}, expected 0 to {len(known) - 1}"
        )
    return [partition]


async def _narrowed(
    console: Console, name: str, ranges: dict[int, Range], from_time: int, to_time: int
) -> dict[int, Range]:
    """Return the offsets whose records may be within a range of time, by the time index of each partition."""
    partitions = [(name, each) for each in ranges]
    if from_time >= 0:
        found = await console.client.offsets(partitions, from_time)
        ranges = {
            each: Range(max(one.start, found[name, each].offset) if found[name, each].offset >= 0 else one.end, one.end)
            if (name, each) in found
            else one
            for each, one in ranges.items()
        }
    if to_time >= 0:
        found = await console.client.offsets(partitions, to_time + 1)
        ranges = {
            each: Range(one.start, max(one.start, min(one.end, found[name, each].offset)))
            if (name, each) in found and found[name, each].offset >= 0
            else one
            for each, one in ranges.items()
        }
    return ranges


def _reason(code: int | None) -> str:
    return "its leader did not respond" if code is None else ErrorCode(code).name
