"""The purgatory: complete once, by event, force or deadline."""

from collections.abc import Callable

import pytest

from broker.loop import purgatory as purgatory_module
from broker.loop.purgatory import ENTRIES_KEPT, TRIED_TOGETHER_MAX, DelayedOperation, Purgatory
from broker.loop.timer import Timer
from tests.support.invariants import broken, check_after, stated

EVENTS = (
    "_expire",
    "abandon",
    "check_and_complete",
    "force_one",
    "try_complete_else_watch",
    "try_one",
    "watch_also",
)


class Waiter(DelayedOperation):
    __slots__ = ("completions", "effect", "is_ready", "releases")

    def __init__(self, effect: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.is_ready = False
        self.completions = self.releases = 0
        self.effect = effect

    def is_satisfied(self) -> bool:
        return self.is_ready

    def on_complete(self) -> None:
        self.completions += 1
        self.effect()

    def release(self) -> None:
        self.releases += 1


@pytest.fixture(autouse=True)
def purgatories_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check_after(monkeypatch, Purgatory, *EVENTS)


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("test", timer, purge_interval=4)


def test_a_satisfied_operation_is_never_parked(purgatory: Purgatory) -> None:
    waiter = Waiter()
    waiter.is_ready = True
    assert purgatory.try_complete_else_watch(waiter, ["a"], 10)
    assert (waiter.completions, purgatory.watched_count, purgatory.delayed_count) == (1, 0, 0)


def test_an_event_completes_once_under_all_keys(purgatory: Purgatory) -> None:
    waiter = Waiter()
    assert not purgatory.try_complete_else_watch(waiter, ["a", "b"], 10)
    assert purgatory.check_and_complete("a") == 0
    waiter.is_ready = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.check_and_complete("b") == 0
    assert not purgatory.force_one(waiter)
    assert (waiter.completions, waiter.releases) == (1, 1)
    assert purgatory.delayed_count == 0


def test_an_operation_may_be_watched_under_more_keys_after_it_was_parked(purgatory: Purgatory) -> None:
    waiter = Waiter()
    assert not purgatory.try_complete_else_watch(waiter, (), 10)
    waiter.is_ready = True
    purgatory.watch_also(waiter, "a")
    assert (waiter.completions, purgatory.watched_count) == (0, 1)
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.delayed_count == 0


def test_deadline_completes_a_parked_operation(purgatory: Purgatory, timer: Timer) -> None:
    early, late = Waiter(), Waiter()
    purgatory.try_complete_else_watch(early, ["a"], 10)
    purgatory.try_complete_else_watch(late, ["a"], 20)
    timer.advance(10)
    assert (early.completions, late.completions) == (1, 0)
    assert purgatory.expired_counts == {"": 1}
    late.is_ready = True
    purgatory.check_and_complete("a")
    timer.advance(100)
    assert late.completions == 1


def test_failed_operation_does_not_delay_others(purgatory: Purgatory, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiter):
        __slots__ = ("tries",)

        def is_satisfied(self) -> bool:
            self.tries = getattr(self, "tries", 0) + 1
            if self.tries > 1:
                raise ZeroDivisionError("of ours")
            return False

    failing, good = Failing(), Waiter()
    purgatory.try_complete_else_watch(failing, ["a"], 10)
    purgatory.try_complete_else_watch(good, ["a"], 10)
    good.is_ready = True
    purgatory.check_and_complete("a")
    assert (failing.completions, good.completions) == (1, 1)
    assert "ZeroDivisionError: of ours" in caplog.text


@pytest.mark.parametrize("cause", ["event", "force", "deadline"])
def test_failed_effect_does_not_stop_other_completions(
    purgatory: Purgatory, timer: Timer, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    class Failing(Waiter):
        __slots__ = ()

        def on_complete(self) -> None:
            raise ZeroDivisionError("of ours")

    failing, good = Failing(), Waiter()
    for waiter in (failing, good):
        purgatory.try_complete_else_watch(waiter, ["a"], 10)
        waiter.is_ready = True
    if cause == "event":
        assert purgatory.check_and_complete("a") == 2
    elif cause == "force":
        assert purgatory.force_one(failing)
        assert purgatory.force_one(good)
    else:
        timer.advance(10)
    assert good.completions == 1
    assert (failing.releases, good.releases) == (1, 1)
    assert purgatory.delayed_count == 0
    assert "ZeroDivisionError: of ours" in caplog.text


def test_force_completes_unsatisfied_operations(purgatory: Purgatory) -> None:
    waiter = Waiter()
    purgatory.try_complete_else_watch(waiter, ["a"], 10)
    assert purgatory.force_one(waiter)
    assert waiter.completions == 1


def test_an_abandoned_operation_never_completes(purgatory: Purgatory, timer: Timer) -> None:
    waiter = Waiter()
    purgatory.try_complete_else_watch(waiter, ["a"], 10)
    purgatory.abandon(waiter)
    waiter.is_ready = True
    purgatory.check_and_complete("a")
    timer.advance(100)
    assert (waiter.completions, waiter.releases) == (0, 1)
    assert purgatory.delayed_count == 0


def test_completion_may_park_another_under_the_same_key(purgatory: Purgatory) -> None:
    second = Waiter()
    first = Waiter(effect=lambda: purgatory.try_complete_else_watch(second, ["a"], 10) and None)
    purgatory.try_complete_else_watch(first, ["a"], 10)
    third = Waiter()
    purgatory.try_complete_else_watch(third, ["a"], 10)
    first.is_ready = True
    assert purgatory.check_and_complete("a") == 1
    second.is_ready = third.is_ready = True
    assert purgatory.check_and_complete("a") == 2


def test_completed_operations_are_swept_from_their_other_keys(purgatory: Purgatory) -> None:
    waiters = [Waiter() for _ in range(4)]
    for number, waiter in enumerate(waiters):
        purgatory.try_complete_else_watch(waiter, ["quiet", f"busy-{number}"], 10)
        waiter.is_ready = True
    for number in range(4):
        purgatory.check_and_complete(f"busy-{number}")
    assert purgatory.watched_count == 0


def test_operations_of_many_keys_leave_no_more_entries_than_a_few_of_them_have(timer: Timer) -> None:
    """One client may wait for thousands of quiet partitions again and again."""
    purgatory = Purgatory("test", timer, purge_interval=10_000)
    stays = Waiter()
    purgatory.try_complete_else_watch(stays, ["stays"], 10)
    keys = [f"quiet-{number}" for number in range(4000)]
    for _ in range(10):
        waiter = Waiter()
        purgatory.try_complete_else_watch(waiter, keys[1:], 10)
        purgatory.watch_also(waiter, keys[0])
        purgatory.force_one(waiter)
        assert purgatory.watched_count < ENTRIES_KEPT + len(keys)
        purgatory.check()
    assert purgatory.watched["stays"] == [stays]


def test_event_for_thousands_of_operations_is_handled_in_parts(timer: Timer) -> None:
    postponed: list[Callable[[], None]] = []
    purgatory = Purgatory("test", timer, purge_interval=10_000, postpone=postponed.append)
    waiters = [Waiter() for _ in range(3 * TRIED_TOGETHER_MAX + 1)]
    for waiter in waiters:
        purgatory.try_complete_else_watch(waiter, ["a"], 10)
        waiter.is_ready = True
    stays, expires = waiters[TRIED_TOGETHER_MAX], waiters[-1]
    stays.is_ready = False
    assert purgatory.check_and_complete("a") == TRIED_TOGETHER_MAX
    newcomer = Waiter()
    purgatory.try_complete_else_watch(newcomer, ["a"], 20)
    postponed.pop(0)()
    assert sum(waiter.completions for waiter in waiters) == 2 * TRIED_TOGETHER_MAX - 1
    expires.force_complete()
    while postponed:
        postponed.pop(0)()
    assert [waiter.completions for waiter in waiters] == [int(waiter is not stays) for waiter in waiters]
    stays.is_ready = newcomer.is_ready = True
    assert purgatory.check_and_complete("a") == 2, "an operation that still waits is still watched"


def test_an_event_between_the_parts_is_not_lost(timer: Timer) -> None:
    postponed: list[Callable[[], None]] = []
    purgatory = Purgatory("test", timer, purge_interval=10_000, postpone=postponed.append)
    waiters = [Waiter() for _ in range(TRIED_TOGETHER_MAX + 1)]
    for waiter in waiters:
        purgatory.try_complete_else_watch(waiter, ["a"], 10)
    purgatory.check_and_complete("a")
    waiters[-1].is_ready = True
    purgatory.check_and_complete("a")
    postponed.pop(0)()
    assert waiters[-1].completions == 1


def first(purgatory: Purgatory) -> DelayedOperation:
    return purgatory.watched["a"][0]


BREAKS: dict[str, Callable[[Purgatory], object]] = {
    "No key is listed without an operation": lambda it: it.watched.update(b=[]),
    "An operation has a deadline until it is completed, and none afterwards": lambda it: setattr(
        first(it), "is_completed", True
    ),
    "`delayed_count` is at least the number of listed operations that wait": lambda it: setattr(it, "delayed_count", 0),
    "Completed operations do not stay listed longer than `purge_interval` or the number of waiting ones allows": (
        lambda it: setattr(it, "_completed_since_purge", 4)
    ),
    "`watched_count` is that of the entries": lambda it: setattr(it, "_entry_count", 2),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(purgatory_module)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(purgatory: Purgatory, invariant: str) -> None:
    purgatory.try_complete_else_watch(Waiter(), ["a"], 10)
    assert broken(purgatory.check) is None
    BREAKS[invariant](purgatory)
    assert broken(purgatory.check) == invariant
