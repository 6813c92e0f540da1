"""A worker process that ends in the middle of a test."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.remote import Producer

from tests.support.spread import FilesTogether


class Worker:
    """A worker as the scheduler knows it: which tests it was given, by their indices."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_others_run_the_tests_of_a_worker_that_ends_except_the_one_that_ended_it() -> None:
    config = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda _: ["popen"] * 2)
    scheduler = FilesTogether(cast(pytest.Config, config), Producer("test", enabled=False))
    tests = [f"tests/{file}.py::test_{number}" for file in "abcd" for number in range(4)]
    ending, other = cast(Any, Worker("ending")), cast(Any, Worker("other"))
    for worker in (ending, other):
        scheduler.add_node(worker)
    for worker in (ending, other):
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    assert (ending.given, other.given) == ([0, 1, 2, 3], [4, 5, 6, 7])
    scheduler.mark_test_complete(ending, 0)
    assert scheduler.remove_node(ending) == tests[1]
    for index in other.given:  # which grows
        scheduler.mark_test_complete(other, index)
    assert sorted(other.given) == [index for index in range(len(tests)) if index not in (0, 1)]


def test_worker_that_ends_after_its_tests_ended_by_none_of_them() -> None:
    config = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda _: ["popen"])
    scheduler = FilesTogether(cast(pytest.Config, config), Producer("test", enabled=False))
    worker = cast(Any, Worker("only"))
    scheduler.add_node(worker)
    scheduler.add_node_collection(worker, ["tests/a.py::test"])
    scheduler.schedule()
    scheduler.mark_test_complete(worker, 0)
    assert scheduler.remove_node(worker) is None
