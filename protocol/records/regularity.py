"""The check that the records of a batch are well formed.

Owns one question about the plain bytes after a batch header: are they exactly `count` records, does every field end
where its record ends, and are the offset deltas 0, 1, 2, ...? Must not know what happens to a batch that fails:
`protocol.records.batch.parse_records` reports the error.

The check runs for every batch that a leader appends. Plain bytes may come in pieces. A record that crosses pieces is
read by the reader that parsing uses, whatever its size; pieces are not joined.
"""

from collections.abc import Iterable

from protocol.errors import Malformed
from protocol.records.batch import HeaderBudget, outline_across_pieces
from protocol.records.compression import Buffer, CannotOpen
from protocol.records.pieces import PieceReader
from protocol.records.plain_records import ANY_NUMBER, RECORD_SIZE_MIN, TIMESTAMP_DELTA_MAX, pass_regular


def are_regular(data: Buffer, count: int, budget: HeaderBudget | None = None, *, needs_keys: bool = False) -> bool:
    """Return whether `data` is exactly `count` whole records with the offset deltas 0 to count - 1.

    Keys, values, headers and attributes may be anything, but with `needs_keys` no key may be null; times must lie
    within 2^62 of their base. True proves that no reader can fail on the records. False proves nothing: times further
    away are valid too.

    Raises:
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    if count * RECORD_SIZE_MIN > len(data):
        return False
    position, number = _pass_regular(data, 0, 0, count, budget, needs_keys=needs_keys)
    return number == count and position == len(data)


def are_regular_pieces(
    pieces: Iterable[bytes], count: int, budget: HeaderBudget | None = None, *, needs_keys: bool = False
) -> bool:
    """Return `are_regular` of the concatenated `pieces`. If the result is False, not all of them may have been read.

    Raises:
        CannotOpen: the iterator raised it.
        TooManyHeadersError: there are more headers than `budget` allows.
    """
    reader = PieceReader(pieces)
    number = 0
    while number < count:
        reader.position, number = _pass_regular(
            reader.data, reader.position, number, count, budget, needs_keys=needs_keys
        )
        if number == count:
            break
        try:
            offset_delta, timestamp_delta, has_key = outline_across_pieces(reader, budget)
        except CannotOpen:
            raise
        except Malformed:
            return False
        if offset_delta != number or not -TIMESTAMP_DELTA_MAX <= timestamp_delta <= TIMESTAMP_DELTA_MAX:
            return False
        if needs_keys and not has_key:
            return False
        number += 1
    return reader.is_at_end()


def _pass_regular(
    data: Buffer, position: int, number: int, count: int, budget: HeaderBudget | None, *, needs_keys: bool
) -> tuple[int, int]:
    """Return position and number of the first record that is not passed. Raises TooManyHeadersError."""
    if budget is None:
        position, number, _ = pass_regular(data, position, number, count, ANY_NUMBER, needs_keys)
    else:
        position, number, headers = pass_regular(data, position, number, count, budget.left, needs_keys)
        budget.spend(headers)
    return position, number
