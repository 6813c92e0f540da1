"""A broker for handlers that are asked without sockets."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.in_process import InProcessBroker, running_broker

_numbers = itertools.count()


@pytest.fixture
def tmp_path(memory_path: Path) -> Path:
    """In memory: a thousand brokers start here, and each syncs its first files."""
    return memory_path


@pytest_asyncio.fixture
async def own_broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    """A broker of the test's own; to start and stop it takes some 30 ms."""
    async with running_broker(tmp_path / "broker") as broker:
        yield broker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker_of_file(memory_path_of_file: Path) -> AsyncIterator[InProcessBroker]:
    """One broker for the tests of a file, which name their topics and groups with `name`.

    The file has `pytestmark = pytest.mark.asyncio(loop_scope="module")`, and its own fixture `served` that returns it.
    """
    async with running_broker(memory_path_of_file / "broker") as broker:
        yield broker


@pytest.fixture
def served(own_broker: InProcessBroker) -> InProcessBroker:
    """The broker that the test asks: one of its own, unless the file has another fixture of this name."""
    return own_broker


@pytest.fixture
def name() -> str:
    """A name that was not used before."""
    return f"handled-{next(_numbers)}"
