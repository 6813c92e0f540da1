"""Replaying `__transaction_state`: an older state never takes the place of a lost one."""

from __future__ import annotations

from broker.coordination.replay import Damage
from broker.transactions.loading import ReplayedTransactions
from broker.transactions.machine.records import write_key, write_value
from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import Metadata
from protocol.records.batch import batches, records
from protocol.records.builder import RecordData, build_batch

UNREADABLE = Damage(5, 6, "a reason", None, is_as_written=False)


def damage(*keys: bytes | None, is_as_written: bool = False) -> Damage:
    return Damage(5, 6, "a reason", keys, is_as_written=is_as_written)


def metadata(producer_id: int) -> Metadata:
    return Metadata(
        state=TransactionState.ONGOING,
        producer_id=producer_id,
        producer_epoch=3,
        last_producer_id=-1,
        last_producer_epoch=-1,
        timeout_ms=60_000,
        partitions={("t", 0): None},
        started_ms=1,
        updated_ms=2,
    )


def put(replayed: ReplayedTransactions, **ids: int) -> None:
    for transactional_id, producer_id in ids.items():
        batch = build_batch([RecordData(0, write_key(transactional_id), write_value(metadata(producer_id)))])
        for position, header in batches(batch):
            for record in records(batch, position, size_max=1 << 20):
                replayed.replay(header, record)


def test_id_whose_last_record_cannot_be_decoded_is_unknown() -> None:
    replayed = ReplayedTransactions()
    put(replayed, a=1, b=2, long=3)
    replayed.skip(damage(write_key("a"), is_as_written=True))
    assert list(replayed.transactions) == ["b", "long"]
    assert replayed.lost() == [
        (
            "the last state of transactional id a may be lost: it begins with a new producer id; before, it was "
            "ONGOING with producer id 1, epoch 3; kafka-transactions find-hanging shows whether that producer left a "
            "transaction open"
        )
    ]


def test_ids_of_the_same_length_are_in_doubt_if_the_name_may_be_damaged() -> None:
    replayed = ReplayedTransactions()
    put(replayed, a=1, b=2, long=3)
    replayed.skip(damage(write_key("c")))
    assert list(replayed.transactions) == ["long"]
    assert [line.split()[6] for line in replayed.lost()] == ["a", "b", "c"]


def test_all_ids_are_in_doubt_if_no_name_can_be_read() -> None:
    for unreadable in (UNREADABLE, damage(b"\0"), damage(None), damage(b"\0\x07other kind")):
        replayed = ReplayedTransactions()
        put(replayed, a=1, long=3)
        replayed.skip(unreadable)
        assert replayed.transactions == {}


def test_later_record_settles_the_doubt() -> None:
    replayed = ReplayedTransactions()
    put(replayed, a=1, b=2)
    replayed.skip(UNREADABLE)
    put(replayed, a=1, new=9)
    assert list(replayed.transactions) == ["a", "new"]
    assert [line.split()[6] for line in replayed.lost()] == ["b"]


def test_record_without_a_key_as_written_concerns_no_id() -> None:
    replayed = ReplayedTransactions()
    put(replayed, a=1)
    replayed.skip(damage(None, b"\0", is_as_written=True))
    assert list(replayed.transactions) == ["a"]
    assert replayed.lost() == []
