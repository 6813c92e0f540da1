"""A batch that is rebuilt piece by piece; which records stay is compared in `tests.storage.cleaning`."""

import pytest

from protocol.errors import Malformed
from protocol.records.batch import read_header, records
from storage.batches.large_batches import rebuild
from tests.storage.builders import NOW_MS, batch


def test_kept_records_have_their_timestamps_after_the_first_of_them() -> None:
    whole = batch(4)
    rebuilt = rebuild(whole, read_header(whole), [False, True, False, True], None)
    header = read_header(rebuilt)
    assert (header.base_timestamp, header.max_timestamp, header.records_count) == (NOW_MS + 1, NOW_MS + 3, 2)
    assert [(each.offset, each.timestamp) for each in records(rebuilt, size_max=1_000)] == [
        (1, NOW_MS + 1),
        (3, NOW_MS + 3),
    ]


def test_batch_of_which_nothing_is_kept_is_refused() -> None:
    whole = batch(2)
    with pytest.raises(Malformed, match="cannot be rebuilt from 0 records"):
        rebuild(whole, read_header(whole), [False, False], None)
