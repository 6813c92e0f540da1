"""What all tests share: the event loop is uvloop, as in the broker, and random tests do not mind the time they take."""

import faulthandler
import gc
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from pytest_timeout import Settings
from xdist.remote import Producer

from tests.support.broker import BrokerProcess
from tests.support.forms import use_form
from tests.support.progress import Reporter
from tests.support.secrets import SecretsInLogs
from tests.support.spread import FilesTogether, longest_first, mark
from tests.support.supervisor import memory_folder

# The first example in a fresh checkout builds tables, and the machine may be busy: neither says anything of the code.
settings.register_profile("milena", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("milena")


class Watchdog:
    """Prints all stacks and ends the process if a test goes on after its timeout, which ends no wait in C code and may
    end the wrong task.

    To watch takes a thread, so it is the same one for several short tests: one that hangs ends `HANG_S` to
    `HANG_S + KEPT_S` after its timeout.
    """

    HANG_S = 60.0
    KEPT_S = 15.0

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr
        self._ends_s = 0.0
        """When the thread would end the process."""

    def watch(self, timeout_s: float) -> None:
        """Watch a test that begins now instead of the one before."""
        now_s = time.monotonic()
        if 0 <= self._ends_s - (now_s + timeout_s + self.HANG_S) <= self.KEPT_S:
            return
        allowed_s = timeout_s + self.HANG_S + self.KEPT_S
        faulthandler.dump_traceback_later(allowed_s, file=self._stderr, exit=True)
        self._ends_s = now_s + allowed_s

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()


WATCHDOG = pytest.StashKey[Watchdog]()


@pytest.hookimpl(trylast=True)  # after pytest has made its terminal writer
def pytest_configure(config: pytest.Config) -> None:
    config.stash[WATCHDOG] = Watchdog(config.stash[fault_handler_stderr_fd_key])
    BrokerProcess.are_forked = True
    if not hasattr(config, "workerinput"):  # workers print nothing
        config.pluginmanager.register(Reporter(config))


def pytest_asyncio_loop_factories() -> Mapping[str, type[uvloop.Loop]]:
    return {"uvloop": uvloop.Loop}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: their objects stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=longest_first)
    for item in items:
        mark(item)


@pytest.fixture(autouse=True)
def no_secret_is_logged() -> Iterator[None]:
    """Fail a test during which a secret of the suite was logged, at whatever level it logs."""
    handler = SecretsInLogs()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)
    assert not handler.lines


def _folder_in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    memory = memory_folder()
    if memory is None:
        yield tmp_path_factory.mktemp("memory")
        return
    parent = Path(tempfile.mkdtemp(dir=memory))  # no other test changes what is beside the folder
    folder = parent / "memory"
    folder.mkdir()
    yield folder
    shutil.rmtree(parent)


@pytest.fixture
def memory_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder, in memory if possible: for tests with thousands of small files or writes that are synced."""
    yield from _folder_in_memory(tmp_path_factory)


@pytest.fixture(scope="module")
def memory_path_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Such a folder for all tests of a file."""
    yield from _folder_in_memory(tmp_path_factory)


@pytest.fixture
def collector_is_off() -> Iterator[None]:
    """Turn cyclic garbage collection off: it visits, and frees, what earlier tests of the process have left."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> Generator[None, object, object]:
    """If the timeout does not end the test, print all stacks and exit; xdist then starts a new worker."""
    item.config.stash[WATCHDOG].watch(settings.timeout)
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[WATCHDOG].stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    return FilesTogether(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing skips, or something that is missing there would look like success."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Clients of librdkafka end with their file: later they would write into the output of other tests that they miss
    their broker. Those in reference cycles, in the frames of a failed test and in fixtures of the file are collected.
    """
    yield
    if (nextitem is None or nextitem.path != item.path) and _has_clients_of_librdkafka():
        for name in ("last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        vars(item).get("funcargs", {}).clear()
        gc.collect()


def _has_clients_of_librdkafka() -> bool:
    """Whether this process has the main thread of a client."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            if task.joinpath("comm").read_text().startswith("rdk:main"):
                return True
    return False


def _exclude_from_collection() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture
def exclude_from_collection() -> Iterator[Callable[[], None]]:
    """Return a function that excludes what exists from garbage collection, as a broker does after its start."""
    yield _exclude_from_collection
    gc.unfreeze()  # the collected tests as well
    _exclude_from_collection()


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: each full one would visit a million objects.

    What became garbage meanwhile stays as well: to find it takes a second.
    """
    gc.freeze()


@pytest.fixture(params=["compiled", "interpreted"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with each form of the compiled modules."""
    form: str = request.param
    use_form(form, monkeypatch)
    return form
