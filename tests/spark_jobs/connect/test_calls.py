"""Calls in threads that nobody has to wait for."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

import pytest

from spark_jobs.connect.base.calls import CallThread, call_in_thread
from tests.support.broker import ROOT


def test_calls_are_made_one_after_the_other_and_results_are_returned() -> None:
    calls: list[int] = []

    def call(number: int) -> int:
        calls.append(number)
        return number

    thread = CallThread("calls")
    results = [thread.submit(partial(call, number)) for number in range(100)]
    thread.close()
    assert [each.result(10) for each in results] == calls == list(range(100))


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3)])
def test_an_error_is_the_result_and_later_calls_are_made(error: BaseException) -> None:
    def fail() -> None:
        raise error

    thread = CallThread("calls")
    failed, done = thread.submit(fail), thread.submit(lambda: "done")
    assert failed.exception(10) is error
    assert done.result(10) == "done"
    assert call_in_thread("call", fail).exception(10) is error
    thread.close()


def test_a_cancelled_call_is_not_made() -> None:
    calls: list[str] = []
    began, ended = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        ended.wait(10)

    thread = CallThread("calls")
    thread.submit(wait)
    assert began.wait(10)
    waiting = thread.submit(lambda: calls.append("cancelled"))
    assert waiting.cancel()
    ended.set()
    thread.submit(lambda: None).result(10)
    thread.close()
    assert calls == []


def test_a_process_ends_although_calls_never_return() -> None:
    program = (
        "import threading; from spark_jobs.connect.base.calls import CallThread, call_in_thread\n"
        "CallThread('a').submit(threading.Event().wait); call_in_thread('b', threading.Event().wait)"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=30, env={"PYTHONPATH": str(ROOT)})
