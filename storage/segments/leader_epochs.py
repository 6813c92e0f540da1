"""Which leader epoch began at which offset of a log, kept in `leader-epoch-checkpoint`.

Owns the rules with which a follower and a leader find the offset where their logs diverge. Must not know which broker
leads. Every batch contains its epoch, so a lost file is rebuilt from the log.

Invariants, which `check` tests:
- Epochs rise strictly from entry to entry.
- Start offsets rise strictly from entry to entry.
- `latest` is the epoch of the last entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from storage.disk.checkpoints import EpochStart

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class EpochEnd(NamedTuple):
    """An epoch and its end offset; (NO_EPOCH, NO_OFFSET) if they are unknown."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of one log.

    `write` persists all entries; it is called for each change, before the change takes effect.

    `begin` and `truncate_from_start` do not call it: a load derives their changes from the offsets of the log.
    `write_pending` writes what `truncate_from_start` changed.
    """

    __slots__ = ("_entries", "_is_start_pending", "_write", "latest", "latest_written")

    def __init__(self, entries: Iterable[EpochStart], write: Callable[[Sequence[EpochStart]], None]) -> None:
        """`entries` are the entries in the file."""
        self._entries: tuple[EpochStart, ...] = tuple(entries)
        self._write = write
        self._is_start_pending = False  # the file lacks the last `truncate_from_start`
        self.latest = self._entries[-1].epoch if self._entries else NO_EPOCH
        self.latest_written = self.latest
        """The last epoch in the file. `latest` is above it while an epoch that has begun has no record."""

    @property
    def entries(self) -> Sequence[EpochStart]:
        return self._entries

    def begin(self, epoch: int, log_end_offset: int) -> None:
        """Note that `epoch`, which is above `latest`, begins at the end of the log and has no record yet.

        `assign` writes the entry with the first record. Loading a log drops entries that start at its end. So writing
        it earlier would cost a file operation for each partition of a starting broker, without any effect.
        """
        self._entries = self._with_entry(epoch, log_end_offset)
        self.latest = epoch

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` began at `start_offset`; remove contradicting entries. No effect if it is known already."""
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            if self.latest_written != epoch:
                self._replace(entries)
            return
        self._replace(self._with_entry(epoch, start_offset))

    def store_first_record(self, epoch: int, offset: int) -> None:
        """Write the entry of `epoch`, whose first record is about to be stored at `offset`.

        Unlike `assign`, keeps the later epochs that have begun: a new leader's epoch may begin while records of an
        earlier one wait for a slow directory.
        """
        begun = self.start_offset_of(epoch)
        if begun is not None and begun <= offset:
            self._replace(self._entries)
        else:
            self.assign(epoch, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest known epoch at or below `epoch`, and its end offset. The latest ends at the log's end.

        An epoch below all known ones ended where the first known one begins.
        """
        if epoch == NO_EPOCH:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        slot = bisect_right(self._entries, epoch, key=_epoch)
        if slot == len(self._entries):
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        known = self._entries[slot - 1].epoch if slot else epoch
        return EpochEnd(known, self._entries[slot].start_offset)

    def start_offset_of(self, epoch: int) -> int | None:
        """Return where `epoch` began, None if it is unknown."""
        slot = bisect_left(self._entries, epoch, key=_epoch)
        found = self._entries[slot] if slot < len(self._entries) else None
        return found.start_offset if found is not None and found.epoch == epoch else None

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the leader that wrote `offset`, NO_EPOCH if unknown."""
        slot = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[slot - 1].epoch if slot else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Note that the log was truncated to `end_offset`."""
        kept = self._entries[: bisect_left(self._entries, end_offset, key=_start_offset)]
        if len(kept) != len(self._entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Note that the log now starts at `start_offset`: its epoch begins there, and older epochs are removed.

        Does not write the file, so that no caller waits for the disk; the next write for another reason includes it.
        """
        slot = bisect_right(self._entries, start_offset, key=_start_offset)
        if slot == 0 or (slot == 1 and self._entries[0].start_offset == start_offset):
            return
        self._entries = (EpochStart(self._entries[slot - 1].epoch, start_offset), *self._entries[slot:])
        self._is_start_pending = True

    def write_pending(self) -> None:
        """Write what `truncate_from_start` changed. Waits for the disk. Raises OSError."""
        if self._is_start_pending:
            self._replace(self._entries)

    def clear(self) -> None:
        if self._entries:
            self._replace([])

    def adopt(self, entries: Sequence[EpochStart]) -> None:
        """Replace the entries by those of a log with the same offsets."""
        if tuple(entries) != self._entries:
            self._replace(entries)

    def persist_with(self, write: Callable[[Sequence[EpochStart]], None]) -> None:
        """Persist with another function from now on, which has persisted the present entries already."""
        self._write = write

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        entries = self._entries
        for before, after in pairwise(entries):
            assert before.epoch < after.epoch, "Epochs rise strictly from entry to entry"
            assert before.start_offset < after.start_offset, "Start offsets rise strictly from entry to entry"
        assert self.latest == (entries[-1].epoch if entries else NO_EPOCH), "`latest` is the epoch of the last entry"

    def _with_entry(self, epoch: int, start_offset: int) -> tuple[EpochStart, ...]:
        kept = (entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset)
        return (*kept, EpochStart(epoch, start_offset))

    def _replace(self, entries: Iterable[EpochStart]) -> None:
        replacement = tuple(entries)
        self._write(replacement)
        self._entries = replacement
        self._is_start_pending = False
        self.latest = self.latest_written = replacement[-1].epoch if replacement else NO_EPOCH
