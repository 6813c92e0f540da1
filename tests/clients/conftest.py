"""One broker for all client tests; each test uses its own topics and groups."""

import itertools
import resource
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"num.partitions": "4"}) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A new topic name."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A new group id."""
    return f"group-{next(_numbers)}"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many connections as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
