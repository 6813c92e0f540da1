"""What all tests share: the event loop is uvloop, as in the broker."""

from collections.abc import Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, type[uvloop.Loop]]:
    return {"uvloop": uvloop.Loop}
