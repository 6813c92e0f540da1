import pytest

from broker.replica.delayed_fetch import LATER_MS_MAX, end_of_wait_ms


@pytest.mark.parametrize("wait_ms", [0, 1, 100, 255, 256, 500, 512, 29_000, 60_000, 2**31 - 1])
def test_a_wait_is_never_cut_short_and_hardly_longer(wait_ms: int) -> None:
    for now_ms in (0, 1, 77, 1_000_003, 123_456_789):
        over_ms = end_of_wait_ms(now_ms, wait_ms) - now_ms - wait_ms
        assert 0 <= over_ms <= min(wait_ms / 128, LATER_MS_MAX)


def test_long_waits_that_begin_one_by_one_end_together() -> None:
    ends = {end_of_wait_ms(now_ms, 29_000) for now_ms in range(5_000, 6_000)}
    assert len(ends) <= 10
    assert len({end_of_wait_ms(now_ms, 500) for now_ms in range(5_000, 6_000)}) <= 1_000
