from __future__ import annotations

from base.topic_partition import partition_name


def test_name_ends_in_the_number_of_the_partition() -> None:
    assert partition_name(("a-b", 3)) == "a-b-3"
