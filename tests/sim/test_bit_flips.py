"""Bits that a network flips in batches: always one that the receiver can notice."""

from __future__ import annotations

from random import Random

import pytest

from protocol.errors import KafkaError
from protocol.records.builder import RecordData, build_batch
from storage.log.replicated import check_replicated
from tests.sim.bit_flips import with_flipped_bit

EPOCHS = (0, 100)
BATCH = build_batch([RecordData(timestamp=1, key=None, value=b"value")], leader_epoch=7)
BEFORE, AFTER = b"\x02 a header ", b"\x02" * 30


@pytest.mark.parametrize("seed", range(40))
def test_receiver_refuses_a_batch_with_a_flipped_bit(seed: int) -> None:
    flipped = with_flipped_bit(BEFORE + BATCH + AFTER, Random(seed), epochs=True)
    assert flipped is not None
    assert flipped.startswith(BEFORE)
    assert flipped.endswith(AFTER)
    received = flipped[len(BEFORE) : -len(AFTER)]
    assert received != BATCH
    with pytest.raises(KafkaError, match=r"wrong CRC|leader epoch"):
        check_replicated(memoryview(received), next_offset=0, epochs=EPOCHS)


def test_only_bits_below_the_checksum_are_flipped_without_epochs() -> None:
    for seed in range(40):
        flipped = with_flipped_bit(BATCH, Random(seed), epochs=False)
        assert flipped is not None
        assert flipped[:17] == BATCH[:17]


def test_messages_without_a_batch_stay_as_they_are() -> None:
    assert with_flipped_bit(b"\x02" * 100, Random(1), epochs=True) is None
