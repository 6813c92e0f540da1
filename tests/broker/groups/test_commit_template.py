"""Batches of commits that repeat themselves are those of commits that do not."""

from random import Random

import pytest

from broker.groups.batches import CommitTemplate, commit_batch
from broker.groups.records import OffsetAndMetadata
from protocol.records.compression import Compression

TEXTS = ("", "g", "0", "\0", "\0\0\0\0\0\0\0\0", "gruppe-äöü", "💧", "x" * 200, "x" * 9_000)


@pytest.mark.parametrize("seed", range(5))
def test_a_template_makes_the_batch_that_would_be_built(seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        group_id, topic, metadata = (random.choice(TEXTS) for _ in range(3))
        partition, leader_epoch = random.choice((0, 1, 2**31 - 1)), random.choice((-1, 0, 7))
        template = CommitTemplate(group_id, (topic, partition), leader_epoch, metadata)
        for _ in range(3):
            offset, now_ms = (random.choice((0, 1, 2**40, 2**63 - 1, random.getrandbits(50))) for _ in range(2))
            value = OffsetAndMetadata(
                offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp_ms=now_ms
            )
            assert template.batch(offset, now_ms) == commit_batch(
                group_id, {(topic, partition): value}, None, now_ms, Compression.NONE
            )
