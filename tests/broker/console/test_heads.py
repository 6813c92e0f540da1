"""The merge of the records of several partitions: its order, and what it costs."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from broker.console.records.heads import BackwardHead, ForwardHead, Head, Heads, merge
from broker.console.records.pieces import Found, Piece

PARTITIONS = 30
RECORDS = 10
"""Records of each partition that were read, of twice as many."""


def heads_of(kind: type[Head], seed: int) -> dict[int, Head]:
    """Heads of partitions whose records have few different timestamps; some partitions have none."""
    chance = random.Random(seed)
    heads: dict[int, Head] = {}
    for partition in range(PARTITIONS):
        end = 2 * RECORDS if chance.random() < 0.8 else 0
        head = BackwardHead(0, end, RECORDS) if kind is BackwardHead else ForwardHead(0, end)
        wanted = head.wanted
        records: list[Any] = [
            Found(partition, SimpleNamespace(offset=offset, timestamp=chance.randrange(RECORDS)), None)  # type: ignore[arg-type]
            for offset in range(wanted.start, min(wanted.end, wanted.start + RECORDS))
        ]
        if end:
            head.add(Piece(records, wanted.start + len(records), 1, 0, "", 0))
        heads[partition] = head
    return heads


def plain_merge(heads: Heads, found: list[Found], limit: int) -> None:
    """The same merge, which compares all partitions for each record."""
    while len(found) < limit and not any(head.has_to_be_read for head in heads.values()):
        ranked = [(rank, head) for head in heads.values() if (rank := head.rank) is not None]
        if not ranked:
            return
        found.append(max(ranked, key=lambda each: each[0])[1].pop())


@pytest.mark.parametrize("kind", [BackwardHead, ForwardHead])
@pytest.mark.parametrize("limit", [0, 1, 7, 1_000])
def test_records_are_merged_as_by_a_comparison_of_all_partitions(kind: type[Head], limit: int) -> None:
    for seed in range(20):
        merged: list[Found] = []
        expected: list[Found] = []
        heads, plain_heads = heads_of(kind, seed), heads_of(kind, seed)
        merge(heads, merged, limit)
        plain_merge(plain_heads, expected, limit)
        assert merged == expected, seed
        assert [head.cursor for head in heads.values()] == [head.cursor for head in plain_heads.values()], seed


class CountingHead(BackwardHead):
    """A head that counts the reads of all ranks."""

    __slots__ = ()
    reads = 0

    @property
    def rank(self) -> int | None:
        CountingHead.reads += 1
        return super().rank


def test_merge_compares_only_the_partition_of_the_last_record_again() -> None:
    partitions, limit = 200, 500
    heads: dict[int, Head] = {}
    for partition in range(partitions):
        head = heads[partition] = CountingHead(0, 10, 10)
        records = [Found(partition, SimpleNamespace(offset=each, timestamp=each), None) for each in range(10)]  # type: ignore[arg-type]
        head.add(Piece(records, 10, 1, 0, "", 0))
    found: list[Found] = []
    merge(heads, found, limit)
    assert len(found) == limit
    assert CountingHead.reads <= partitions + limit
