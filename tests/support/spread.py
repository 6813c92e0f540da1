"""How the tests are spread over the worker processes of pytest-xdist (`pytest -n 2`).

Owns: which tests stay together, and which go first. A file stays together, for what its tests share; so does a folder
whose tests share servers that take seconds to start. The longest go first, so that no worker is left alone with one.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SHARING_FOLDERS = ("tests/interop", "tests/spark_jobs")
# As `--durations=0` tells. One that has become short does no harm here; a long one that is missing may end alone.
LONGEST_FIRST = (
    "tests/interop/",
    "tests/spark_jobs/",
    "tests/bench/test_cases.py",
    "tests/storage/test_log_crash.py",
    "tests/clients/test_kafka_python.py",
    "tests/clients/test_transactions.py",
    "tests/storage/test_log_moves.py",
    "tests/test_launch.py",
    "tests/bench/test_client.py",
    "tests/tools/test_console.py",
)


class FilesAndFolders(LoadScopeScheduling):
    """Gives a worker the next file, or folder of `SHARING_FOLDERS`, when it is nearly done with its last."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in SHARING_FOLDERS if file.startswith(f"{folder}/")), file)


def longest_first(item: pytest.Item) -> int:
    """The key to sort tests by; others keep their order."""
    for place, path in enumerate(LONGEST_FIRST):
        if item.nodeid.startswith(path):
            return place
    return len(LONGEST_FIRST)
