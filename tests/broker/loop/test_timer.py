"""The tick timer against a sorted list."""

import random

import pytest

from broker.loop.timer import CANCELLED_MAX, Timer


def test_due_callbacks_run_in_the_order_of_their_deadlines() -> None:
    timer, ran = Timer(), []
    for deadline in (30, 10, 20, 10):
        timer.schedule(deadline, lambda deadline=deadline: ran.append(deadline))
    assert timer.next_deadline_ms() == 10
    assert timer.advance(9) == 0
    assert timer.advance(20) == 3
    assert ran == [10, 10, 20]
    assert timer.next_deadline_ms() == 30


def test_a_cancelled_deadline_never_runs_and_may_be_cancelled_again() -> None:
    timer, ran = Timer(), []
    handle = timer.schedule(5, lambda: ran.append(5))
    handle.cancel()
    handle.cancel()
    assert timer.advance(100) == 0
    assert not ran
    assert timer.next_deadline_ms() is None


def test_what_a_callback_schedules_for_the_past_runs_in_the_next_tick() -> None:
    timer, ran = Timer(), []

    def repeat() -> None:
        ran.append("again")
        if len(ran) < 5:
            timer.schedule(-5_000, repeat)

    timer.schedule(5, repeat)
    assert timer.advance(5) == 1
    assert timer.next_deadline_ms() == 6
    assert timer.advance(6) == 1


def test_failed_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    timer, ran = Timer(), []
    timer.schedule(5, lambda: ran.append("before"))
    timer.schedule(5, lambda: ran.append(str(1 // 0)))
    timer.schedule(5, lambda: ran.append("beside"))
    timer.schedule(6, lambda: ran.append("after"))
    assert timer.advance(10) == 4
    assert ran == ["before", "beside", "after"]
    assert "ZeroDivisionError" in caplog.text
    assert timer.next_deadline_ms() is None


def test_driver_is_notified_of_earlier_deadlines_only() -> None:
    reported: list[int] = []
    timer = Timer(reported.append)
    for deadline in (50, 70, 20, 20, 30):
        timer.schedule(deadline, lambda: None)
    assert reported == [50, 20]


def test_cancelled_far_deadlines_do_not_accumulate() -> None:
    timer, ran = Timer(), []
    timer.schedule(50, lambda: ran.append("kept"))
    for number in range(20 * CANCELLED_MAX):
        timer.schedule(10**9 + number, lambda: None).cancel()
    assert sum(map(len, timer._buckets.values())) <= CANCELLED_MAX + 2
    assert timer.next_deadline_ms() == 50
    timer.advance(50)
    assert ran == ["kept"]


def test_timer_runs_callbacks_in_the_order_of_a_sorted_list() -> None:
    seed = 20240229
    rng = random.Random(seed)
    timer, ran = Timer(), []
    pending: list[tuple[int, int]] = []
    handles = {}
    now = 0
    for number in range(3000):
        deadline = now + rng.randrange(200)
        handles[number] = timer.schedule(deadline, lambda number=number: ran.append(number))
        pending.append((deadline, number))
        if rng.random() < 0.3:
            _, victim = pending.pop(rng.randrange(len(pending)))
            handles[victim].cancel()
        if rng.random() < 0.2:
            now += rng.randrange(50)
            timer.advance(now)
            expected = sorted(entry for entry in pending if entry[0] <= now)
            pending = [entry for entry in pending if entry[0] > now]
            assert ran == [number for _, number in expected], f"seed {seed}"
            ran.clear()
