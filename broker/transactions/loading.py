"""Replay of one partition of `__transaction_state` into transactional ids. Pure.

Owns: the meaning of a record at its place in the log, and of records that could not be read. The last record of an id
holds all of its metadata, a tombstone removes the id. Must not know: how the log is read, or in which slices.

An older state must not take the place of a lost one: an id that was Ongoing may have been about to commit, and its
timeout would abort it; with an older epoch, two producers would share the next one. So an id whose last record may be
lost is unknown: its producer gets INVALID_PRODUCER_ID_MAPPING, and the next one begins with a new producer id. A
transaction that was open stays open until an administrator decides on it.
"""

from __future__ import annotations

from broker.coordination.replay import Damage
from broker.transactions.machine.records import read_key, read_value
from broker.transactions.machine.transaction import Metadata
from protocol.errors import Malformed
from protocol.records.batch import BatchHeader, Record


class ReplayedTransactions:
    """The transactional ids of a partition as of the records replayed so far."""

    def __init__(self) -> None:
        self.transactions: dict[str, Metadata] = {}
        self._lost: dict[str, Metadata | None] = {}
        """Ids whose last record may be lost, with the metadata before it."""

    def replay(self, batch: BatchHeader, record: Record) -> None:
        """Apply the next record of the log. Raises Malformed if a record of a known kind cannot be decoded."""
        if batch.is_control:
            return
        if record.key is None:
            raise Malformed(f"record {record.offset} has no key")
        transactional_id = read_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = read_value(record.value)
        self._lost.pop(transactional_id, None)

    def skip(self, damage: Damage) -> None:
        """See `Contents`.

        A changed byte in a key leads to another id of the same length, so all of them are in doubt.
        """
        named = _ids_in(damage)
        sizes = None if named is None else {len(each.encode()) for each in named}
        for transactional_id in list(self.transactions):
            if (
                sizes is None
                or transactional_id in (named or ())
                or (not damage.is_as_written and len(transactional_id.encode()) in sizes)
            ):
                self._lost[transactional_id] = self.transactions.pop(transactional_id)
        for transactional_id in named or ():
            self._lost.setdefault(transactional_id, None)

    def lost(self) -> list[str]:
        """See `Contents`."""
        return [_shown(transactional_id, before) for transactional_id, before in self._lost.items()]


def _ids_in(damage: Damage) -> set[str] | None:
    """Return the ids of the skipped records; None if any id may be among them."""
    if damage.keys is None:
        return None
    found: set[str] = set()
    for data in damage.keys:
        try:
            transactional_id = None if data is None else read_key(data)
        except Malformed:
            transactional_id = None
        if transactional_id is not None:
            found.add(transactional_id)
        elif not damage.is_as_written:
            return None
    return found


def _shown(transactional_id: str, before: Metadata | None) -> str:
    line = f"the last state of transactional id {transactional_id} may be lost: it begins with a new producer id"
    if before is None:
        return line
    return (
        f"{line}; before, it was {before.state.name} with producer id {before.producer_id}, epoch "
        f"{before.producer_epoch}; kafka-transactions find-hanging shows whether that producer left a transaction open"
    )
