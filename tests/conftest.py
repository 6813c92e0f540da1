"""What all tests share: the event loop is uvloop, as in the broker, and random tests do not mind the time they take."""

import gc
from collections.abc import Mapping

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.support.spread import FilesTogether, longest_first

# The first example in a fresh checkout builds tables, and the machine may be busy: neither says anything of the code.
settings.register_profile("milena", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("milena")


def pytest_asyncio_loop_factories() -> Mapping[str, type[uvloop.Loop]]:
    return {"uvloop": uvloop.Loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=longest_first)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    return FilesTogether(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Clients in reference cycles go before the summary is written, so that it is the last word."""
    gc.collect()
