"""Rates and token buckets, by hand and against a simulated client that obeys its throttle."""

import pytest

from broker.loop.rates import THROTTLE_MS_MAX, SampledRate, TokenBucket


def test_rate_covers_at_least_all_windows_but_one() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1000, 5)
    assert rate.rate(5) == 100
    assert rate.rate(2005) == 100
    assert rate.throttle_ms(100, 5) == 0
    rate.record(1000, 6)
    assert rate.throttle_ms(100, 6) == 9_999


def test_old_samples_are_forgotten() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1000, 0)
    assert rate.rate(10_999) > 0
    assert rate.rate(11_000) == 0


def test_value_that_is_taken_back_does_not_count() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1000, 0)
    rate.record(-1000, 1)
    assert rate.rate(1) == 0


def test_quota_of_zero_throttles_for_long() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == THROTTLE_MS_MAX
    bucket = TokenBucket(11, 1000)
    bucket.take(1, 0, 0)
    assert bucket.throttle_ms(0, 0) == THROTTLE_MS_MAX


@pytest.mark.parametrize(
    ("bound", "request_size"),
    # Not 1,000 bytes with 1e8: one request in 0.01 ms is no more than the quota, so that nothing throttles the client.
    [(1e6, 1_000), (1e7, 1_000), *((bound, size) for bound in (1e6, 1e7, 1e8) for size in (16_000, 1_000_000))],
)
def test_client_that_obeys_its_throttle_keeps_to_its_quota(bound: float, request_size: int) -> None:
    """Over thirty windows, after the first ones, which may use what silence has saved."""
    rate = SampledRate(11, 1000)
    now_ms, total, warm_total = 0.0, 0, 0
    while now_ms < 51_000:
        rate.record(request_size, int(now_ms))
        total += request_size
        if now_ms < 21_000:
            warm_total = total
        now_ms += 0.01 + rate.throttle_ms(bound, int(now_ms))
    assert (total - warm_total) / 30 == pytest.approx(bound, rel=0.1)


def test_bucket_refills_at_the_rate_up_to_all_windows() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(10, 0) == 110
    bucket.take(120, 10, 0)
    assert bucket.throttle_ms(10, 0) == 1000
    assert bucket.throttle_ms(10, 500) == 500
    assert bucket.throttle_ms(10, 1000) == 0
    assert bucket.tokens(10, 100_000) == 110
