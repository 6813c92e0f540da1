"""Every name of a built-in connector finds a class of its direction, and no module is imported before."""

import importlib
import os
import subprocess
import sys

import pytest

from spark_jobs.connect.base.api import SinkConnector, SourceConnector
from spark_jobs.connect.connectors import CONNECTORS


@pytest.mark.parametrize("name", CONNECTORS)
def test_a_name_finds_a_connector_of_its_direction(name: str) -> None:
    place, direction = CONNECTORS[name]
    module, _, class_name = place.partition(":")
    found = getattr(importlib.import_module(module), class_name)
    assert issubclass(found, {"source": SourceConnector, "sink": SinkConnector}[direction])
    assert name.rpartition(".")[2] == class_name
    assert found.task.version == found.version != "unknown"
    assert found.__doc__


def test_names_are_known_without_importing_connectors() -> None:
    program = "import sys, spark_jobs.connect.connectors as c; print([m for m in sys.modules if c.__name__ + '.' in m])"
    found = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == "[]"
