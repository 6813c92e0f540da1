"""Leader epochs: what an assignment replaces, where an epoch ended, and truncation at both ends."""

from collections.abc import Sequence

import pytest

from storage.disk.checkpoints import EpochStart
from storage.segments.leader_epochs import NO_EPOCH, NO_OFFSET, LeaderEpochs

Entries = list[tuple[int, int]]


def leader_epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*entry) for entry in entries], lambda changed: None)


ASSIGNMENTS: list[tuple[Entries, tuple[int, int], Entries]] = [
    ([], (0, 0), [(0, 0)]),
    ([(0, 0)], (1, 10), [(0, 0), (1, 10)]),
    ([(0, 0)], (0, 10), [(0, 0)]),
    ([(0, 0), (1, 10)], (2, 10), [(0, 0), (2, 10)]),
    ([(0, 0), (1, 10)], (2, 5), [(0, 0), (2, 5)]),
    ([(0, 0), (3, 10)], (2, 20), [(0, 0), (2, 20)]),
    ([(5, 10)], (5, 4), [(5, 4)]),
]


@pytest.mark.parametrize(("before", "assigned", "after"), ASSIGNMENTS)
def test_assign_removes_contradicting_entries(before: Entries, assigned: tuple[int, int], after: Entries) -> None:
    epochs = leader_epochs(*before)
    epochs.assign(*assigned)
    assert list(epochs.entries) == after
    assert epochs.latest == after[-1][0]


ENDS = {
    NO_EPOCH: (NO_EPOCH, NO_OFFSET),
    0: (0, 10),  # below the first known: ended where that begins
    2: (2, 20),
    3: (2, 20),  # unknown in between
    5: (5, 100),  # the latest
    6: (NO_EPOCH, NO_OFFSET),
}


@pytest.mark.parametrize(("epoch", "end"), ENDS.items())
def test_end_offset_for_returns_the_largest_known_epoch_at_or_below(epoch: int, end: tuple[int, int]) -> None:
    assert leader_epochs((2, 10), (5, 20)).end_offset_for(epoch, 100) == end


@pytest.mark.parametrize(("offset", "epoch"), [(9, NO_EPOCH), (10, 2), (19, 2), (20, 5), (99, 5)])
def test_epoch_at_returns_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert leader_epochs((2, 10), (5, 20)).epoch_at(offset) == epoch


FROM_END: list[tuple[int, Entries]] = [(21, [(2, 10), (5, 20)]), (20, [(2, 10)]), (10, []), (0, [])]
FROM_START: list[tuple[int, Entries]] = [
    (5, [(2, 10), (5, 20)]),
    (10, [(2, 10), (5, 20)]),
    (11, [(2, 11), (5, 20)]),
    (20, [(5, 20)]),
    (30, [(5, 30)]),
]


@pytest.mark.parametrize(("offset", "left"), FROM_END)
def test_truncate_from_end_removes_epochs_at_or_above_the_offset(offset: int, left: Entries) -> None:
    epochs = leader_epochs((2, 10), (5, 20))
    epochs.truncate_from_end(offset)
    assert list(epochs.entries) == left


@pytest.mark.parametrize(("offset", "left"), FROM_START)
def test_truncate_from_start_removes_older_epochs(offset: int, left: Entries) -> None:
    epochs = leader_epochs((2, 10), (5, 20))
    epochs.truncate_from_start(offset)
    assert list(epochs.entries) == left


def test_begun_epoch_is_written_with_its_first_record() -> None:
    written: list[Sequence[EpochStart]] = []
    epochs = LeaderEpochs([EpochStart(0, 0)], written.append)
    epochs.begin(1, 10)
    epochs.begin(3, 10)
    assert (list(epochs.entries), epochs.latest, epochs.latest_written) == ([(0, 0), (3, 10)], 3, 0)
    assert [epochs.end_offset_for(epoch, 10) for epoch in (0, 1, 3)] == [(0, 10), (0, 10), (3, 10)]
    assert not written
    epochs.assign(3, 10)
    epochs.assign(3, 11)
    assert written == [((0, 0), (3, 10))]
    assert epochs.latest_written == 3


def test_change_is_written_before_it_takes_effect() -> None:
    written: list[Sequence[EpochStart]] = []

    def write(entries: Sequence[EpochStart]) -> None:
        if len(entries) > 1:
            raise OSError
        written.append(entries)

    epochs = LeaderEpochs((), write)
    epochs.assign(0, 0)
    epochs.assign(0, 0)
    with pytest.raises(OSError):  # noqa: PT011
        epochs.assign(1, 5)
    assert written == [((0, 0),)]
    assert epochs.latest == 0


def test_raised_start_is_written_with_the_next_epoch_or_on_request() -> None:
    written: list[Sequence[EpochStart]] = []
    epochs = LeaderEpochs([EpochStart(2, 10), EpochStart(5, 20)], written.append)
    epochs.truncate_from_start(20)
    assert not written
    epochs.assign(6, 30)
    assert written == [((5, 20), (6, 30))]
    epochs.write_pending()
    assert len(written) == 1
    epochs.truncate_from_start(35)
    epochs.write_pending()
    epochs.write_pending()
    assert written[1:] == [((6, 35),)]
