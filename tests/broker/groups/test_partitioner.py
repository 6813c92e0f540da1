"""Java's string hash, against known values and against the partitions that Kafka itself put groups in."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from broker.coordination.partitioner import partition_for
from tests.broker.golden import GoldenPartition
from tests.broker.groups.golden import PARTITIONS


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("Aa", 2112),
        ("BB", 2112),
        ("\u00e4\u00f6\u00fc", 228 * 961 + 246 * 31 + 252),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hash_equals_that_of_java(key: str, hash_code: int) -> None:
    for count in (1, 2, 7, 50):
        assert partition_for(key, count) == (0 if hash_code == -(2**31) else abs(hash_code) % count)


def test_a_negative_hash_is_made_positive() -> None:
    # "zzzzzzzz" hashes to -237109378 (31-polynomial of eight 122s, in 32 bits)
    value = 0
    for unit in b"zzzzzzzz":
        value = (31 * value + unit) & 0xFFFFFFFF
    assert value >= 2**31
    assert partition_for("zzzzzzzz", 50) == (2**32 - value) % 50


def test_long_keys_are_not_cached() -> None:
    gc.collect()
    tracemalloc.start()
    for number in range(5):
        partition_for(f"{number}{'x' * 30_000}", 50)
    remembered_size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert remembered_size < 100_000


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda partition: str(partition.number))
def test_partition_of_each_group_equals_that_of_kafka(partition: GoldenPartition) -> None:
    number, _, records = partition
    for record in records:
        if "decodedKey" in record:
            assert partition_for(record["decodedKey"]["data"]["group"], 2) == number
