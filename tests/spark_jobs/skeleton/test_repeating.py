"""A function is called at an interval until the end."""

from threading import Event
from types import SimpleNamespace

from spark_jobs.skeleton.repeating import Repeater

TIMEOUT_S = 30


def test_a_function_is_called_immediately_and_again_until_the_end() -> None:
    calls = SimpleNamespace(count=0, third=Event())

    def call() -> None:
        calls.count += 1
        if calls.count == 3:
            calls.third.set()

    repeater = Repeater("test", 0.01, call)
    assert calls.third.wait(TIMEOUT_S)
    repeater.close()
    count = calls.count
    assert not Event().wait(0.05)
    assert calls.count == count


def test_a_call_in_progress_ends_before_the_repeater_is_closed() -> None:
    begun, done = Event(), Event()

    def call() -> None:
        begun.set()
        Event().wait(0.05)
        done.set()

    repeater = Repeater("test", 3_600, call)
    assert begun.wait(TIMEOUT_S)
    repeater.close()
    assert done.is_set()
